//! What VMs share: data with CAS, queues, metrics. What they do not: another vm_id.

use warmroute_harness::host::{Gateway, Profile, Vm, VmOptions};

use crate::guest::{guest, said, start};

/// On tick: writes the tick's CAS as read last; on configure: reads.
const CAS: &str = r#"
  (data (i32.const 0) "key")
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (call $status (call $proxy_get_shared_data
      (i32.const 0) (i32.const 3) (i32.const 900) (i32.const 904) (i32.const 700)))
    (i32.const 1))
  (func (export "proxy_on_tick") (param i32)
    (call $status (call $proxy_set_shared_data
      (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 2) (i32.load (i32.const 700)))))"#;

#[test]
fn compare_and_swap_holds_over_two_vms() {
    let (artifact, gateway) = (guest("0_2_1", CAS), Gateway::new(Profile::Envoy));
    let (mut one, mut two) = (start(&artifact, &gateway), start(&artifact, &gateway));
    one.tick().unwrap();
    assert!(one.configure("").unwrap() && two.configure("").unwrap());
    one.tick().unwrap();
    two.tick().unwrap();
    assert_eq!(said(&one), ["01", "00", "00", "00"]);
    assert_eq!(said(&two), ["01", "00", "08"], "the other VM wrote first");
    assert!(two.configure("").unwrap());
    two.tick().unwrap();
    assert_eq!(said(&two)[3..], ["00", "00"]);
    assert_eq!(gateway.shared_data("plugin", b"key").unwrap().0, b"ke");

    let options = VmOptions {
        vm_id: "other".to_owned(),
        ..VmOptions::default()
    };
    let mut other = Vm::with_options(&artifact, &gateway, options).unwrap();
    assert!(other.start("").unwrap());
    assert_eq!(said(&other), ["01"]);
}

#[test]
fn a_queue_gives_each_message_once() {
    let artifact = guest(
        "0_2_1",
        r#"(data (i32.const 0) "queueplugin")
           (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
             (call $status (call $proxy_resolve_shared_queue
               (i32.const 5) (i32.const 6) (i32.const 0) (i32.const 5) (i32.const 700)))
             (call $status (call $proxy_register_shared_queue (i32.const 0) (i32.const 5) (i32.const 700)))
             (call $status (call $proxy_enqueue_shared_queue
               (i32.load (i32.const 700)) (i32.const 0) (i32.const 3)))
             (i32.const 1))
           (func (export "proxy_on_tick") (param i32)
             (call $status (call $proxy_dequeue_shared_queue
               (i32.load (i32.const 700)) (i32.const 900) (i32.const 904)))
             (call $status (call $proxy_enqueue_shared_queue (i32.const 77) (i32.const 0) (i32.const 3))))"#,
    );
    let gateway = Gateway::new(Profile::Envoy);
    let (mut one, mut two) = (start(&artifact, &gateway), start(&artifact, &gateway));
    one.tick().unwrap();
    one.tick().unwrap();
    two.tick().unwrap();
    assert_eq!(said(&one), ["01", "00", "00", "00", "01", "00", "01"]);
    assert_eq!(said(&two), ["00", "00", "00", "07", "01"]);
}

#[test]
fn metrics_add_up_over_vms() {
    let artifact = guest(
        "0_2_1",
        r#"(data (i32.const 0) "warmroute_x")
           (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
             (call $status (call $proxy_define_metric
               (i32.const 0) (i32.const 0) (i32.const 11) (i32.const 700)))
             (call $status (call $proxy_define_metric
               (i32.const 2) (i32.const 0) (i32.const 9) (i32.const 704)))
             (i32.const 1))
           (func (export "proxy_on_tick") (param i32)
             (call $status (call $proxy_increment_metric (i32.load (i32.const 700)) (i64.const 3)))
             (call $status (call $proxy_increment_metric (i32.load (i32.const 700)) (i64.const -1)))
             (call $status (call $proxy_record_metric (i32.load (i32.const 704)) (i64.const 7)))
             (call $status (call $proxy_get_metric (i32.load (i32.const 700)) (i32.const 712)))
             (call $say (i32.load (i32.const 712)))
             (call $status (call $proxy_get_metric (i32.const 99) (i32.const 712))))"#,
    );
    let gateway = Gateway::new(Profile::Envoy);
    let (mut one, mut two) = (start(&artifact, &gateway), start(&artifact, &gateway));
    one.tick().unwrap();
    two.tick().unwrap();
    assert_eq!(said(&two), ["00", "00", "00", "02", "00", "00", "06", "01"]);
    assert_eq!(gateway.metrics()["warmroute_x"], 6);
    assert_eq!(gateway.histogram("warmroute"), [7, 7]);
}
