//! Callouts, foreign functions, gRPC.

use warmroute_harness::host::{ClusterState, Gateway, Options, Profile, Vm, header_map};

use crate::guest::{guest, said, start};

/// Every tick calls `engines`, whose headers are built in memory, with a timeout of 500 ms.
const CALLER: &str = r#"
  (data (i32.const 0) "engines")
  (data (i32.const 16) "\03\00\00\00\07\00\00\00\03\00\00\00\05\00\00\00\01\00\00\00\0a\00\00\00\01\00\00\00:method\00GET\00:path\00/\00:authority\00e\00")
  (data (i32.const 100) ":status")
  (func (export "proxy_on_tick") (param i32)
    (call $status (call $proxy_http_call (i32.const 0) (i32.const 7) (i32.const 16) (i32.const 62)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 700))))
  (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
    (call $say (local.get 2))
    (call $status (call $proxy_get_header_map_value
      (i32.const 6) (i32.const 100) (i32.const 7) (i32.const 900) (i32.const 904)))
    (if (local.get 2) (then (call $tell)))
    (call $status (call $proxy_get_buffer_bytes
      (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 900) (i32.const 904)))
    (if (local.get 3) (then (call $tell))))"#;

fn caller() -> (Gateway, Vm) {
    let gateway = Gateway::new(Profile::Envoy);
    gateway.set_cluster("engines", ClusterState::Up);
    let vm = start(&guest("0_2_1", CALLER), &gateway);
    (gateway, vm)
}

#[test]
fn a_callout_is_answered_late() {
    let (_, mut vm) = caller();
    vm.tick().unwrap();
    vm.advance(400).unwrap();
    let call = vm.callouts()[0].clone();
    assert_eq!((call.cluster.as_str(), call.timeout_ms), ("engines", 500));
    assert_eq!(
        call.headers,
        header_map(&[(":method", "GET"), (":path", "/"), (":authority", "e")])
    );
    assert!(
        vm.answer_callout(call.id, header_map(&[(":status", "200")]), b"up 1")
            .unwrap()
    );
    assert_eq!(said(&vm), ["00", "01", "00", "200", "00", "up 1"]);
    assert!(!vm.answer_callout(call.id, header_map(&[]), b"").unwrap());
}

#[test]
fn a_callout_times_out_or_is_never_answered() {
    let (_, mut vm) = caller();
    vm.tick().unwrap();
    vm.advance(500).unwrap();
    assert_eq!(said(&vm)[3], "504");

    let options = Options {
        callouts_time_out: false,
        ..Options::new(Profile::Envoy)
    };
    let gateway = Gateway::with_options(Profile::Envoy, options);
    gateway.set_cluster("engines", ClusterState::Up);
    let mut vm = start(&guest("0_2_1", CALLER), &gateway);
    vm.tick().unwrap();
    vm.advance(60_000).unwrap();
    assert_eq!((said(&vm).len(), vm.callouts().len()), (1, 1));
}

#[test]
fn a_callout_fails_without_headers_or_by_a_cluster_without_hosts() {
    let (gateway, mut vm) = caller();
    vm.tick().unwrap();
    let id = vm.callouts()[0].id;
    assert!(vm.fail_callout(id).unwrap());
    assert_eq!(said(&vm), ["00", "00", "01", "00"]);
    gateway.set_cluster("engines", ClusterState::NoHost);
    vm.tick().unwrap();
    assert_eq!(said(&vm)[4..7], ["00", "01", "00"]);
    assert_eq!(said(&vm)[7], "503");
}

#[test]
fn an_unknown_cluster_is_a_bad_argument() {
    let (gateway, mut vm) = caller();
    gateway.remove_cluster("engines");
    vm.tick().unwrap();
    assert_eq!(said(&vm), ["02"]);
    assert!(vm.callouts().is_empty());
}

#[test]
fn foreign_functions_and_grpc_answer_without_harm() {
    let artifact = guest(
        "0_2_1",
        r#"(data (i32.const 0) "clear_route_cache")
           (func (export "proxy_on_tick") (param i32)
             (call $status (call $proxy_call_foreign_function (i32.const 0) (i32.const 17)
               (i32.const 0) (i32.const 0) (i32.const 900) (i32.const 904)))
             (call $status (call $proxy_call_foreign_function (i32.const 0) (i32.const 5)
               (i32.const 0) (i32.const 0) (i32.const 900) (i32.const 904)))
             (call $status (call $proxy_grpc_cancel (i32.const 1)))
             (call $status (call $proxy_get_log_level (i32.const 900)))
             (call $status (call $proxy_get_status (i32.const 700) (i32.const 900) (i32.const 904)))
             (call $status (call $proxy_done)))"#,
    );
    let mut vm = start(&artifact, &Gateway::new(Profile::Envoy));
    vm.tick().unwrap();
    assert_eq!(said(&vm), ["00", "01", "10", "00", "00", "00"]);
}
