//! Where endpoints come from, who may be picked, and what a configuration may say, on a real Envoy.

use serde_json::{Value, json};
use warmroute_lab::client::Call;
use warmroute_lab::engine_sim::EngineSim;
use warmroute_lab::envoy::{Envoy, EnvoyOptions};
use warmroute_lab::stage::{
    CHAT, Decision, Stage, addresses, arrivals, chat, configuration, fallback, numbered, served_by,
    sims, swift, text, through_plugin,
};

const SUBSET: &str = "x-gateway-destination-endpoint-subset";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

fn body(seed: u64) -> String {
    chat(&text(seed, 6000), &[text(seed + 1, 300)])
}

async fn decided(stage: &Stage, call: Call) -> Decision {
    let answer = stage.send_by(&stage.fresh, &call).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let decision = Decision::of(&answer).unwrap_or_else(|| panic!("{:?}", answer.headers));
    assert_eq!(served_by(&answer), decision.endpoint);
    decision
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_subset_may_be_picked() {
    let sims = sims(4, &swift()).await.unwrap();
    let all = addresses(&sims);
    let stage = Stage::start(1, all.clone()).await.unwrap();
    let call = || Call::post_json(CHAT, body(1));
    let free = decided(&stage, call()).await;
    let others: Vec<String> = all
        .iter()
        .filter(|one| **one != free.endpoint)
        .cloned()
        .collect();
    for subset in [others[..1].to_vec(), others[1..].to_vec(), others.clone()] {
        for separator in [",", " , "] {
            let decision = decided(&stage, call().header(SUBSET, &subset.join(separator))).await;
            assert!(subset.contains(&decision.endpoint), "{decision:?}");
            assert!(decision.ranking.iter().all(|named| subset.contains(named)));
        }
    }
    let sent = numbered(call().header(SUBSET, "10.9.8.7:1"));
    let answer = stage.send(&sent.call).await.unwrap();
    assert_eq!(fallback(&answer), Some("none_eligible"));
    assert_eq!(arrivals(&sims, &sent.number).len(), 1);
    // Without the header the warm one is picked as before.
    assert_eq!(decided(&stage, call()).await.matched, free.total);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_a_fixed_list_are_scraped_through_their_cluster() {
    let sims = sims(3, &swift()).await.unwrap();
    // The third is in the cluster, but not in the list.
    let listed = addresses(&sims[..2]);
    let changes = json!({"endpoints": {"static": listed}});
    for workers in [1, 4] {
        let stage = Stage::with(workers, addresses(&sims), changes.clone(), |_| {})
            .await
            .unwrap();
        stage.ready(2).await.unwrap();
        stage
            .until("warmroute_scrape_total", |count| count >= 4)
            .await
            .unwrap();
        assert!(sims[..2].iter().all(|sim| sim.counts().scrapes > 0));
        assert_eq!(sims[2].counts().scrapes, 0);
        let mut used = Vec::new();
        for seed in 0..16 {
            let decision = decided(
                &stage,
                Call::post_json(CHAT, body(seed * 10 + u64::from(workers))),
            )
            .await;
            assert!(listed.contains(&decision.endpoint));
            used.push(decision.endpoint);
        }
        assert!(listed.iter().all(|one| used.contains(one)), "{used:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_come_by_header() {
    let sims = sims(3, &swift()).await.unwrap();
    let all = addresses(&sims);
    let changes = json!({"endpoints": {"header": "x-candidates"}});
    let stage = Stage::with(1, all.clone(), changes, |_| {}).await.unwrap();
    let call = |candidates: &[String]| {
        Call::post_json(CHAT, body(1)).header("x-candidates", &candidates.join(","))
    };
    let first = decided(&stage, call(&all)).await;
    let again = decided(&stage, call(&all)).await;
    assert_eq!(
        (&again.endpoint, again.matched),
        (&first.endpoint, first.total)
    );
    let rest: Vec<String> = all
        .iter()
        .filter(|one| **one != first.endpoint)
        .cloned()
        .collect();
    assert!(rest.contains(&decided(&stage, call(&rest)).await.endpoint));
    let answer = stage.send(&Call::post_json(CHAT, body(1))).await.unwrap();
    assert!(
        fallback(&answer).is_some(),
        "no candidates, no pick: {:?}",
        answer.headers
    );
    assert_eq!(answer.status, 200);
}

/// A second cluster like the first, with other engines, behind `/other/`.
fn second_cluster(bootstrap: &mut Value, engines: &[EngineSim]) {
    let clusters = bootstrap["static_resources"]["clusters"]
        .as_array_mut()
        .unwrap();
    let first = clusters
        .iter()
        .find(|cluster| cluster["name"] == "inference")
        .unwrap();
    let mut other = first.clone();
    other["name"] = "other".into();
    let hosts: Vec<Value> = engines
        .iter()
        .map(|sim| {
            let address = json!({"address": "127.0.0.1", "port_value": sim.addr.port()});
            json!({"endpoint": {"address": {"socket_address": address}}})
        })
        .collect();
    other["load_assignment"] =
        json!({"cluster_name": "other", "endpoints": [{"lb_endpoints": hosts}]});
    clusters.push(other);
    let routes = format!("{MANAGER}/route_config/virtual_hosts/0/routes");
    let routes = bootstrap
        .pointer_mut(&routes)
        .unwrap()
        .as_array_mut()
        .unwrap();
    let mut route = routes[0].clone();
    route["match"] = json!({"prefix": "/other/"});
    route["route"]["cluster"] = "other".into();
    route["route"]["prefix_rewrite"] = "/".into();
    routes.insert(0, route);
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_one_plugin_are_never_mixed() {
    for of in [json!(["inference", "other"]), Value::Null] {
        let (one, two) = (
            sims(2, &swift()).await.unwrap(),
            sims(2, &swift()).await.unwrap(),
        );
        let mut admin = json!({"cluster": "envoy_admin"});
        if !of.is_null() {
            // Otherwise clusters are found by the requests that go to them.
            admin["of"] = of;
        }
        let changes = json!({"endpoints": {"admin": admin}});
        let edit = |bootstrap: &mut Value| second_cluster(bootstrap, &two);
        let stage = Stage::with(4, addresses(&one), changes, edit)
            .await
            .unwrap();
        let other_path = format!("/other{CHAT}");
        for path in [CHAT, &other_path] {
            let deadline = std::time::Instant::now() + warmroute_lab::stage::PATIENCE;
            let mut row = 0;
            while row < 20 {
                assert!(
                    std::time::Instant::now() < deadline,
                    "{path} is never steered"
                );
                let call = Call::post_json(path, chat("ready?", &[]));
                let answer = stage.send_by(&stage.fresh, &call).await.unwrap();
                row = if Decision::of(&answer).is_some_and(|d| d.ranking.len() == 2) {
                    row + 1
                } else {
                    0
                };
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        for round in 0..4 {
            for seed in 0..6 {
                for (path, here) in [(CHAT, &one), (other_path.as_str(), &two)] {
                    let decision = decided(&stage, Call::post_json(path, body(seed * 10))).await;
                    let here = addresses(here);
                    assert!(decision.ranking.iter().all(|named| here.contains(named)));
                    if round == 0 && path == other_path {
                        assert_eq!(decision.matched, 0, "warm in the other cluster only");
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_configuration_is_one_line_in_the_log_and_no_listener() {
    for (changes, words) in [
        (
            json!({"metrics": {"refreshMs": 7}}),
            ["metrics.refreshMs", "7", "50"],
        ),
        (
            json!({"endpionts": {}}),
            ["endpionts", "unknown", "endpoints"],
        ),
        (
            json!({"endpoints": {"static": []}}),
            ["endpoints.static", "", ""],
        ),
    ] {
        let routing = through_plugin(configuration(changes).unwrap());
        let options = EnvoyOptions::new(vec!["127.0.0.1:1".into()], routing);
        let error = format!("{:#}", Envoy::start(&options).await.unwrap_err());
        let line = error
            .lines()
            .find(|line| line.contains("warmroute: configuration refused: "));
        let line = line.unwrap_or_else(|| panic!("{error}"));
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_their_names_in_prometheus() {
    let sims = sims(2, &swift()).await.unwrap();
    let stage = Stage::start(1, addresses(&sims)).await.unwrap();
    for _ in 0..2 {
        let stream = body(1).replacen(
            '{',
            r#"{"stream":true,"stream_options":{"include_usage":true},"#,
            1,
        );
        decided(&stage, Call::post_json(CHAT, stream)).await;
    }
    stage.send(&Call::get("/v1/models")).await.unwrap();
    stage
        .until("warmroute_index_pairs", |count| count > 20)
        .await
        .unwrap();
    let text = stage.envoy.admin("/stats/prometheus").await.unwrap();
    for name in [
        "warmroute_request_total",
        "warmroute_prompt_tokens_total",
        "warmroute_predicted_hit_tokens_total",
        "warmroute_delivered_hit_tokens_total",
        "warmroute_scrape_total",
        "warmroute_inflight",
        "warmroute_endpoints",
        "warmroute_decision_us_bucket",
        "warmroute_ttft_ms_count",
    ] {
        assert!(
            text.lines().any(|line| line.contains(name)),
            "{name} is not in\n{text}"
        );
    }
    assert!(text.contains("no_body"), "reasons are told apart");
    let delivered = stage
        .count("warmroute_delivered_hit_tokens_total")
        .await
        .unwrap();
    let predicted = stage
        .count("warmroute_predicted_hit_tokens_total")
        .await
        .unwrap();
    assert!(
        delivered > 1000 && predicted > 1000,
        "{delivered} of {predicted}"
    );
    assert_eq!(stage.count("warmroute_endpoints").await.unwrap(), 2);
}
