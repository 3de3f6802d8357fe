//! What one sees of the plugin on a real Envoy: series by endpoint with their labels, and its page.

use serde_json::{Value, json};
use warmroute_lab::client::Call;
use warmroute_lab::engine_sim::SimOptions;
use warmroute_lab::stage::{CHAT, Decision, Stage, addresses, chat, sims, text};

const SECRET: &str = "open-sesame";

fn call(seed: u64) -> Call {
    Call::post_json(CHAT, chat(&text(seed, 3000), &[text(seed + 1, 300)]))
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_gets_endpoints_as_labels() {
    let sims = sims(2, &SimOptions::default()).await.unwrap();
    let stage = Stage::start(2, addresses(&sims)).await.unwrap();
    let mut sent = [0, 0];
    for seed in 0..6 {
        let answer = stage.send(&call(seed * 10)).await.unwrap();
        let decision = Decision::of(&answer).expect("steered");
        let place = sims
            .iter()
            .position(|sim| sim.addr.to_string() == decision.endpoint);
        sent[place.expect("one of ours")] += 1;
    }
    // More than ours: those by which the stage saw that the plugin is ready.
    stage
        .until("warmroute_endpoint_request_total", |count| count >= 6)
        .await
        .unwrap();
    stage
        .until("warmroute_endpoint_inflight", |level| level == 0)
        .await
        .unwrap();
    let shown = stage.envoy.admin("/stats/prometheus").await.unwrap();
    let value = |name: &str, endpoint: &str| -> Option<u64> {
        let series = format!("{name}{{endpoint=\"{endpoint}\"}} ");
        let line = shown.lines().find_map(|line| line.strip_prefix(&series))?;
        line.parse().ok()
    };
    for (sim, sent) in sims.iter().zip(sent) {
        let endpoint = sim.addr.to_string();
        let requests = value("warmroute_endpoint_request_total", &endpoint);
        assert!(requests.unwrap_or(0) >= sent, "{endpoint} in\n{shown}");
        let inflight = value("warmroute_endpoint_inflight", &endpoint);
        assert_eq!(inflight, Some(0), "{endpoint} in\n{shown}");
    }
    assert!(shown.contains("# TYPE warmroute_endpoint_request_total counter\n"));
    assert!(shown.contains("# TYPE warmroute_endpoint_inflight gauge\n"));
    assert!(shown.contains("warmroute_decision_total{branch=\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_for_this_machine() {
    let sims = sims(2, &SimOptions::default()).await.unwrap();
    let debug = json!({"debug": {"header": true, "path": "/warmroute"}});
    let stage = Stage::with(1, addresses(&sims), debug, |_| {})
        .await
        .unwrap();
    stage.ready(2).await.unwrap();
    let answer = stage.send(&call(1)).await.unwrap();
    let picked = Decision::of(&answer).expect("steered").endpoint;

    let asked: usize = sims.iter().map(|sim| sim.log().len()).sum();
    for client in [&stage.http1, &stage.h2] {
        let answer = stage
            .send_by(client, &Call::get("/warmroute?format=json"))
            .await
            .unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let told: Value = answer.json().unwrap();
        let clusters = told["clusters"].as_array().unwrap();
        let cluster = clusters.iter().find(|one| one["cluster"] == "inference");
        let endpoints = cluster.unwrap()["endpoints"].as_array().unwrap();
        assert_eq!(endpoints.len(), 2);
        assert!(endpoints.iter().all(|one| one["load_age_ms"].is_number()));
        let decision = told["decisions"][0]["decision"].as_str().unwrap();
        assert!(
            decision.starts_with(&format!("endpoint={picked};")),
            "{decision}"
        );
    }
    let answer = stage.send(&Call::get("/warmroute")).await.unwrap();
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/html"), "{answer:?}");
    let after: usize = sims.iter().map(|sim| sim.log().len()).sum();
    assert_eq!(asked, after, "no engine got any of it");

    // Whom this Envoy takes for a stranger, and who says to be forwarded by one.
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-for", "127.0.0.1, 203.0.113.7"),
        ("forwarded", "for=203.0.113.7"),
    ] {
        let call = Call::get("/warmroute").header(name, value);
        let answer = stage.send(&call).await.unwrap();
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(!kind.starts_with("text/html"), "{name}: {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_reaches_the_engine() {
    let sims = sims(1, &SimOptions::default()).await.unwrap();
    let debug =
        json!({"debug": {"header": true, "path": "/warmroute", "secret": SECRET, "sampleRate": 1}});
    let stage = Stage::with(1, addresses(&sims), debug, |_| {})
        .await
        .unwrap();
    stage.ready(1).await.unwrap();
    let right = Call::get("/warmroute?format=json").header("x-warmroute-secret", SECRET);
    let stranger = right.clone().header("x-forwarded-for", "203.0.113.7");
    for call in [right, stranger] {
        let answer = stage.send(&call).await.unwrap();
        assert!(answer.json().is_ok_and(|told| told["worker"].is_number()));
    }
    for secret in ["open-sesamf", "", "x"] {
        let call = Call::get("/warmroute?format=json").header("x-warmroute-secret", secret);
        let answer = stage.send(&call).await.unwrap();
        let told = answer.json().unwrap_or_default();
        assert!(told["worker"].is_null(), "{told}");
        assert_eq!(answer.status, 404, "the engine's own answer");
    }
    assert!(!stage.envoy.log().contains(SECRET));
}
