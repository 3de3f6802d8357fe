//! Requests through a real Envoy that is set up as a control plane would set it up.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use warmroute_lab::client::{Call, Client, Protocol};
use warmroute_lab::engine_sim::{EngineSim, SimOptions};
use warmroute_lab::envoy::{Envoy, EnvoyOptions, Routing, SERVED_HEADER, plugin_configuration};

use crate::place::{ISTIO_CLUSTER, documents, envoy_gateway, istio, of_kind, places, root};

const CHAT: &str = "/v1/chat/completions";
const WARM: &str = "wasmcustom.warmroute_decision_total.branch.prefix";

fn prompt() -> String {
    let system = "You answer questions about the handbook. ".repeat(100);
    json!({"max_tokens": 1, "messages": [{"role": "system", "content": system}]}).to_string()
}

async fn engines() -> (Vec<EngineSim>, EnvoyOptions) {
    let mut sims = Vec::new();
    for _ in 0..3 {
        sims.push(EngineSim::start(SimOptions::default()).await.unwrap());
    }
    let addresses = sims.iter().map(|sim| sim.addr.to_string()).collect();
    (sims, EnvoyOptions::new(addresses, Routing::PickHeader))
}

/// The manifests name a gateway's usual admin port; this Envoy has another.
fn own_admin(mut config: Value) -> Value {
    let address = config["admin"]["address"].clone();
    let clusters = config["static_resources"]["clusters"]
        .as_array_mut()
        .unwrap();
    let admin = clusters
        .iter_mut()
        .find(|cluster| cluster["name"] == "envoy_admin")
        .unwrap();
    admin["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = address;
    config
}

/// Sends the same prompt until the plugin follows it, and looks at where it went.
async fn becomes_warm(envoy: &Envoy) {
    let client = Client::new(Protocol::Http1);
    let (authority, call) = (envoy.authority(), Call::post_json(CHAT, prompt()));
    let mut before = None;
    // Endpoints are known soon after the start; until then Envoy's own balancing chooses.
    for _ in 0..40 {
        let answer = timeout(Duration::from_secs(10), client.send(&authority, &call));
        let answer = answer.await.expect("the body is handed over").unwrap();
        assert_eq!(answer.status, 200);
        let served = answer.header(SERVED_HEADER).map(str::to_owned);
        if envoy.stats().await.unwrap().contains_key(WARM) {
            assert_eq!(
                served, before,
                "a warm request goes where the one before went"
            );
            return;
        }
        before = served;
        sleep(Duration::from_millis(250)).await;
    }
    panic!(
        "never warm: {:?}\n{}",
        envoy.stats().await.unwrap(),
        envoy.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_get_warm_behind_what_envoy_gateway_makes_of_the_policies() {
    let (_sims, options) = engines().await;
    let edit = |config: &mut Value| *config = own_admin(envoy_gateway(config.take()));
    becomes_warm(&Envoy::start_edited(&options, edit).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_get_warm_behind_what_istio_makes_of_the_filter() {
    let (_sims, options) = engines().await;
    let edit = |config: &mut Value| *config = own_admin(istio(config.take()));
    becomes_warm(&Envoy::start_edited(&options, edit).await.unwrap()).await;
}

#[test]
fn the_istio_filter_picks_from_the_cluster_that_it_patches() {
    let documents = documents("envoy/istio/warmroute.yaml");
    let patches = &of_kind(&documents, "EnvoyFilter")["spec"]["configPatches"];
    let config = &patches[0]["patch"]["value"]["typed_config"]["config"]["configuration"]["value"];
    let config: Value = serde_json::from_str(config.as_str().unwrap()).unwrap();
    assert_eq!(config["endpoints"]["admin"]["of"], json!([ISTIO_CLUSTER]));
    let service = patches[3]["match"]["cluster"]["service"].as_str().unwrap();
    assert!(ISTIO_CLUSTER.ends_with(&format!("||{service}")));
}

/// Why the first patch is a must, and a WasmPlugin will not do.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_a_request_with_a_body_hangs() {
    let (_sims, options) = engines().await;
    let edit = |config: &mut Value| {
        *config = own_admin(envoy_gateway(config.take()));
        for plugin in places(
            config,
            "..http_filters[?(@.name =~ 'wasm')].typed_config.config",
        ) {
            plugin["allow_on_headers_stop_iteration"] = json!(false);
        }
    };
    let envoy = Envoy::start_edited(&options, edit).await.unwrap();
    let client = Client::new(Protocol::Http1);
    let (authority, call) = (envoy.authority(), Call::post_json(CHAT, prompt()));
    assert!(
        timeout(Duration::from_secs(2), client.send(&authority, &call))
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_and_branches_are_labels_and_histograms_have_their_series() {
    let sim = EngineSim::start(SimOptions::default()).await.unwrap();
    let routing = Routing::Warmroute {
        wasm: root().join("dist/warmroute-envoy.wasm"),
        configuration: plugin_configuration().unwrap(),
    };
    let envoy = Envoy::start(&EnvoyOptions::new(vec![sim.addr.to_string()], routing))
        .await
        .unwrap();
    let client = Client::new(Protocol::Http1);
    let body = r#"{"messages":[{"role":"user","content":"hello"}],"max_tokens":1,"stream":true}"#;
    let wanted = [
        r#"warmroute_fallback_total{reason="no_body"} "#,
        r#"warmroute_decision_total{branch=""#,
        "warmroute_request_total{} ",
        "warmroute_ttft_ms_bucket{le=",
        "warmroute_ttft_ms_sum{} ",
        "warmroute_ttft_ms_count{} ",
    ];
    let mut metrics = String::new();
    // Endpoints are known soon after the start, histograms show at Envoy's next flush of them.
    for _ in 0..40 {
        for call in [
            Call::get("/v1/models"),
            Call::post_json("/v1/chat/completions", body),
        ] {
            client.send(&envoy.authority(), &call).await.unwrap();
        }
        metrics = envoy.admin("/stats/prometheus").await.unwrap();
        if wanted.iter().all(|series| metrics.contains(series)) {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
    let ours: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("warmroute_"))
        .collect();
    panic!("{wanted:?} are not all in:\n{}", ours.join("\n"));
}
