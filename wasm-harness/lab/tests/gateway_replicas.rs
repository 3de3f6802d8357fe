//! Two replicas of a real Envoy over a real etcd, which dies in mid-run and comes back empty. Without an etcd on
//! this machine the test says so and is skipped.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warmroute_lab::stage::{PATIENCE, Stage, addresses, chat, sims, swift, text, until};
use warmroute_server::{Server, free_address};

const PAUSE: Duration = Duration::from_millis(50);

/// `None` where this machine has no etcd, which is said.
fn etcd() -> Option<Server> {
    Server::start("etcd", "etcd-server", |address| {
        let client = format!("http://{address}");
        let peer = format!("http://{}", free_address());
        [
            "--data-dir=data".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ]
        .into()
    })
}

/// A gateway with two workers that has the store as a cluster.
async fn replica(endpoints: &[String], etcd: SocketAddr) -> Stage {
    let store = json!({
        "name": "etcd", "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "etcd", "endpoints": [{"lb_endpoints": [{"endpoint": {
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": etcd.port()}},
        }}]}]},
    });
    let edit = |config: &mut Value| {
        let clusters = config["static_resources"]["clusters"].as_array_mut();
        clusters.unwrap().push(store.clone());
    };
    let changes = json!({"replicas": {"store": "etcd", "cluster": "etcd"}});
    let stage = Stage::with(2, endpoints.to_vec(), changes, edit).await;
    let stage = stage.unwrap();
    stage.ready(endpoints.len()).await.unwrap();
    stage
}

/// Sends prompts to one replica, each a moment later to the other, until one is matched there and goes to the same
/// engine.
async fn is_shared(one: &Stage, two: &Stage, seed: u64) {
    let deadline = Instant::now() + PATIENCE;
    for attempt in 0.. {
        let seed = seed + 2 * attempt;
        let body = chat(&text(seed, 12_000), &[text(seed + 1, 100)]);
        let (_, first) = one.steered(&body).await.unwrap();
        assert_eq!(first.matched, 0, "never sent before");
        tokio::time::sleep(PAUSE * 10).await;
        let (_, other) = two.steered(&body).await.unwrap();
        if other.endpoint == first.endpoint && other.matched >= 40 {
            return;
        }
        assert!(Instant::now() < deadline, "{first:?} {other:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_have_one_view_over_etcd_which_may_die() {
    let Some(mut etcd) = etcd() else {
        return;
    };
    let sims = sims(4, &swift()).await.unwrap();
    let endpoints = addresses(&sims);
    let one = replica(&endpoints, etcd.address).await;
    let two = replica(&endpoints, etcd.address).await;
    for stage in [&one, &two] {
        stage
            .until("warmroute_replicas", |count| count == 1)
            .await
            .unwrap();
    }
    for seed in 1..4 {
        is_shared(&one, &two, seed * 10_000).await;
        is_shared(&two, &one, seed * 10_000 + 5_000).await;
    }
    let names = [
        "call",
        "sent_bytes",
        "received_bytes",
        "failure",
        "foreign",
        "gap",
    ];
    let mut counts = Vec::new();
    for name in names {
        let name = format!("warmroute_replica_{name}_total");
        counts.push((name.clone(), one.count(&name).await.unwrap()));
    }
    println!("{counts:?}");
    assert!(
        counts[..3].iter().all(|(_, count)| *count > 0),
        "{counts:?}"
    );
    assert!(
        counts[4..].iter().all(|(_, count)| *count == 0),
        "{counts:?}"
    );

    etcd.kill();
    let failures = "warmroute_replica_failure_total";
    let before = one.count(failures).await.unwrap();
    one.until(failures, |count| count > before + 5)
        .await
        .unwrap();
    one.until("warmroute_replicas", |count| count == 0)
        .await
        .unwrap();
    for seed in 0..10 {
        let body = chat(&text(700 + seed, 3_000), &[text(seed, 100)]);
        one.steered(&body).await.unwrap();
    }
    // Envoy writes its log every ten seconds.
    let said = || one.envoy.log().matches("the replicas' store").count();
    until("the trouble is in the log", || said() > 0)
        .await
        .unwrap();
    assert_eq!(said(), 1, "{}", one.envoy.log());

    etcd.restart();
    one.until("warmroute_replicas", |count| count == 1)
        .await
        .unwrap();
    is_shared(&one, &two, 90_000).await;
}
