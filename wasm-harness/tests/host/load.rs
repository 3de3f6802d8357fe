//! What loads, what is refused, what a trap leaves.

use warmroute_harness::host::{
    Abi, Artifact, Gateway, HostError, Options, Profile, Thread, Vm, VmOptions,
};

use crate::guest::{envoy, guest, post, said, start};

const HIGRESS_CALL: &str = r#"(module
  (import "env" "proxy_get_upstream_hosts" (func (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "proxy_abi_version_0_2_1")))"#;

#[test]
fn an_import_that_the_gateway_lacks_is_named() {
    let artifact = Artifact::load(HIGRESS_CALL.as_bytes()).unwrap();
    let refused = Vm::new(&artifact, &Gateway::new(Profile::Envoy))
        .err()
        .unwrap();
    assert!(
        matches!(&refused, HostError::MissingImport { import, profile: Profile::Envoy } if import == "env.proxy_get_upstream_hosts"),
        "{refused}"
    );
    assert!(Vm::new(&artifact, &Gateway::new(Profile::Higress)).is_ok());
}

#[test]
fn an_import_with_other_arguments_is_refused() {
    let text = HIGRESS_CALL.replace("(param i32 i32)", "(param i32)");
    let artifact = Artifact::load(text.as_bytes()).unwrap();
    let refused = Vm::new(&artifact, &Gateway::new(Profile::Higress))
        .err()
        .unwrap();
    assert!(
        matches!(&refused, HostError::Instantiate(why) if why.contains("proxy_get_upstream_hosts")),
        "{refused}"
    );
}

#[test]
fn exactly_one_known_abi_version_is_exported() {
    let load = |exports: &str| Artifact::load(format!("(module {exports})").as_bytes());
    let one = |version: &str| format!(r#"(func (export "proxy_abi_version_{version}"))"#);
    assert_eq!(load(&one("0_2_100")).unwrap().abi(), Abi::V0_2_100);
    assert!(matches!(load(""), Err(HostError::Abi(_))));
    assert!(matches!(load(&one("9_9_9")), Err(HostError::Abi(_))));
    assert!(matches!(
        load(&(one("0_2_1") + &one("0_2_100"))),
        Err(HostError::Abi(_))
    ));
    let higress = guest("0_2_1", "");
    assert_eq!(higress.abi(), Abi::V0_2_1);
    let new = load(&one("0_2_100")).unwrap();
    assert!(matches!(
        Vm::new(&new, &Gateway::new(Profile::Envoy)),
        Err(HostError::Abi(_))
    ));
}

#[test]
fn a_configuration_is_read_and_may_be_refused() {
    let artifact = guest(
        "0_2_1",
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
             (call $status (call $proxy_get_buffer_bytes
               (i32.const 7) (i32.const 0) (local.get 1) (i32.const 900) (i32.const 904)))
             (call $tell)
             (i32.eq (local.get 1) (i32.const 2)))"#,
    );
    let mut vm = Vm::new(&artifact, &Gateway::new(Profile::Envoy)).unwrap();
    assert!(vm.start("{}").unwrap());
    assert!(!vm.configure("{ }").unwrap());
    assert_eq!(said(&vm), ["00", "{}", "00", "{ }"]);
}

#[test]
fn a_trap_is_reported_with_the_log_and_kills_the_vm() {
    let mut vm = envoy(
        r#"(data (i32.const 0) "so far")
           (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
             (drop (call $proxy_log (i32.const 4) (i32.const 0) (i32.const 6)))
             unreachable)"#,
    );
    let stream = post(&mut vm);
    let trap = vm.request_body(stream, b"x", true).unwrap_err();
    assert_eq!(trap.callback, "proxy_on_request_body");
    assert!(trap.message.contains("unreachable"), "{}", trap.message);
    assert_eq!(
        (trap.log[0].level, trap.log[0].message.as_str()),
        (4, "so far")
    );
    assert!(vm.tick().is_err());
    assert!(vm.trap().is_some());
}

#[test]
fn fuel_is_counted_by_callback_and_bounded() {
    let mut vm = envoy(
        r#"(func (export "proxy_on_tick") (param i32) (local $n i32)
             (local.set $n (i32.const 1000))
             (loop $again
               (local.set $n (i32.sub (local.get $n) (i32.const 1)))
               (br_if $again (local.get $n))))"#,
    );
    vm.tick().unwrap();
    vm.tick().unwrap();
    let tick = vm.fuel()["proxy_on_tick"];
    assert_eq!(tick.calls, 2);
    assert!((4000..9000).contains(&tick.last), "{tick:?}");
    assert_eq!(tick.total, 2 * tick.last);

    let artifact = guest(
        "0_2_1",
        r#"(func (export "proxy_on_tick") (param i32) (loop $ever (br $ever)))"#,
    );
    let options = Options {
        fuel_limit: 100_000,
        ..Options::new(Profile::Envoy)
    };
    let mut vm = start(&artifact, &Gateway::with_options(Profile::Envoy, options));
    assert!(vm.tick().unwrap_err().message.contains("fuel"));
}

#[test]
fn memory_is_seen_and_capped() {
    let text = r#"(func (export "proxy_on_tick") (param i32)
        (call $say (i32.eq (memory.grow (i32.const 10)) (i32.const -1))))"#;
    let options = Options {
        memory_limit_bytes: 20 * 65_536,
        ..Options::new(Profile::Envoy)
    };
    let mut vm = start(
        &guest("0_2_1", text),
        &Gateway::with_options(Profile::Envoy, options),
    );
    vm.tick().unwrap();
    assert_eq!(vm.memory_bytes(), 12 * 65_536);
    vm.tick().unwrap();
    assert_eq!(vm.memory_bytes(), 12 * 65_536);
    assert_eq!(said(&vm), ["00", "01"]);
}

#[test]
fn ticks_come_by_the_clock_also_on_the_main_thread() {
    let artifact = guest(
        "0_2_1",
        r#"(func (export "proxy_on_vm_start") (param i32 i32) (result i32)
             (i32.eqz (call $proxy_set_tick_period_milliseconds (i32.const 250))))
           (func (export "proxy_on_tick") (param i32)
             (call $status (call $proxy_get_current_time_nanoseconds (i32.const 904)))
             (call $say (i32.wrap_i64 (i64.rem_u
               (i64.div_u (i64.load (i32.const 904)) (i64.const 1000000)) (i64.const 100)))))"#,
    );
    let gateway = Gateway::new(Profile::Envoy);
    let options = VmOptions {
        thread: Thread::Main,
        ..VmOptions::default()
    };
    let mut vm = Vm::with_options(&artifact, &gateway, options).unwrap();
    assert!(vm.start("").unwrap());
    assert_eq!(vm.tick_period_ms(), 250);
    vm.advance(510).unwrap();
    assert_eq!(said(&vm), ["00", "50", "00", "00"]);
    assert_eq!(vm.host_calls()["proxy_get_current_time_nanoseconds"], 2);
}
