//! The scenario format and its harness runner, on a guest that picks by rote.

mod files;

use warmroute_harness::host::Artifact;
use warmroute_harness::scenario::{
    Body, Difference, GatewayKind, Outcome, Run, Scenario, check, run_in_harness,
};

/// Asks for the body, overrides with a fixed address at its end, counts decisions.
const GUEST: &str = r#"(module
  (import "env" "proxy_set_upstream_override_host" (func $override (param i32 i32) (result i32)))
  (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "10.0.0.2:80")
  (data (i32.const 16) "warmroute_decisions")
  (func (export "proxy_abi_version_0_2_100"))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
    (i32.eqz (call $define (i32.const 0) (i32.const 16) (i32.const 19) (i32.const 100))))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (i32.eq (local.get 1) (i32.const 2)))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (i32.eqz (local.get 2)))
  (func $decide (result i32)
    (drop (call $increment (i32.load (i32.const 100)) (i64.const 1)))
    (call $override (i32.const 0) (i32.const 11)))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (if (local.get 2) (then (drop (call $decide))))
    (i32.eqz (local.get 2)))
  (func (export "proxy_on_request_trailers") (param i32 i32) (result i32) (call $decide)))"#;

const FILE: &str = r#"
name: by rote
levels: {native: {skip: no core in it}, harness: run, envoy: {skip: no Envoy in it}}
hosts: [{address: "10.0.0.1:80"}, {address: "10.0.0.2:80", health: healthy}]
steps:
  - do: {request: {name: one, body: {text: "hello"}, chunks: [2, 1], pick: {to: "10.0.0.2:80"}}}
  - do: {request: {name: two, body: {text: "hello"}, hold_after_bytes: 3, trailers: {a: b}, pick: {same_as: one}}}
  - do: {request: {name: get, method: GET, pick: none}}
  - at_ms: 100
    do: {hosts: [{address: "10.0.0.1:80"}]}
  - do: {finish: two}
  - do: {response: {to: one, headers: {x-a: b}, body: [ok, done], downstream_headers: {x-a: b, x-b: null}}}
expect:
  metrics: {warmroute_decisions: 2}
"#;

fn play(file: &str) -> (Outcome, Vec<Difference>) {
    let scenario = Scenario::parse(file).unwrap();
    let outcome = run_in_harness(&scenario, &Artifact::load(GUEST.as_bytes()).unwrap()).unwrap();
    let differences = check(&scenario, &outcome);
    (outcome, differences)
}

fn places(file: &str) -> Vec<String> {
    play(file)
        .1
        .into_iter()
        .map(|difference| difference.place)
        .collect()
}

#[test]
fn picks_bodies_and_counters_are_observed() {
    let (outcome, differences) = play(FILE);
    // Host 2 left before the second request was whole.
    assert_eq!(
        differences
            .iter()
            .map(|found| found.place.as_str())
            .collect::<Vec<_>>(),
        ["two: pick"]
    );
    assert!(outcome.errors.is_empty());
    assert_eq!(
        outcome.requests["one"].picked.as_deref(),
        Some("10.0.0.2:80")
    );
}

#[test]
fn each_kind_of_expectation_can_fail() {
    let stays = FILE.replace(r#"{hosts: [{address: "10.0.0.1:80"}]}"#, "wait");
    assert_eq!(places(&stays), [""; 0]);
    let cases = [
        (
            r#"{to: "10.0.0.2:80"}"#,
            r#"{to: "10.0.0.1:80"}"#,
            "one: pick",
        ),
        ("pick: none", "pick: any", "get: pick"),
        (
            "warmroute_decisions: 2",
            "warmroute_decisions: 3",
            "metric warmroute_decisions",
        ),
        ("x-a: b, x-b: null", "x-a: null", "one: response header x-a"),
        (
            "name: get,",
            "name: get, upstream_headers: {':method': POST},",
            "get: request header :method",
        ),
        (
            "name: get,",
            "name: get, local_reply: 503,",
            "get: local reply",
        ),
        ("name: get,", "name: get, hangs: true,", "get: hangs"),
        ("{finish: two}", "{finish: three}", "run"),
        (
            "expect:",
            "expect:\n  config_refused: true",
            "configuration accepted",
        ),
    ];
    for (from, to, place) in cases {
        let changed = stays.replacen(from, to, 1);
        assert_ne!(changed, stays);
        assert!(
            places(&changed).iter().any(|found| found == place),
            "{to}: {:?}",
            places(&changed)
        );
    }
}

#[test]
fn a_refused_configuration_plays_no_step() {
    let refused = FILE
        .replace("steps:", "config: {a: 1}\nsteps:")
        .replace("expect:", "expect:\n  config_refused: true");
    let (outcome, differences) = play(&refused);
    assert!(!outcome.accepted && outcome.requests.is_empty());
    assert_eq!(differences.len(), 1, "the counter: {differences:?}");
}

#[test]
fn an_unknown_field_is_an_error_with_its_name() {
    let error = Scenario::parse(&FILE.replace("hold_after_bytes", "hold_after")).unwrap_err();
    assert!(error.to_string().contains("hold_after"), "{error}");
}

#[test]
fn every_file_parses_and_says_why_it_skips() {
    let files = warmroute_harness::scenario::files().unwrap();
    assert!(files.len() >= 60);
    for (name, text) in files {
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for level in [
            &scenario.levels.native,
            &scenario.levels.harness,
            &scenario.levels.envoy,
        ] {
            assert!(
                !matches!(level, Run::Skip(reason) if reason.trim().is_empty()),
                "{name}"
            );
        }
    }
}

#[test]
fn generated_conversations_share_exactly_their_common_turns() {
    let body = |file: &str| {
        let body: Body = serde_saphyr::from_str(file).unwrap();
        String::from_utf8(body.bytes()).unwrap()
    };
    let chat = |more: &str| {
        body(&format!(
            "{{chat: {{model: m, messages: [{{role: user, text: 'a ', words: 2, seed: 7}}{more}]}}}}"
        ))
    };
    let (one, two) = (chat(""), chat(", {role: user, words: 1, seed: 8}"));
    let common = one.strip_suffix(r#"],"model":"m"}"#).unwrap();
    assert!(
        common.ends_with(r#""content":"a w7-0 w7-1","role":"user"}"#),
        "{one}"
    );
    assert!(two.starts_with(common) && two.contains("w8-0"), "{two}");
    assert_eq!(body("{json: {b: [1]}}"), r#"{"b":[1]}"#);
}

/// Lists two endpoints in Envoy's pick header; counts answers of the first.
const LISTS: &str = r#"(module
  (import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_property" (func $property (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "x-gateway-destination-endpoint")
  (data (i32.const 32) "10.0.0.2:80,10.0.0.1:80")
  (data (i32.const 64) "upstream\00addresslength")
  (func (export "malloc") (param i32) (result i32) (i32.const 4096))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
    (i32.eqz (call $define (i32.const 1) (i32.const 80) (i32.const 6) (i32.const 200))))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (call $replace (i32.const 0) (i32.const 0) (i32.const 30) (i32.const 32) (i32.const 23)))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (drop (call $property (i32.const 64) (i32.const 16) (i32.const 204) (i32.const 208)))
    (call $record (i32.load (i32.const 200)) (i64.load32_u (i32.const 208)))))"#;

#[test]
fn the_first_of_a_list_is_the_pick_and_serves() {
    let file = r#"
name: a list
gateways: [envoy]
levels: {native: {skip: no core in it}, harness: run, envoy: {skip: no Envoy in it}}
steps:
  - do: {request: {name: one, method: GET, pick: {to: "10.0.0.2:80"}}}
  - do: {response: {to: one}}
expect: {metrics: {length: 11}}
"#;
    let scenario = Scenario::parse(file).unwrap();
    assert!(scenario.is_about(GatewayKind::Envoy) && !scenario.is_about(GatewayKind::Higress));
    let outcome = run_in_harness(&scenario, &Artifact::load(LISTS.as_bytes()).unwrap()).unwrap();
    assert_eq!(check(&scenario, &outcome), []);
}
