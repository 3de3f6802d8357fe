//! The finishing of hand-written modules: what is renamed, replaced, dropped and refused.

use warmroute_artifact::{Host, Surface, finish};

/// A module as the linker leaves it: exports of ours, of the SDK and of the linker.
fn linked(extra: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (global (export "__data_end") i32 (i32.const 1024))
            (func (export "proxy_abi_version_0_2_1"))
            (func (export "_initialize"))
            (func (export "malloc") (param i32) (result i32) unreachable)
            (func $sdk (export "proxy_on_http_call_response") unreachable)
            (func (export "proxy_on_grpc_receive") unreachable)
            (func (export "proxy_on_redis_call_response"))
            {extra})"#
    );
    wat::parse_str(text).expect("the module is well-formed")
}

fn surface(module: &[u8], host: Host) -> Surface {
    let finished = finish(module, host).expect("the module can be finished");
    wasmparser::validate(&finished).expect("the finished module is valid");
    Surface::of(&finished).expect("the finished module can be read")
}

fn refusal(module: &[u8], host: Host) -> String {
    format!("{:#}", finish(module, host).expect_err("must be refused"))
}

#[test]
fn each_gateway_gets_its_one_abi_version_and_only_what_it_reads() {
    let envoy = surface(&linked(""), Host::Envoy);
    assert_eq!(
        envoy.exports,
        [
            "func _initialize",
            "func malloc",
            "func proxy_abi_version_0_2_1",
            "func proxy_on_http_call_response",
            "memory memory",
        ]
    );
    let higress = surface(&linked(""), Host::Higress);
    assert_eq!(
        higress.exports,
        [
            "func _initialize",
            "func malloc",
            "func proxy_abi_version_0_2_100",
            "func proxy_on_http_call_response",
            "func proxy_on_redis_call_response",
            "memory memory",
        ]
    );
    assert!(
        higress.imports.is_empty(),
        "nothing calls the import: it is dropped"
    );
}

#[test]
fn a_takeover_replaces_the_function_behind_the_export() {
    let ours =
        r#"(func (export "warmroute_takeover_proxy_on_http_call_response") i32.const 42 drop)"#;
    let module = linked(ours);
    let finished = finish(&module, Host::Envoy).expect("the module can be finished");
    let is_ours = |module: &[u8], name: &str| {
        // `i32.const 42`, as only our function has it.
        body_of(module, name).map(|body| body.windows(2).any(|code| code == [0x41, 42]))
    };
    assert_eq!(is_ours(&module, "proxy_on_http_call_response"), Some(false));
    assert_eq!(
        is_ours(&finished, "proxy_on_http_call_response"),
        Some(true)
    );
    assert_eq!(
        is_ours(&finished, "warmroute_takeover_proxy_on_http_call_response"),
        None
    );
}

#[test]
fn a_takeover_of_nothing_is_refused() {
    let module = linked(r#"(func (export "warmroute_takeover_proxy_on_nothing"))"#);
    assert!(refusal(&module, Host::Envoy).contains("no export proxy_on_nothing to take over"));
}

#[test]
fn an_import_that_the_gateway_lacks_is_refused_by_name() {
    let text = r#"(module
        (import "env" "proxy_get_upstream_hosts" (func (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))
        (func (export "proxy_abi_version_0_2_1")))"#;
    let module = wat::parse_str(text).expect("the module is well-formed");
    let envoy = refusal(&module, Host::Envoy);
    assert!(
        envoy.contains("env.proxy_get_upstream_hosts, wasi_snapshot_preview1.random_get"),
        "{envoy}"
    );
    let higress = refusal(&module, Host::Higress);
    assert!(higress.contains("wasi_snapshot_preview1.random_get"));
    assert!(!higress.contains("proxy_get_upstream_hosts"));
}

#[test]
fn an_imported_memory_is_refused() {
    let text =
        r#"(module (import "env" "memory" (memory 1)) (func (export "proxy_abi_version_0_2_1")))"#;
    let module = wat::parse_str(text).expect("the module is well-formed");
    assert!(refusal(&module, Host::Envoy).contains("env.memory"));
}

#[test]
fn the_abi_version_must_be_there_once() {
    let none = wat::parse_str(r#"(module (func (export "_initialize")))"#).expect("well-formed");
    assert!(refusal(&none, Host::Envoy).contains("found []"));
    let two = linked(r#"(func (export "proxy_abi_version_0_2_100"))"#);
    assert!(refusal(&two, Host::Higress).contains("no other ABI version"));
    let nothing = wat::parse_str("(module)").expect("well-formed");
    assert!(refusal(&nothing, Host::Envoy).contains("exports nothing"));
    assert!(refusal(b"not wasm", Host::Envoy).contains("no wasm module"));
}

#[test]
fn a_module_without_an_allocator_is_refused() {
    let text = r#"(module (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_1"))
        (func (export "_initialize")))"#;
    let module = wat::parse_str(text).expect("the module is well-formed");
    assert!(refusal(&module, Host::Envoy).contains("does not export malloc"));
}

#[test]
fn custom_sections_go_but_the_target_features_stay() {
    let module = linked(
        r#"(@custom "producers" "x") (@custom "target_features" "\01+\07simd128") (@custom "name" "")"#,
    );
    let finished = finish(&module, Host::Envoy).expect("the module can be finished");
    let customs: Vec<String> = wasmparser::Parser::new(0)
        .parse_all(&finished)
        .filter_map(|payload| match payload {
            Ok(wasmparser::Payload::CustomSection(section)) => Some(section.name().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(customs, ["target_features"]);
}

/// The body of an exported function.
fn body_of(module: &[u8], name: &str) -> Option<Vec<u8>> {
    let (mut imported, mut index, mut bodies) = (0, None, Vec::new());
    for payload in wasmparser::Parser::new(0).parse_all(module) {
        match payload.expect("a valid module") {
            wasmparser::Payload::ImportSection(section) => {
                imported = section.into_imports().count();
            }
            wasmparser::Payload::ExportSection(section) => {
                let mut exports = section.into_iter().filter_map(Result::ok);
                index = exports
                    .find(|export| export.name == name)
                    .map(|export| export.index as usize);
            }
            wasmparser::Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes().to_vec()),
            _ => {}
        }
    }
    bodies.into_iter().nth(index? - imported)
}
