//! What passes between the plugin and those around it on a real Envoy: a request's own profile, the
//! endpoint that computes its prompt, the pick as metadata, the access log.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warmroute_lab::client::{Answer, Call};
use warmroute_lab::engine_sim::{EngineSim, Faults};
use warmroute_lab::envoy::plugin_configuration;
use warmroute_lab::stage::{
    CHAT, Decision, Stage, addresses, arrivals, chat, numbered, served_by, sims, swift, text, until,
};

const PROFILE: &str = "x-warmroute-profile";
const PREFILL: &str = "x-prefiller-host-port";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

fn body(seed: u64) -> String {
    chat(&text(seed, 6000), &[text(seed + 1, 300)])
}

/// Sends a call; its answer, where it arrived, and what it had of a header there.
async fn arrived(
    stage: &Stage,
    sims: &[EngineSim],
    call: Call,
    header: &str,
) -> (Answer, usize, Option<String>) {
    let sent = numbered(call);
    let answer = stage.send_by(&stage.fresh, &sent.call).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut arrivals = arrivals(sims, &sent.number);
    assert_eq!(arrivals.len(), 1);
    let (place, entry) = arrivals.remove(0);
    let value = entry.header(header).map(str::to_owned);
    (answer, place, value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_chooses_its_profile_among_those_allowed() {
    let sims = sims(2, &swift()).await.unwrap();
    let changes = json!({"profiles": {"allow": ["cost", "balanced"]}});
    let stage = Stage::with(1, addresses(&sims), changes, |_| {})
        .await
        .unwrap();
    stage.ready(2).await.unwrap();
    for (name, is_weighted) in [
        (Some("balanced"), true),
        (Some("cost"), false),
        (Some("default"), false),
        (Some("nonsense"), false),
        (None, false),
    ] {
        let call = Call::post_json(CHAT, body(1));
        let call = match name {
            Some(name) => call.header(PROFILE, name),
            None => call,
        };
        let (answer, _, seen) = arrived(&stage, &sims, call, PROFILE).await;
        let decision = Decision::of(&answer).unwrap();
        assert_eq!(decision.branch == "weighted", is_weighted, "{name:?}");
        assert_eq!(seen, None, "engines do not see it");
    }
    let ignored = stage.count("warmroute_ignored_profile_total").await;
    assert_eq!(ignored.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_unknown_prompts_are_computed_by_a_prefill_endpoint() {
    let sims = sims(4, &swift()).await.unwrap();
    let all = addresses(&sims);
    let (decode, prefill) = (&all[..2], &all[2..]);
    let changes = json!({"disaggregation": {"prefill": prefill, "minUncachedTokens": 500}});
    let stage = Stage::with(1, all.clone(), changes, |_| {}).await.unwrap();
    stage.ready(2).await.unwrap();
    let forged = |call: Call| call.header(PREFILL, "10.6.6.6:1");
    let mut used = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let cold = forged(Call::post_json(CHAT, body(seed * 10)));
        let (answer, place, by) = arrived(&stage, &sims, cold, PREFILL).await;
        assert!(decode.contains(&all[place]), "{}", all[place]);
        let by = by.expect("a prefill endpoint is named");
        assert!(prefill.contains(&by), "{by}");
        used.insert(by);
        let decision = Decision::of(&answer).unwrap();
        assert!(decision.ranking.iter().all(|one| decode.contains(one)));
    }
    assert_eq!(used.len(), 2, "by their load and what they hold");
    for seed in 0..12 {
        // The KV blocks are where the answer was.
        let known = forged(Call::post_json(CHAT, body(seed * 10)));
        let (answer, _, by) = arrived(&stage, &sims, known, PREFILL).await;
        let decision = Decision::of(&answer).unwrap();
        assert_eq!((decision.matched, by), (decision.total, None));
    }
    let short = forged(Call::post_json(CHAT, chat("short", &[])));
    assert_eq!(arrived(&stage, &sims, short, PREFILL).await.2, None);
    assert_eq!(stage.count("warmroute_prefill_total").await.unwrap(), 12);

    // One that fails its health check computes nothing more.
    sims[2].set_faults(Faults {
        draining: true,
        ..Faults::default()
    });
    stage
        .until_stat("cluster.inference.membership_healthy", |count| count == 3)
        .await
        .unwrap();
    let deadline = std::time::Instant::now() + warmroute_lab::stage::PATIENCE;
    let (mut row, mut seed) = (0, 1000);
    while row < 10 {
        assert!(std::time::Instant::now() < deadline);
        seed += 10;
        let cold = Call::post_json(CHAT, body(seed));
        let (_, _, by) = arrived(&stage, &sims, cold, PREFILL).await;
        row = if by.as_deref() == Some(&*all[3]) {
            row + 1
        } else {
            0
        };
    }
    for level in ["warmroute_inflight", "warmroute_backlog_tokens"] {
        stage.until(level, |count| count == 0).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefill_endpoints_are_known_by_their_host_name_or_their_label() {
    for known_by in ["prefill.svc", "prefill-zone"] {
        let sims = sims(3, &swift()).await.unwrap();
        let all = addresses(&sims);
        let mut changes = plugin_configuration().unwrap();
        changes["disaggregation"] = json!({"prefill": [known_by], "minUncachedTokens": 0});
        let stage = Stage::with(1, all.clone(), changes, |bootstrap| {
            let clusters = bootstrap.pointer_mut("/static_resources/clusters").unwrap();
            let cluster = clusters.as_array_mut().unwrap();
            let cluster = cluster.iter_mut().find(|one| one["name"] == "inference");
            let places = cluster.unwrap().pointer_mut("/load_assignment/endpoints");
            let places = places.unwrap().as_array_mut().unwrap();
            let mut host = places[0]["lb_endpoints"].as_array_mut().unwrap().remove(2);
            host["endpoint"]["hostname"] = "prefill.svc".into();
            let locality = json!({"region": "r", "sub_zone": "prefill-zone"});
            places.push(json!({"locality": locality, "lb_endpoints": [host]}));
        })
        .await
        .unwrap();
        stage.ready(2).await.unwrap();
        for seed in 0..4 {
            let cold = Call::post_json(CHAT, body(seed * 10));
            let (_, place, by) = arrived(&stage, &sims, cold, PREFILL).await;
            assert!(place < 2, "{place}");
            assert_eq!(by.as_ref(), Some(&all[2]), "{known_by}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_prefill_header_passes_no_plugin() {
    let sims = sims(1, &swift()).await.unwrap();
    let stage = Stage::start(1, addresses(&sims)).await.unwrap();
    for path in [CHAT, "/v1/files"] {
        let call = Call::post_json(path, body(1)).header(PREFILL, "10.6.6.6:1");
        let sent = numbered(call);
        stage.send(&sent.call).await.unwrap();
        let arrivals = arrivals(&sims, &sent.number);
        assert_eq!(arrivals[0].1.header(PREFILL), None, "{path}");
    }
}

/// A file for a test's access log, not there yet.
fn log_file(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

fn file_logger(path: &Path, format: &Value) -> Value {
    json!([{"name": "file", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
        "path": path, "log_format": format,
    }}])
}

/// The log's lines with `part` in them, when there are so many; Envoy writes every ten seconds.
async fn lines(path: &Path, part: &str, count: usize) -> Vec<String> {
    let read = || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    until("the access log is written", || read().len() >= count)
        .await
        .unwrap();
    read()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_access_log_tells_what_was_decided() {
    let sims = sims(2, &swift()).await.unwrap();
    let shipped = std::fs::read_to_string(warmroute_lab::tree_root().join("envoy/envoy.yaml"));
    let shipped: Value = serde_saphyr::from_str(&shipped.unwrap()).unwrap();
    let format = shipped
        .pointer(&format!("{MANAGER}/access_log/0/typed_config/log_format"))
        .unwrap();
    let path = log_file("access.log");
    let stage = Stage::with(1, addresses(&sims), json!({}), |bootstrap| {
        bootstrap.pointer_mut(MANAGER).unwrap()["access_log"] = file_logger(&path, format);
    })
    .await
    .unwrap();
    stage.ready(2).await.unwrap();
    let call = Call::post_json(&format!("{CHAT}?marked"), body(1));
    let cold = Decision::of(&stage.send(&call).await.unwrap()).unwrap();
    let warm = Decision::of(&stage.send(&call).await.unwrap()).unwrap();
    let models = Call::get("/v1/models?marked");
    stage.send(&models).await.unwrap();
    let log = lines(&path, "?marked", 3).await;
    let decisions: Vec<&str> = log
        .iter()
        .map(|line| line.rsplit_once("decision=").unwrap().1)
        .collect();
    assert_eq!(decisions.len(), 3, "{log:#?}");
    let said = |decision: &Decision| {
        format!(
            "endpoint={};branch={};blocks={}/{};tokens=",
            decision.endpoint, decision.branch, decision.matched, decision.total
        )
    };
    assert!(decisions[0].starts_with(&said(&cold)), "{decisions:?}");
    assert!(decisions[1].starts_with(&said(&warm)), "{decisions:?}");
    assert_eq!(decisions[2], "fallback=no_body");
}

/// Puts Envoy's own header_to_metadata behind the plugin: the pick's twin in `envoy.lb`. The cluster then
/// goes by the metadata alone.
fn twin(bootstrap: &mut Value) {
    let key = "x-gateway-destination-endpoint";
    let filters = bootstrap
        .pointer_mut(&format!("{MANAGER}/http_filters"))
        .unwrap();
    let filters = filters.as_array_mut().unwrap();
    filters.insert(1, json!({"name": "twin", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "request_rules": [{"header": key, "on_header_present": {
            "metadata_namespace": "envoy.lb", "key": key, "type": "STRING",
        }}],
    }}));
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").unwrap();
    let cluster = clusters.as_array_mut().unwrap();
    let cluster = cluster.iter_mut().find(|one| one["name"] == "inference");
    let policy = cluster
        .unwrap()
        .pointer_mut("/load_balancing_policy/policies/0/typed_extension_config/typed_config")
        .unwrap();
    policy["override_host_sources"] =
        json!([{"metadata": {"key": "envoy.lb", "path": [{"key": key}]}}]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pick_has_its_twin_in_metadata_by_a_filter_behind_the_plugin() {
    let sims = sims(4, &swift()).await.unwrap();
    let path = log_file("twin.log");
    let format = json!({"text_format_source": {"inline_string":
        "%REQ(:PATH)% %DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint)%\n"}});
    let stage = Stage::with(1, addresses(&sims), json!({}), |bootstrap| {
        bootstrap.pointer_mut(MANAGER).unwrap()["access_log"] = file_logger(&path, &format);
        twin(bootstrap);
    })
    .await
    .unwrap();
    stage.ready(4).await.unwrap();
    for seed in 0..8 {
        for _ in 0..2 {
            let marked = Call::post_json(&format!("{CHAT}?marked"), body(seed * 10));
            let answer = stage.send(&marked).await.unwrap();
            let decision = Decision::of(&answer).unwrap();
            assert_eq!(served_by(&answer), decision.endpoint, "by metadata alone");
        }
    }
    // The whole list, which a cluster that goes by it tries in its order.
    for line in lines(&path, "?marked", 16).await {
        assert_eq!(line.split(',').count(), 3, "{line}");
    }
}
