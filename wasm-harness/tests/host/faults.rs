//! Host functions that fail on demand.

use warmroute_harness::host::{Fault, Gateway, Nth, Profile};

use crate::guest::{guest, said, start};

#[test]
fn the_nth_call_or_every_call_answers_the_status() {
    let artifact = guest(
        "0_2_1",
        r#"(func (export "proxy_on_tick") (param i32)
             (call $status (call $proxy_get_current_time_nanoseconds (i32.const 900))))"#,
    );
    let mut vm = start(&artifact, &Gateway::new(Profile::Envoy));
    let fault = |nth, status| Fault {
        function: "proxy_get_current_time_nanoseconds".to_owned(),
        nth,
        status,
    };
    vm.add_fault(fault(Nth::Only(2), 10));
    for _ in 0..3 {
        vm.tick().unwrap();
    }
    vm.clear_faults();
    vm.add_fault(fault(Nth::Every, 77));
    vm.tick().unwrap();
    vm.tick().unwrap();
    assert_eq!(said(&vm), ["00", "10", "00", "77", "77"]);
    assert_eq!(vm.host_calls()["proxy_get_current_time_nanoseconds"], 5);
}

#[test]
fn a_guest_whose_allocator_fails_or_traps_hears_of_it() {
    let module = |allocator: &str| {
        let text = format!(
            r#"(module
              (import "env" "proxy_get_buffer_bytes" (func $get (param i32 i32 i32 i32 i32) (result i32)))
              (memory (export "memory") 1)
              (func (export "proxy_abi_version_0_2_1"))
              {allocator}
              (func (export "proxy_on_configure") (param i32 i32) (result i32)
                (i32.eq (call $get (i32.const 7) (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 4)) (i32.const 6))))"#
        );
        warmroute_harness::host::Artifact::load(text.as_bytes()).unwrap()
    };
    let gateway = Gateway::new(Profile::Envoy);
    let run = |allocator: &str| {
        warmroute_harness::host::Vm::new(&module(allocator), &gateway)
            .unwrap()
            .start("{}")
    };
    assert!(run("").unwrap(), "no allocator at all: status 6");
    assert!(run(r#"(func (export "malloc") (param i32) (result i32) (i32.const 0))"#).unwrap());
    assert!(!run(r#"(func (export "malloc") (param i32) (result i32) (i32.const 64))"#).unwrap());
    assert!(run(r#"(func (export "malloc") (param i32) (result i32) unreachable)"#).is_err());
}
