//! What a VM of the built plugin leaves to the one that comes after it. Needs `make build`.
//!
//! A rebuild as Higress does it: the old VM asked for it, a fresh one is made and gets the next streams; the
//! old one ends with its last stream.

use std::sync::OnceLock;

use serde_json::Value;
use warmroute_harness::built;
use warmroute_harness::host::{
    Artifact, Gateway, Options, Profile, StreamId, StreamSpec, UpstreamHost, Vm, header_map,
};

const CLUSTER: &str = "outbound|80||engines";
const HOSTS: [&str; 4] = [
    "10.0.0.1:8000",
    "10.0.0.2:8000",
    "10.0.0.3:8000",
    "10.0.0.4:8000",
];
const BLOCK_BYTES: usize = 256;
/// From one byte on: at the first tick.
const REBUILT: &str = r#", "limits": {"vmRebuildThresholdBytes": 1}"#;
const TICK_MS: u64 = 500;

fn artifact(profile: Profile) -> &'static Artifact {
    static BOTH: [OnceLock<Artifact>; 2] = [const { OnceLock::new() }; 2];
    let place = usize::from(profile == Profile::Higress);
    BOTH[place].get_or_init(|| built::artifact(profile).unwrap())
}

fn configuration(exchange: bool, more: &str) -> String {
    format!(r#"{{"exchange": {exchange}, "debug": {{"header": true, "path": "/debug"}}{more}}}"#)
}

fn gateway() -> Gateway {
    let gateway = Gateway::new(Profile::Higress);
    let hosts = HOSTS.map(UpstreamHost::new).to_vec();
    gateway.set_hosts(CLUSTER, hosts);
    gateway
}

fn start(gateway: &Gateway, configuration: &str) -> Vm {
    let mut vm = Vm::new(artifact(gateway.profile()), gateway).expect("it comes up");
    assert!(vm.start(configuration).expect("no trap"), "{:?}", vm.logs());
    vm
}

/// A prompt of its own.
fn prompt(number: usize, bytes: usize) -> String {
    let word = format!("{number:07} ");
    word.repeat(bytes / word.len())
}

fn ask(vm: &mut Vm, prompt: &str) -> StreamId {
    let spec = StreamSpec {
        cluster: CLUSTER.to_owned(),
        ..StreamSpec::default()
    };
    let stream = vm.open_stream(spec).unwrap();
    let headers = header_map(&[
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "llm.example"),
    ]);
    vm.request_headers(stream, headers, false).unwrap();
    let body = format!(
        r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
    );
    vm.request_body(stream, body.as_bytes(), true).unwrap();
    stream
}

/// How a request went.
#[derive(Debug)]
struct Went {
    endpoint: String,
    matched_blocks: usize,
    instructions: u64,
}

/// Answers a request `took_ms` after it was sent, and ends it.
fn answer(vm: &mut Vm, gateway: &Gateway, stream: StreamId, took_ms: u64) -> Went {
    let seen = vm.seen(stream).unwrap();
    let (instructions, picked) = (seen.fuel, seen.picked.as_deref());
    let first = picked.and_then(|list| list.split(',').next());
    let endpoint = first.expect("steered").to_owned();
    vm.update_spec(stream, |spec| {
        spec.upstream_address = Some(endpoint.clone());
    });
    let headers = header_map(&[(":status", "200"), ("content-type", "text/event-stream")]);
    vm.response_headers(stream, headers, false).unwrap();
    gateway.advance(took_ms);
    let token = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    vm.response_body(stream, token, false).unwrap();
    vm.response_body(stream, b"data: [DONE]\n\n", true).unwrap();
    let seen = vm.close(stream).unwrap();
    let note = seen.downstream.header("x-warmroute-decision").unwrap();
    let blocks = note.split_once("blocks=").unwrap().1;
    Went {
        endpoint,
        matched_blocks: blocks.split_once('/').unwrap().0.parse().unwrap(),
        instructions,
    }
}

fn send(vm: &mut Vm, gateway: &Gateway, prompt: &str) -> Went {
    let stream = ask(vm, prompt);
    answer(vm, gateway, stream, 1)
}

/// Time until the plugin's next tick passes.
fn tick(vm: &mut Vm) -> u64 {
    vm.advance(TICK_MS).unwrap();
    vm.fuel()["proxy_on_tick"].last
}

fn level(gateway: &Gateway, name: &str) -> u64 {
    gateway.metrics().get(name).copied().unwrap_or(0)
}

#[test]
fn a_conversation_is_known_after_a_rebuild() {
    for (exchange, asks) in [(false, true), (true, true), (false, false), (true, false)] {
        let gateway = gateway();
        let configuration = configuration(exchange, if asks { REBUILT } else { "" });
        let mut old = start(&gateway, &configuration);
        let first = prompt(0, 40 * BLOCK_BYTES);
        let before = send(&mut old, &gateway, &first);
        // More than the log of an exchange can hold.
        for number in 1..=80 {
            send(&mut old, &gateway, &prompt(number, 128 * BLOCK_BYTES));
        }
        assert!(!old.rebuild_requested());
        let open = ask(&mut old, &prompt(81, 128 * BLOCK_BYTES));
        tick(&mut old);
        assert_eq!(old.rebuild_requested(), asks);

        let mut fresh = start(&gateway, &configuration);
        let other = send(&mut fresh, &gateway, &prompt(500, 10 * BLOCK_BYTES));
        assert_eq!(other.matched_blocks, 0);
        tick(&mut fresh);
        let after = send(&mut fresh, &gateway, &first);
        if asks {
            assert_eq!(after.endpoint, before.endpoint);
            assert!(after.matched_blocks >= 40, "{after:?}");
        } else {
            assert_eq!(after.matched_blocks, 0, "nobody else tells");
        }

        // What was still open ends where it began.
        answer(&mut old, &gateway, open, 1);
        old.stop().unwrap();
        drop(old);
        fresh.advance(60_000).unwrap();
        assert_eq!(level(&gateway, "warmroute_inflight"), 0);
        let more = send(&mut fresh, &gateway, &first);
        assert_eq!(more.endpoint, after.endpoint);
    }
}

#[test]
fn a_vm_that_lives_reads_none_of_it_and_neither_does_another_configuration() {
    let gateway = gateway();
    let same = configuration(false, REBUILT);
    let mut old = start(&gateway, &same);
    let mut living = start(&gateway, &same);
    let first = prompt(0, 40 * BLOCK_BYTES);
    send(&mut old, &gateway, &first);
    send(&mut living, &gateway, &prompt(1, 10 * BLOCK_BYTES));
    tick(&mut old);
    tick(&mut living);
    assert!(old.rebuild_requested());
    gateway.advance(TICK_MS);
    assert_eq!(send(&mut living, &gateway, &first).matched_blocks, 0);
    let mut foreign = start(&gateway, &configuration(false, ""));
    assert_eq!(send(&mut foreign, &gateway, &first).matched_blocks, 0);
}

#[test]
fn what_was_left_long_ago_counts_as_nothing() {
    for (exchange, ms, is_known) in [
        (false, 200_000, true),
        (false, 400_000, false),
        (true, 200_000, true),
        (true, 400_000, false),
    ] {
        let gateway = gateway();
        let configuration = configuration(exchange, REBUILT);
        let mut old = start(&gateway, &configuration);
        let first = prompt(0, 40 * BLOCK_BYTES);
        send(&mut old, &gateway, &first);
        tick(&mut old);
        old.stop().unwrap();
        gateway.advance(ms);
        let mut fresh = start(&gateway, &configuration);
        let after = send(&mut fresh, &gateway, &first);
        assert_eq!(
            after.matched_blocks >= 40,
            is_known,
            "exchange {exchange}, {ms} ms: {after:?}"
        );
        if !is_known {
            let pairs = level(&gateway, "warmroute_index_pairs");
            tick(&mut fresh);
            assert_eq!(pairs, 0, "the level of the old one is gone");
            assert_eq!(level(&gateway, "warmroute_index_pairs"), 40);
        }
    }
}

#[test]
fn who_waits_long_for_its_rebuild_leaves_what_it_knows_all_the_same() {
    let gateway = gateway();
    let configuration = configuration(false, REBUILT);
    let mut old = start(&gateway, &configuration);
    let first = prompt(0, 40 * BLOCK_BYTES);
    send(&mut old, &gateway, &first);
    old.advance(400_000).unwrap();
    let mut fresh = start(&gateway, &configuration);
    let after = send(&mut fresh, &gateway, &first);
    assert!(after.matched_blocks >= 40, "{after:?}");
}

#[test]
fn taking_over_never_stalls_a_worker() {
    /// Some three milliseconds.
    const BOUND: u64 = 10_000_000;
    /// What is left at most.
    const PAIRS: u64 = 64 * 1024;
    let gateway = gateway();
    let capacity = r#", "index": {"capacityTokens": 10000000}"#;
    let configuration = configuration(false, &format!("{REBUILT}{capacity}"));
    let mut old = start(&gateway, &configuration);
    for number in 0..48 {
        send(&mut old, &gateway, &prompt(number, 2_048 * BLOCK_BYTES));
    }
    let leaving = tick(&mut old);
    let known = level(&gateway, "warmroute_index_pairs");
    assert!(known > PAIRS * 5 / 4, "{known}");
    old.stop().unwrap();

    let mut fresh = start(&gateway, &configuration);
    let first = send(&mut fresh, &gateway, &prompt(500, 10 * BLOCK_BYTES));
    let (mut ticks, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        ticks.push(tick(&mut fresh));
        pairs.push(level(&gateway, "warmroute_index_pairs"));
    }
    println!("leaving {leaving}, first {first:?}, then {ticks:?}; pairs {pairs:?}");
    assert!(
        pairs
            .last()
            .is_some_and(|last| (PAIRS * 99 / 100..PAIRS + 20).contains(last))
    );
    let newest = send(&mut fresh, &gateway, &prompt(47, 2_048 * BLOCK_BYTES));
    assert!(newest.matched_blocks >= 2_048, "{newest:?}");
    let work = ticks.iter().chain([&leaving, &first.instructions]);
    assert_eq!(work.max().filter(|most| **most > BOUND), None);
}

/// What the page says of each endpoint's prefill rate.
fn rates(vm: &mut Vm) -> Vec<Option<f64>> {
    let mut spec = StreamSpec {
        cluster: CLUSTER.to_owned(),
        ..StreamSpec::default()
    };
    for name in ["source.address", "destination.address"] {
        let local = b"127.0.0.1:10000".to_vec();
        spec.properties.insert(name.to_owned(), local);
    }
    let stream = vm.open_stream(spec).unwrap();
    let headers = [
        (":method", "GET"),
        (":path", "/debug?format=json"),
        (":authority", "llm.example"),
    ];
    vm.request_headers(stream, header_map(&headers), true)
        .unwrap();
    let reply = vm.close(stream).unwrap().local_reply.expect("the page");
    let told: Value = serde_json::from_slice(&reply.body).unwrap();
    let endpoints = told["clusters"][0]["endpoints"].as_array().unwrap();
    endpoints
        .iter()
        .map(|endpoint| endpoint["prefill_tokens_per_ms"].as_f64())
        .collect()
}

#[test]
fn a_vm_that_crashed_is_followed_by_one_that_knows_what_it_had_learned() {
    for profile in [Profile::Envoy, Profile::Higress] {
        // Engines' metrics stay unanswered: no word of them that they are down.
        let options = Options {
            callouts_time_out: false,
            ..Options::new(profile)
        };
        let gateway = Gateway::with_options(profile, options);
        let hosts = HOSTS.map(UpstreamHost::new).to_vec();
        gateway.set_hosts(CLUSTER, hosts);
        let endpoints = format!(r#", "endpoints": {{"static": {HOSTS:?}}}"#);
        let configuration = configuration(false, &endpoints);
        let mut old = start(&gateway, &configuration);
        for number in 0..8 {
            let stream = ask(&mut old, &prompt(number, 32 * BLOCK_BYTES));
            answer(&mut old, &gateway, stream, 100);
        }
        let learned = rates(&mut old);
        assert!(learned.iter().any(Option::is_some), "{learned:?}");
        old.advance(11_000).unwrap();
        drop(old);

        let mut fresh = start(&gateway, &configuration);
        send(&mut fresh, &gateway, &prompt(500, 10 * BLOCK_BYTES));
        assert_eq!(rates(&mut fresh), learned, "{profile:?}");
        // One that knows less does not take it away.
        let mut bare = start(&gateway, &configuration);
        bare.advance(11_000).unwrap();
        let mut next = start(&gateway, &configuration);
        send(&mut next, &gateway, &prompt(501, 10 * BLOCK_BYTES));
        assert_eq!(rates(&mut next), learned, "{profile:?}");
    }
}
