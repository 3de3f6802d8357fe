//! What the built plugin counts by endpoint, what it leaves when it ends, and what it shows to whom.
//!
//! The artifacts come from `make build`.

use std::sync::OnceLock;

use serde_json::Value;
use warmroute_harness::built;
use warmroute_harness::host::{
    Artifact, Gateway, Passed, Profile, StreamSpec, UpstreamHost, Vm, header, header_map,
};

const PROFILES: [Profile; 2] = [Profile::Envoy, Profile::Higress];
const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello hello hello"}]}"#;

fn artifact(profile: Profile) -> &'static Artifact {
    static BOTH: [OnceLock<Artifact>; 2] = [const { OnceLock::new() }; 2];
    let place = usize::from(profile == Profile::Higress);
    BOTH[place].get_or_init(|| built::artifact(profile).unwrap())
}

/// A configuration of `count` named endpoints, and what `more` adds.
fn configuration(count: usize, more: &str) -> String {
    let endpoints: Vec<_> = (1..=count).map(address).collect();
    format!(r#"{{"endpoints": {{"static": {endpoints:?}}}{more}}}"#)
}

fn address(number: usize) -> String {
    format!("10.0.{}.{}:8000", number / 200, number % 200 + 1)
}

fn start(gateway: &Gateway, configuration: &str) -> Vm {
    let mut vm = Vm::new(artifact(gateway.profile()), gateway).expect("it comes up");
    assert!(vm.start(configuration).expect("no trap"), "{:?}", vm.logs());
    vm
}

/// A gateway whose cluster has the hosts that a configuration names.
fn gateway(profile: Profile, count: usize) -> Gateway {
    let gateway = Gateway::new(profile);
    let hosts = (1..=count).map(|number| UpstreamHost::new(&address(number)));
    gateway.set_hosts("engines", hosts.collect());
    gateway
}

fn spec() -> StreamSpec {
    StreamSpec {
        route: "chat".to_owned(),
        cluster: "engines".to_owned(),
        ..StreamSpec::default()
    }
}

/// A request that stays open; where it went.
fn send(vm: &mut Vm) -> (warmroute_harness::host::StreamId, String) {
    let stream = vm.open_stream(spec()).unwrap();
    let headers = header_map(&[
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "llm.example"),
    ]);
    vm.request_headers(stream, headers, false).unwrap();
    vm.request_body(stream, BODY.as_bytes(), true).unwrap();
    let picked = vm.seen(stream).unwrap().picked.clone();
    let first = picked.expect("steered");
    (
        stream,
        first.split(',').next().unwrap_or_default().to_owned(),
    )
}

fn metric(gateway: &Gateway, name: &str) -> u64 {
    gateway.metrics().get(name).copied().unwrap_or(0)
}

#[test]
fn each_endpoint_has_its_series() {
    for profile in PROFILES {
        let gateway = gateway(profile, 2);
        let mut vm = start(&gateway, &configuration(2, ""));
        let (stream, picked) = send(&mut vm);
        vm.tick().unwrap();
        let series = |name: &str| metric(&gateway, &format!("{name}.endpoint.{picked}"));
        assert_eq!(series("warmroute_endpoint_inflight"), 1);
        assert_eq!(series("warmroute_endpoint_request_total"), 1);
        let failed = header_map(&[(":status", "500")]);
        vm.response_headers(stream, failed, true).unwrap();
        vm.close(stream).unwrap();
        vm.tick().unwrap();
        assert_eq!(series("warmroute_endpoint_inflight"), 0);
        assert_eq!(series("warmroute_endpoint_failure_total"), 1);
        let shown = gateway.metrics();
        let levels = shown
            .keys()
            .filter(|name| name.starts_with("warmroute_endpoint_inflight"));
        assert_eq!(
            levels.count(),
            2,
            "a level that was never above 0 is shown too"
        );
    }
}

#[test]
fn a_process_has_at_most_64_endpoints_series() {
    for profile in PROFILES {
        let gateway = gateway(profile, 100);
        let mut vms = [
            start(&gateway, &configuration(100, "")),
            start(&gateway, &configuration(100, "")),
        ];
        for vm in &mut vms {
            for _ in 0..100 {
                send(vm);
            }
            vm.tick().unwrap();
        }
        let shown = gateway.metrics();
        let prefix = "warmroute_endpoint_inflight.endpoint.";
        let named: Vec<_> = shown
            .keys()
            .filter_map(|name| name.strip_prefix(prefix))
            .collect();
        assert_eq!(named.len(), 65, "{named:?}");
        let rest = metric(&gateway, &format!("{prefix}other"));
        let all: u64 = named
            .iter()
            .map(|name| metric(&gateway, &format!("{prefix}{name}")))
            .sum();
        assert_eq!(all, 200);
        assert!((36..=110).contains(&rest), "{rest}");
    }
}

#[test]
fn what_an_endpoint_that_left_had_counted_is_not_lost() {
    let gateway = gateway(Profile::Higress, 2);
    let mut vm = start(&gateway, "{}");
    let (_, picked) = send(&mut vm);
    gateway.set_hosts("engines", vec![UpstreamHost::new("10.9.9.9:8000")]);
    gateway.advance(1_000);
    let (_, other) = send(&mut vm);
    assert_eq!(other, "10.9.9.9:8000");
    vm.tick().unwrap();
    let requests = format!("warmroute_endpoint_request_total.endpoint.{picked}");
    assert_eq!(metric(&gateway, &requests), 1);
    let inflight = format!("warmroute_endpoint_inflight.endpoint.{picked}");
    assert_eq!(metric(&gateway, &inflight), 0);
}

#[test]
fn levels_go_when_a_configuration_ends_or_is_replaced() {
    for profile in PROFILES {
        let gateway = gateway(profile, 3);
        let mut other = start(&gateway, &configuration(3, ""));
        let mut vm = start(&gateway, &configuration(3, ""));
        send(&mut other);
        other.tick().unwrap();
        let before = gateway.metrics();
        for _ in 0..5 {
            send(&mut vm);
        }
        vm.tick().unwrap();
        assert_eq!(metric(&gateway, "warmroute_inflight"), 6);
        let levels = |shown: std::collections::BTreeMap<String, u64>| -> Vec<_> {
            let is_level = |name: &str| {
                !name.contains("_total") && !name.ends_with("_us") && !name.ends_with("_ms")
            };
            shown
                .into_iter()
                .filter(|(name, level)| is_level(name) && *level > 0)
                .collect()
        };
        assert!(
            vm.configure(&configuration(3, r#", "exchange": "off""#))
                .unwrap()
        );
        assert_eq!(
            levels(gateway.metrics()),
            levels(before.clone()),
            "replaced"
        );
        send(&mut vm);
        vm.tick().unwrap();
        assert_eq!(metric(&gateway, "warmroute_inflight"), 2);
        vm.stop().unwrap();
        assert_eq!(levels(gateway.metrics()), levels(before), "ended");
    }
}

/// What came of a GET: the upstream's side, or the plugin's answer.
fn get(
    vm: &mut Vm,
    path: &str,
    headers: &[(&str, &str)],
    addresses: [&str; 2],
) -> (Passed, Option<(String, String)>) {
    let mut spec = spec();
    let [peer, local] = addresses;
    for (name, value) in [("source.address", peer), ("destination.address", local)] {
        spec.properties
            .insert(name.to_owned(), value.as_bytes().to_vec());
    }
    let stream = vm.open_stream(spec).unwrap();
    let mut all = vec![
        (":method", "GET"),
        (":path", path),
        (":authority", "llm.example"),
    ];
    all.extend(headers);
    vm.request_headers(stream, header_map(&all), true).unwrap();
    let seen = vm.close(stream).unwrap();
    let reply = seen.local_reply.map(|reply| {
        assert_eq!(reply.status, 200);
        let kind = header(&reply.headers, "content-type").unwrap_or_default();
        (
            String::from_utf8_lossy(kind).into_owned(),
            String::from_utf8_lossy(&reply.body).into_owned(),
        )
    });
    (seen.upstream, reply)
}

const LOCAL: [&str; 2] = ["127.0.0.1:41000", "127.0.0.1:10000"];
const REMOTE: [&str; 2] = ["10.1.2.3:41000", "10.0.0.1:10000"];

#[test]
fn the_page_tells_what_the_worker_knows_and_nothing_of_prompts() {
    for profile in PROFILES {
        let gateway = gateway(profile, 2);
        let page = r#", "debug": {"path": "/warmroute"}"#;
        let mut vm = start(&gateway, &configuration(2, page));
        let (_, picked) = send(&mut vm);
        let (upstream, reply) = get(&mut vm, "/warmroute?format=json", &[], LOCAL);
        assert!(upstream.headers.is_none(), "the request goes nowhere");
        let (kind, body) = reply.expect("an answer");
        assert_eq!(kind, "application/json");
        assert!(!body.contains("hello"), "no prompt text: {body}");
        let told: Value = serde_json::from_str(&body).expect("JSON");
        let cluster = &told["clusters"][0];
        assert_eq!(cluster["cluster"], "engines");
        assert_eq!(cluster["index"]["pairs"], cluster["index"]["blocks"]);
        let endpoints = cluster["endpoints"].as_array().unwrap();
        assert_eq!(endpoints.len(), 2);
        for endpoint in endpoints {
            let is_picked = endpoint["endpoint"] == picked.as_str();
            assert_eq!(endpoint["inflight"], u64::from(is_picked));
            assert_eq!(endpoint["health"], "healthy");
            assert_eq!(endpoint["trust"], 1.0);
        }
        let decision = told["decisions"][0]["decision"].as_str().unwrap();
        assert!(
            decision.starts_with(&format!("endpoint={picked};branch=")),
            "{decision}"
        );

        let (_, reply) = get(&mut vm, "/warmroute", &[("accept", "text/html")], LOCAL);
        let (kind, body) = reply.expect("a page");
        assert_eq!(kind, "text/html; charset=utf-8");
        assert!(
            body.contains(&format!(r#""endpoint":"{picked}""#)) && body.ends_with(")</script>")
        );
        assert!(body.len() < 6_000, "{}", body.len());
        for stranger in [
            get(&mut vm, "/warmroute", &[], REMOTE),
            get(&mut vm, "/warmroute", &[], [LOCAL[0], REMOTE[1]]),
            get(
                &mut vm,
                "/warmroute",
                &[("x-forwarded-for", "203.0.113.1")],
                LOCAL,
            ),
            get(&mut vm, "/elsewhere", &[], LOCAL),
        ] {
            let (upstream, reply) = stranger;
            assert!(reply.is_none() && upstream.headers.is_some());
        }
    }
}

#[test]
fn a_wrong_secret_is_like_no_page() {
    for profile in PROFILES {
        let gateway = gateway(profile, 2);
        let page = r#", "debug": {"path": "/warmroute", "secret": "open-sesame", "sampleRate": 1}"#;
        let mut vm = start(&gateway, &configuration(2, page));
        let named = |secret| [("x-warmroute-secret", secret), ("x-kept", "yes")];
        let (_, reply) = get(&mut vm, "/warmroute", &named("open-sesame"), REMOTE);
        assert!(reply.is_some());
        let (upstream, reply) = get(&mut vm, "/warmroute", &named("open-sesamf"), REMOTE);
        assert!(reply.is_none());
        assert_eq!(upstream.header("x-kept").as_deref(), Some("yes"));
        let (_, reply) = get(&mut vm, "/warmroute", &[], LOCAL);
        assert!(reply.is_none(), "a secret is asked of everybody");
        send(&mut vm);
        let said: Vec<_> = vm.logs().iter().map(|line| &*line.message).collect();
        assert!(!said.is_empty() && !said.join("\n").contains("sesame"));

        // Neither does a refused configuration show it.
        let typo = configuration(2, r#", "debug": {"path": "/p", "secret": "open sesame"}"#);
        assert!(!vm.configure(&typo).unwrap());
        let said: Vec<_> = vm.logs().iter().map(|line| &*line.message).collect();
        assert!(said.join("\n").contains("debug.secret: not allowed"));
        assert!(!said.join("\n").contains("open sesame"));
    }
}

#[test]
fn without_the_key_there_is_no_page() {
    for profile in PROFILES {
        let gateway = gateway(profile, 2);
        let mut vm = start(&gateway, &configuration(2, ""));
        let (upstream, reply) = get(&mut vm, "/warmroute", &[], LOCAL);
        assert!(reply.is_none() && upstream.headers.is_some());
    }
}
