//! Small guests in WAT, and what they say.
//!
//! A guest gets all imports of Envoy as `$proxy_*`, one page for its own data, an allocator from 65,536
//! upward, `$say` (logs a number below 100 as two digits), `$tell` (logs bytes that a host call
//! announced at 900 and 904) and `$status` (says a status, drops it).

use std::fmt::Write as _;

use warmroute_harness::host::{
    Artifact, Gateway, Options, Profile, StreamId, StreamSpec, Vm, header_map,
};

const IMPORTS: &[(&str, &str)] = &[
    ("log", "www"),
    ("get_log_level", "w"),
    ("get_current_time_nanoseconds", "w"),
    ("set_tick_period_milliseconds", "w"),
    ("set_effective_context", "w"),
    ("done", ""),
    ("get_status", "www"),
    ("call_foreign_function", "wwwwww"),
    ("get_property", "wwww"),
    ("set_property", "wwww"),
    ("get_header_map_pairs", "www"),
    ("set_header_map_pairs", "www"),
    ("get_header_map_size", "ww"),
    ("get_header_map_value", "wwwww"),
    ("add_header_map_value", "wwwww"),
    ("replace_header_map_value", "wwwww"),
    ("remove_header_map_value", "www"),
    ("get_buffer_bytes", "wwwww"),
    ("set_buffer_bytes", "wwwww"),
    ("get_buffer_status", "www"),
    ("continue_stream", "w"),
    ("close_stream", "w"),
    ("send_local_response", "wwwwwwww"),
    ("http_call", "wwwwwwwwww"),
    ("grpc_call", "wwwwwwwwwwww"),
    ("grpc_stream", "wwwwwwwww"),
    ("grpc_send", "wwww"),
    ("grpc_cancel", "w"),
    ("grpc_close", "w"),
    ("get_shared_data", "wwwww"),
    ("set_shared_data", "wwwww"),
    ("register_shared_queue", "www"),
    ("resolve_shared_queue", "wwwww"),
    ("enqueue_shared_queue", "www"),
    ("dequeue_shared_queue", "www"),
    ("define_metric", "wwww"),
    ("increment_metric", "wl"),
    ("record_metric", "wl"),
    ("get_metric", "ww"),
];

const HIGRESS_IMPORTS: &[(&str, &str)] = &[
    ("get_upstream_hosts", "ww"),
    ("set_upstream_override_host", "ww"),
    ("redis_init", "wwwwwww"),
    ("redis_call", "wwwww"),
];

const HELPERS: &str = r#"
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 65536))
  (func (export "proxy_on_memory_allocate") (param $size i32) (result i32)
    global.get $heap
    (global.set $heap (i32.add (global.get $heap) (local.get $size))))
  (func $say (param $number i32)
    (i32.store8 (i32.const 800) (i32.add (i32.const 48) (i32.div_u (local.get $number) (i32.const 10))))
    (i32.store8 (i32.const 801) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
    (drop (call $proxy_log (i32.const 2) (i32.const 800) (i32.const 2))))
  (func $status (param $status i32) (call $say (local.get $status)))
  (func $tell
    (drop (call $proxy_log (i32.const 2) (i32.load (i32.const 900)) (i32.load (i32.const 904)))))
"#;

/// A guest of this ABI version: functions, exports and data in `text`.
pub fn guest(abi: &str, text: &str) -> Artifact {
    let mut module = String::from("(module\n");
    let higress = if abi == "0_2_100" {
        HIGRESS_IMPORTS
    } else {
        &[]
    };
    for (name, arguments) in IMPORTS.iter().chain(higress) {
        let kinds: String = arguments
            .chars()
            .map(|kind| if kind == 'l' { " i64" } else { " i32" })
            .collect();
        let line = format!(
            r#"(import "env" "proxy_{name}" (func $proxy_{name} (param{kinds}) (result i32)))"#
        );
        writeln!(module, "  {line}").unwrap();
    }
    write!(
        module,
        "{HELPERS}  (func (export \"proxy_abi_version_{abi}\"))\n{text})"
    )
    .unwrap();
    Artifact::load(module.as_bytes()).unwrap()
}

/// A started worker on this gateway.
pub fn start(artifact: &Artifact, gateway: &Gateway) -> Vm {
    let mut vm = Vm::new(artifact, gateway).unwrap();
    assert!(vm.start("").unwrap());
    vm
}

/// A started worker on stock Envoy.
pub fn envoy(text: &str) -> Vm {
    start(&guest("0_2_1", text), &Gateway::new(Profile::Envoy))
}

/// A gateway that holds at most this many bytes.
pub fn gateway_with_limit(buffer_limit_bytes: usize) -> Gateway {
    Gateway::with_options(
        Profile::Envoy,
        Options {
            buffer_limit_bytes,
            ..Options::new(Profile::Envoy)
        },
    )
}

/// A stream whose POST headers have been sent.
pub fn post(vm: &mut Vm) -> StreamId {
    let stream = vm
        .open_stream(StreamSpec {
            cluster: "engines".to_owned(),
            ..StreamSpec::default()
        })
        .unwrap();
    vm.request_headers(
        stream,
        header_map(&[(":method", "POST"), (":path", "/v1"), ("x-a", "1")]),
        false,
    )
    .unwrap();
    stream
}

/// Everything that the guest has said.
pub fn said(vm: &Vm) -> Vec<&str> {
    vm.logs().iter().map(|line| line.message.as_str()).collect()
}
