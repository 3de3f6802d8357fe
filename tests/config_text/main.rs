//! Text to configuration: what each key means, where its range ends, and what no text may do.

mod bounds;

use std::time::Duration;

use bounds::with;
use serde_json::json;
use warmroute::config::{
    CharClass, Config, DebugPage, EndpointSource, IgnorePattern, Plugin, Profile, Secret,
    SessionMode, StaticEndpoint, ToolMode, Weights,
};

fn parse(text: &str) -> Config {
    let plugin = Plugin::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    plugin.global.expect("a global part")
}

fn refused(text: &str) -> String {
    Plugin::parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn nothing_means_on_with_defaults() {
    for text in ["", "  \n", "{}", " {} "] {
        assert_eq!(parse(text), Config::default(), "{text:?}");
    }
}

#[test]
fn profiles() {
    let weighted = |weights: Weights| Profile::Weighted(weights);
    assert_eq!(parse(r#"{"profile":"cost"}"#).pick.profile, Profile::Cost);
    for text in [
        r#"{"profile":"default"}"#,
        r#"{"profile":"balanced"}"#,
        r#"{"weights":{}}"#,
    ] {
        assert_eq!(
            parse(text).pick.profile,
            weighted(Weights::default()),
            "{text}"
        );
    }
    for text in [
        r#"{"profile":""}"#,
        r#"{"profile":null}"#,
        r#"{"picker":{"mode":""}}"#,
    ] {
        assert_eq!(parse(text), Config::default(), "{text}");
    }
    let text = r#"{"weights":{"queue":1,"kvCache":0.5,"prefixCache":4,"loraAffinity":5,"inflight":6,
        "failure":7},"feedback":{"ewmaAlpha":0.9}}"#;
    let own = Weights {
        queue: 1.0,
        kv_cache: 0.5,
        prefix_cache: 4.0,
        lora_affinity: 5.0,
        inflight: 6.0,
        failure: 7.0,
        failure_ewma_alpha: 0.9,
    };
    assert_eq!(parse(text).pick.profile, weighted(own));
}

#[test]
fn the_weighted_sum_has_the_defaults_of_higress_picker() {
    let config = parse(r#"{"profile":"default"}"#);
    assert_eq!(config.prompt.block_bytes, 4096);
    assert_eq!(config.prompt.max_blocks, 32);
    assert_eq!(config.prompt.tool_mode, ToolMode::Identity);
    assert_eq!(config.prompt.max_body_bytes, 4 << 20);
    assert_eq!(config.index.default_capacity_tokens, 500_000);
    assert_eq!(config.index.max_engine_blocks, 31_250);
    assert_eq!(config.vm_rebuild_threshold_bytes, 200 << 20);
    let cost = Config::default();
    assert_eq!(cost.prompt.tool_mode, ToolMode::Full);
    assert_eq!(
        (cost.prompt.block_bytes, cost.prompt.max_blocks),
        (256, 4096)
    );
    assert_eq!(cost.index.max_engine_blocks, u64::MAX);
}

#[test]
fn blocks_of_a_prompt() {
    let blocks = |text: &str| {
        let prompt = parse(text).prompt;
        (prompt.block_bytes, prompt.max_blocks)
    };
    assert_eq!(blocks(r#"{"prefix":{"blockSizeTokens":64}}"#), (256, 4096));
    assert_eq!(
        blocks(r#"{"prefix":{"blockSizeTokens":1,"maxBlocks":1}}"#),
        (4, 1)
    );
    assert_eq!(
        blocks(r#"{"prefix":{"blockSizeTokens":1024,"maxBlocks":128}}"#),
        (4096, 128)
    );
    // The same 128 x 1024 tokens, in finer blocks.
    assert_eq!(blocks(r#"{"prefix":{"maxBlocks":128}}"#), (256, 2048));
    assert_eq!(
        blocks(r#"{"profile":"default","prefix":{"maxBlocks":128}}"#),
        (4096, 128)
    );
    assert_eq!(
        blocks(r#"{"profile":"default","prefix":{"blockSizeTokens":64}}"#),
        (256, 32)
    );
    assert_eq!(blocks(r#"{"block":{"bytes":512,"max":100}}"#), (512, 100));
    assert_eq!(
        blocks(r#"{"block":{"bytes":512},"prefix":{"maxBlocks":7}}"#),
        (512, 7)
    );
    let index = parse(r#"{"prefix":{"maxCacheBlocksPerEndpoint":1000}}"#).index;
    assert_eq!(
        (index.default_capacity_tokens, index.max_engine_blocks),
        (16_000, 1000)
    );
    let index = parse(r#"{"profile":"default","index":{"capacityTokens":9000}}"#).index;
    assert_eq!(
        (index.default_capacity_tokens, index.max_engine_blocks),
        (9000, u64::MAX)
    );
}

#[test]
fn every_key_reaches_its_place() {
    let config = parse(
        r#"{"picker":{"mode":"max-score","prior":0.1,"tieRatio":0.2,"tieTokens":3,"minMatchTokens":4},
        "cooldown":{"failures":5,"ms":600},"slo":{"ttftMs":7},"prefix":{"toolMode":"none"},
        "prompt":{"ignore":[{"prefix":"cch=","class":"0-9a-f-","max":9}],"isolationHeader":"X-Tenant"},
        "limits":{"maxRequestBodyBytes":10,"vmRebuildThresholdBytes":0},
        "index":{"capacityTokens":1024,"maxPairs":1000,"ttlSeconds":13},
        "metrics":{"refreshMs":140,"staleAfterMs":1500,"path":"/m?x","timeoutMs":160},
        "endpoints":{"admin":{"cluster":"a","of":["b","c"]}},
        "session":{"header":"X-Chat","mode":"strict"},"debug":{"header":true,"sampleRate":0.17,
        "path":"/who","secret":"open-sesame"},
        "fallbackEndpoints":8,"exchange":"off","orca":true}"#,
    );
    let mut want = Config::default();
    want.pick.prior = 0.1;
    want.pick.tie_ratio = 0.2;
    want.pick.tie_tokens = 3;
    want.pick.min_match_tokens = 4;
    want.pick.cooldown_failures = 5;
    want.pick.cooldown = Duration::from_millis(600);
    want.pick.slo_ttft = Some(Duration::from_millis(7));
    want.prompt.tool_mode = ToolMode::None;
    let digits = (b'0'..=b'9')
        .chain(b'a'..=b'f')
        .chain([b'-'])
        .fold(0, |set, byte| set | 1u128 << byte);
    let nonce = IgnorePattern {
        prefix: "cch=".into(),
        class: CharClass(digits),
        max_chars: 9,
    };
    want.prompt.ignore = vec![nonce];
    want.prompt.isolation_header = Some("x-tenant".into());
    want.prompt.max_body_bytes = 10;
    want.vm_rebuild_threshold_bytes = 0;
    want.index.default_capacity_tokens = 1024;
    want.index.max_pairs = 1000;
    want.index.ttl = Duration::from_secs(13);
    want.metrics.refresh = Duration::from_millis(140);
    want.metrics.stale_after = Duration::from_millis(1500);
    want.metrics.path = "/m?x".into();
    want.metrics.timeout = Duration::from_millis(160);
    want.endpoints = EndpointSource::Admin {
        cluster: "a".into(),
        of: vec!["b".into(), "c".into()],
    };
    want.session.header = "x-chat".into();
    want.session.mode = SessionMode::Strict;
    want.debug.header = true;
    want.debug.sample_rate = 0.17;
    want.debug.page = Some(DebugPage {
        path: "/who".into(),
        secret: Some(Secret::new("open-sesame".into())),
    });
    want.fallback_endpoints = 8;
    want.exchange = false;
    want.orca = true;
    assert_eq!(config, want);
}

#[test]
fn sources_of_endpoints() {
    let source = |text: &str| parse(text).endpoints;
    let admin = |of: &[&str]| EndpointSource::Admin {
        cluster: "a".into(),
        of: of.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(
        source(r#"{"endpoints":{"admin":{"cluster":"a"}}}"#),
        admin(&[])
    );
    assert_eq!(
        source(r#"{"endpoints":{"admin":{"cluster":"a","of":"b"}}}"#),
        admin(&["b"])
    );
    assert_eq!(source(r#"{"endpoints":{}}"#), EndpointSource::Gateway);
    assert_eq!(
        source(r#"{"endpoints":{"header":"X-A_b.1"}}"#),
        EndpointSource::Header("x-a_b.1".into())
    );
    // Addresses take the spelling that gateways use, byte for byte.
    let fixed = ["10.0.0.1:80", "[fd00::1]:8000"].map(|address| StaticEndpoint {
        address: address.into(),
    });
    let text = r#"{"endpoints":{"static":["10.0.0.1:80","[FD00:0::0001]:8000"]}}"#;
    assert_eq!(source(text), EndpointSource::Static(fixed.to_vec()));
    for bad in [
        "10.0.0.1:65536",
        "010.0.0.1:80",
        "10.0.0.1:80 ",
        "fd00::1:80",
        "0.0.0.0:80",
        "[fe80::1%1]:80",
    ] {
        assert!(
            refused(&json!({"endpoints":{"static":[bad]}}).to_string()).contains("ip:port"),
            "{bad}"
        );
    }
}

#[test]
fn a_long_text_is_refused_and_the_longest_is_read() {
    let padded = |bytes: usize| format!("{{{}\"orca\":true}}", " ".repeat(bytes - 13));
    assert!(parse(&padded(1 << 20)).orca);
    assert!(refused(&padded((1 << 20) + 1)).contains("1048576 bytes"));
}

#[test]
fn messages_stay_on_one_short_line() {
    let key = "k\n".repeat(50_000);
    for text in [
        json!({key.as_str(): 1}),
        json!({"profile": key}),
        json!({"weights": {key.as_str(): key}}),
    ] {
        let error = refused(&text.to_string());
        assert!(
            error.len() < 700 && !error.contains('\n'),
            "{} bytes",
            error.len()
        );
    }
    let secret = refused(r#"{"copies":{"password":"hunter2"}}"#);
    assert!(
        secret.contains("copies: unknown key") && !secret.contains("hunter2"),
        "{secret}"
    );
    let secret = "hunter2".repeat(20);
    let refusal = refused(&with("replicas.password", json!(secret)));
    assert!(
        refusal.starts_with("replicas.password: ") && !refusal.contains("hunter2"),
        "{refusal}"
    );
    let config = parse(&with("replicas.password", json!("hunter2")));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn no_text_panics() {
    let mut rng = fastrand::Rng::with_seed(7);
    let seeds: Vec<Vec<u8>> = [
        include_str!("../../plugin-config/examples/rules.json"),
        include_str!("../../plugin-config/examples/coding_agents.json"),
        include_str!("../../plugin-config/examples/higress_ai_endpoint_picker.json"),
        include_str!("../../plugin-config/examples/envoy_static.json"),
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    let parts: [&[u8]; 10] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b",",
        b":",
        b"-1e999",
        b"null",
        b"\"_rules_\":[{}]",
    ];
    let (mut read, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut text = match round % 4 {
            0 => (0..rng.usize(..64)).map(|_| rng.u8(..)).collect(),
            _ => seeds[rng.usize(..seeds.len())].clone(),
        };
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..=text.len());
            match rng.u8(..4) {
                0 => text.truncate(at),
                1 if at < text.len() => text[at] = rng.u8(..),
                2 => drop(text.splice(at..at, parts[rng.usize(..parts.len())].iter().copied())),
                _ => drop(text.drain(at..(at + rng.usize(..9)).min(text.len()))),
            }
        }
        match Plugin::parse(&text) {
            Ok(_) => read += 1,
            Err(error) => {
                assert!(
                    !error.reason.is_empty() && !error.remedy.is_empty(),
                    "{error}"
                );
                refused += 1;
            }
        }
    }
    assert!(
        read > 1000 && refused > 1000,
        "{read} read, {refused} refused"
    );
    let deep = "[".repeat(500_000);
    assert!(Plugin::parse(deep.as_bytes()).is_err());
    assert!(Plugin::parse("{\"_rules_\":[".repeat(80_000).as_bytes()).is_err());
}
