//! Endpoints that die, come back, are added and taken away, on a real Envoy.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use warmroute_lab::engine_sim::{EngineSim, Faults, SimOptions};
use warmroute_lab::envoy::EnvoyOptions;
use warmroute_lab::stage::{
    Decision, Stage, addresses, chat, configuration, served_by, sims, swift, text, through_plugin,
    until,
};

fn body(seed: u64, turns: u64) -> String {
    let messages: Vec<String> = (0..2 * turns - 1)
        .map(|n| text(seed * 100 + n, 700))
        .collect();
    chat(&text(seed * 100 + 99, 4000), &messages)
}

/// Asks with new prompts until no decision in a row of ten names `address` as an endpoint at all, or
/// until one does.
async fn until_named(stage: &Stage, address: &str, wanted: bool) {
    let deadline = std::time::Instant::now() + warmroute_lab::stage::PATIENCE;
    let (mut row, mut seed) = (0, 1_000_000);
    while row < 10 {
        assert!(
            std::time::Instant::now() < deadline,
            "{address} named: not {wanted}"
        );
        seed += 1;
        let (_, decision) = stage.steered(&chat(&text(seed, 300), &[])).await.unwrap();
        let is_named = decision.ranking.iter().any(|named| named == address);
        row = if is_named == wanted { row + 1 } else { 0 };
        if row == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    // Another worker may have looked just before: its view is a refresh (250 ms) old at most.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_dies_in_mid_run_and_comes_back() {
    for workers in [1, 4] {
        let mut engines = sims(3, &swift()).await.unwrap();
        let stage = Stage::start(workers, addresses(&engines)).await.unwrap();
        let done = AtomicUsize::new(0);
        let (stage_ref, done_ref) = (&stage, &done);
        let clients = join_all((0..6).map(|client| async move {
            for n in 0..25 {
                // Conversations of five turns; no client sees an error: that is what the shipped
                // retry policy is for.
                stage_ref
                    .steered(&body(client * 10 + n / 5, n % 5 + 1))
                    .await
                    .unwrap();
                done_ref.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let killer = async {
            until("requests are under way", || {
                done.load(Ordering::Relaxed) > 40
            })
            .await
            .unwrap();
            let dead = engines.remove(1);
            dead.addr
        };
        let (_, address) = join(clients, killer).await;
        until_named(&stage, &address.to_string(), false).await;
        let failed = stage
            .count("warmroute_endpoint_failure_total")
            .await
            .unwrap();
        let passed = stage
            .count("warmroute_fallback_total.reason.none_eligible")
            .await
            .unwrap();
        println!("{workers} workers: {failed} failures of the dead one, {passed} none eligible");

        let back = EngineSim::start(SimOptions {
            listen: address,
            ..swift()
        })
        .await
        .unwrap();
        until_named(&stage, &address.to_string(), true).await;
        // Its failures are half forgotten every ten seconds; many new prompts at once reach it.
        for round in 0.. {
            assert!(round < 90, "it is named but never picked");
            let seeds = 5000 + round * 24..5024 + round * 24;
            let asked =
                seeds.map(|seed| async move { stage_ref.steered(&body(seed, 1)).await.unwrap() });
            join_all(asked).await;
            if back.counts().finished > 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        stage
            .until("warmroute_inflight", |count| count == 0)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_learns_who_served_not_who_was_dead() {
    let mut engines = sims(3, &swift()).await.unwrap();
    let endpoints = addresses(&engines);
    // Nothing checks health here: only the request itself finds out.
    let options = EnvoyOptions {
        health_check_interval: None,
        ..EnvoyOptions::new(
            endpoints.clone(),
            through_plugin(configuration(json!({})).unwrap()),
        )
    };
    let stage = Stage::of(warmroute_lab::envoy::Envoy::start(&options).await.unwrap());
    stage.ready(3).await.unwrap();
    let (_, first) = stage.steered(&body(1, 12)).await.unwrap();
    let dead = endpoints
        .iter()
        .position(|address| *address == first.endpoint)
        .unwrap();
    drop(engines.remove(dead));

    // Much more of it: the dead one is still believed to hold the beginning.
    let longer = body(1, 16);
    let (answer, second) = stage.steered(&longer).await.unwrap();
    assert_eq!(
        second.endpoint, endpoints[dead],
        "nobody told yet: {:?} after {first:?}",
        answer.headers
    );
    assert!(second.matched > 0);
    // The next of the list serves, not anyone.
    assert_eq!(served_by(&answer), second.ranking[1], "{second:?}");
    stage
        .until("warmroute_served_elsewhere_total", |count| count == 1)
        .await
        .unwrap();
    // Counts by endpoint are handed on with the next tick.
    stage
        .until("warmroute_endpoint_failure_total", |count| count == 1)
        .await
        .unwrap();
    assert_eq!(stage.count("warmroute_request_total").await.unwrap(), {
        let decisions = stage.envoy.stats().await.unwrap();
        let decided = decisions
            .iter()
            .filter(|(name, _)| name.contains("warmroute_decision_total"));
        let passed = decisions
            .iter()
            .filter(|(name, _)| name.contains("warmroute_fallback_total"));
        decided.chain(passed).map(|(_, count)| count).sum::<u64>()
    });

    // Whoever served holds all of it now; the dead one was not told to.
    let (answer, third) = stage.steered(&longer).await.unwrap();
    assert_eq!(third.endpoint, second.ranking[1]);
    assert_eq!(third.matched, third.total);
    assert_eq!(served_by(&answer), third.endpoint);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_fails_its_health_check_gets_nothing_more() {
    for workers in [1, 4] {
        let engines = sims(3, &swift()).await.unwrap();
        let stage = Stage::start(workers, addresses(&engines)).await.unwrap();
        let (_, warm) = stage.steered(&body(1, 2)).await.unwrap();
        let place = engines
            .iter()
            .position(|sim| sim.addr.to_string() == warm.endpoint)
            .unwrap();
        engines[place].set_faults(Faults {
            draining: true,
            ..Faults::default()
        });
        until_named(&stage, &warm.endpoint, false).await;
        let before = engines[place].log().len();
        for turns in [2, 3, 4] {
            let (_, decision) = stage.steered(&body(1, turns)).await.unwrap();
            assert_ne!(
                decision.endpoint, warm.endpoint,
                "the longest prefix does not count"
            );
        }
        assert_eq!(engines[place].log().len(), before);
        engines[place].set_faults(Faults::default());
        until_named(&stage, &warm.endpoint, true).await;

        let all = Faults {
            draining: true,
            ..Faults::default()
        };
        engines.iter().for_each(|sim| sim.set_faults(all.clone()));
        let fell_back = |count: u64| count > 0;
        let name = "warmroute_fallback_total.reason.none_eligible";
        let call = warmroute_lab::client::Call::post_json(warmroute_lab::stage::CHAT, body(1, 2));
        let base = stage.count(name).await.unwrap();
        while !fell_back(stage.count(name).await.unwrap() - base) {
            // In panic the gateway balances over all of them.
            let answer = stage.send_by(&stage.fresh, &call).await.unwrap();
            assert_eq!(answer.status, 200);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// A cluster's endpoints in a file that Envoy watches.
struct EndpointFile {
    folder: PathBuf,
}

impl EndpointFile {
    fn new(endpoints: &[String]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endpoints");
        std::fs::create_dir_all(&folder).unwrap();
        let file = Self { folder };
        file.write(endpoints);
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.join("eds.json")
    }

    /// Envoy reads what is moved into place.
    fn write(&self, endpoints: &[String]) {
        let hosts: Vec<Value> = endpoints
            .iter()
            .map(|endpoint| {
                let (address, port) = endpoint.rsplit_once(':').unwrap();
                let port: u16 = port.parse().unwrap();
                json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}})
            })
            .collect();
        let resources = json!({"resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "inference",
            "endpoints": [{"lb_endpoints": hosts}],
        }]});
        let next = self.folder.join("next.json");
        std::fs::write(&next, resources.to_string()).unwrap();
        std::fs::rename(next, self.path()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_added_and_taken_away() {
    let engines = sims(3, &swift()).await.unwrap();
    let all = addresses(&engines);
    let file = EndpointFile::new(&all[..2]);
    let path = file.path();
    let stage = Stage::with(4, all[..2].to_vec(), json!({}), |bootstrap| {
        bootstrap["node"] = json!({"id": "lab", "cluster": "lab"});
        let clusters = bootstrap["static_resources"]["clusters"]
            .as_array_mut()
            .unwrap();
        let cluster = clusters
            .iter_mut()
            .find(|cluster| cluster["name"] == "inference")
            .unwrap();
        cluster.as_object_mut().unwrap().remove("load_assignment");
        cluster["type"] = "EDS".into();
        cluster["eds_cluster_config"] = json!({"eds_config": {
            "resource_api_version": "V3", "path_config_source": {"path": path},
        }});
    })
    .await
    .unwrap();
    stage.ready(2).await.unwrap();
    let (_, warm) = stage.steered(&body(1, 2)).await.unwrap();

    file.write(&all);
    until_named(&stage, &all[2], true).await;
    let (_, still) = stage.steered(&body(1, 3)).await.unwrap();
    assert_eq!(
        still.endpoint, warm.endpoint,
        "who is there keeps what it holds"
    );
    assert!(still.matched > 15);

    let rest: Vec<String> = all
        .iter()
        .filter(|address| **address != warm.endpoint)
        .cloned()
        .collect();
    file.write(&rest);
    until_named(&stage, &warm.endpoint, false).await;
    let (answer, moved) = stage.steered(&body(1, 3)).await.unwrap();
    assert!(rest.contains(&moved.endpoint), "{moved:?}");
    assert_eq!(moved.matched, 0, "its entries went with it");
    assert_eq!(Decision::of(&answer), Some(moved));

    // Back under the same address: an engine that nothing is known of.
    file.write(&all);
    until_named(&stage, &warm.endpoint, true).await;
}
