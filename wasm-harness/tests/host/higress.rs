//! What only Higress has.

use warmroute_harness::host::{Gateway, Health, Profile, StreamSpec, UpstreamHost, Vm, header_map};

use crate::guest::{guest, post, said, start};

/// Asks for hosts on a tick and in headers; overrides in the body callback.
const PICKER: &str = r#"
  (data (i32.const 0) "10.0.0.2:80")
  (data (i32.const 20) "redis")
  (data (i32.const 40) "set_decoder_buffer_limit")
  (data (i32.const 70) "90000")
  (data (i32.const 80) "wasm_need_rebuildtrue")
  (func $hosts
    (i32.store (i32.const 900) (i32.const 9))
    (call $status (call $proxy_get_upstream_hosts (i32.const 900) (i32.const 904)))
    (if (i32.load (i32.const 900)) (then (call $tell)) (else (call $say (i32.load (i32.const 904))))))
  (func (export "proxy_on_tick") (param i32)
    (call $hosts)
    (call $status (call $proxy_redis_call
      (i32.const 20) (i32.const 5) (i32.const 0) (i32.const 4) (i32.const 700)))
    (call $status (call $proxy_redis_init (i32.const 20) (i32.const 5)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 100)))
    (call $status (call $proxy_redis_call
      (i32.const 20) (i32.const 5) (i32.const 0) (i32.const 4) (i32.const 700)))
    (call $status (call $proxy_set_property (i32.const 80) (i32.const 17) (i32.const 97) (i32.const 4))))
  (func (export "proxy_on_redis_call_response") (param i32 i32 i32 i32)
    (call $status (call $proxy_get_buffer_bytes
      (i32.const 9) (i32.const 0) (local.get 3) (i32.const 900) (i32.const 904)))
    (call $tell))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (call $hosts)
    (drop (call $proxy_set_property (i32.const 40) (i32.const 24) (i32.const 70) (i32.const 5)))
    (i32.const 1))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (drop (call $proxy_set_upstream_override_host (i32.const 0) (i32.const 11)))
    (i32.eqz (local.get 2)))"#;

fn picker() -> (Gateway, Vm) {
    let gateway = Gateway::new(Profile::Higress);
    let vm = start(&guest("0_2_100", PICKER), &gateway);
    (gateway, vm)
}

#[test]
fn hosts_are_pretty_printed_json_in_streams_only() {
    let (gateway, mut vm) = picker();
    let metrics = Some(b"a 1\n".to_vec());
    let unreadable = Some(vec![0xff]);
    gateway.set_hosts(
        "engines",
        vec![
            UpstreamHost {
                health: Health::Degraded,
                metrics,
                ..UpstreamHost::new("10.0.0.1:80")
            },
            UpstreamHost {
                metrics: unreadable,
                ..UpstreamHost::new("10.0.0.2:80")
            },
        ],
    );
    vm.tick().unwrap();
    assert_eq!(said(&vm)[..2], ["00", "00"], "no stream: null and 0");
    post(&mut vm);
    let told = said(&vm).last().copied().unwrap();
    assert!(
        told.contains(
            "10.0.0.1:80\0{\n \"health_status\": \"Degraded\",\n \"metrics\": \"a 1\\n\"\n}\n\0"
        ),
        "{told:?}"
    );
    assert!(
        told.contains("10.0.0.2:80\0{\"error\": \"Failed to get host info\"}\0"),
        "{told:?}"
    );
    gateway.set_hosts("engines", Vec::new());
    post(&mut vm);
    assert_eq!(said(&vm).last(), Some(&"00"));
}

#[test]
fn an_override_counts_when_it_names_a_usable_host() {
    let (gateway, mut vm) = picker();
    let usable = UpstreamHost::new("10.0.0.2:80");
    let sick = UpstreamHost {
        health: Health::Unhealthy,
        ..usable.clone()
    };
    let cases = [
        (vec![usable], Some("10.0.0.2:80")),
        (vec![sick], None),
        (vec![UpstreamHost::new("10.0.0.1:80")], None),
    ];
    for (hosts, picked) in cases {
        gateway.set_hosts("engines", hosts);
        let stream = post(&mut vm);
        vm.request_body(stream, b"{}", true).unwrap();
        let seen = vm.close(stream).unwrap();
        assert_eq!(seen.override_host.as_deref(), Some(&b"10.0.0.2:80"[..]));
        assert_eq!(seen.picked.as_deref(), picked);
        assert!(seen.upstream.ended);
    }
}

#[test]
fn the_buffer_limit_can_be_raised() {
    let (_, mut vm) = picker();
    let stream = post(&mut vm);
    vm.request_body(stream, &[b'x'; 80_000], false).unwrap();
    assert!(vm.seen(stream).unwrap().local_reply.is_none());
    vm.request_body(stream, &[b'x'; 20_000], false).unwrap();
    assert_eq!(
        vm.seen(stream)
            .unwrap()
            .local_reply
            .as_ref()
            .unwrap()
            .status,
        413
    );
}

#[test]
fn redis_wants_an_init_and_answers_through_its_own_buffer() {
    let (gateway, mut vm) = picker();
    gateway.set_hosts("redis", Vec::new());
    vm.tick().unwrap();
    assert_eq!(said(&vm), ["00", "00", "02", "00", "00", "00"]);
    assert!(vm.rebuild_requested());
    let call = vm.redis_calls()[0].clone();
    assert_eq!(call.query, b"10.0");
    assert!(vm.answer_redis(call.id, 0, b"+PONG").unwrap());
    assert_eq!(said(&vm)[6..], ["00", "+PONG"]);
}

#[test]
fn response_callbacks_come_without_a_request() {
    let (_, mut vm) = picker();
    let stream = vm.open_stream(StreamSpec::default()).unwrap();
    vm.response_headers(stream, header_map(&[(":status", "401")]), true)
        .unwrap();
    assert!(vm.seen(stream).unwrap().downstream.ended);
}
