//! A gateway split into workers and replicas, against one worker that sees everything.

use warmroute_harness::host::Artifact;
use warmroute_harness::replay::plugin::{PluginOptions, Process, STORE};
use warmroute_harness::replay::simulate::Chooser;
use warmroute_harness::replay::store::Store;
use warmroute_harness::replay::workload::{Kind, generate, spread, trace};
use warmroute_harness::replay::{Gateway, Request};

use super::{artifact, chat_trace, options, plugin, row, world};

/// One worker's mean and hits as the measure for every other way to split a gateway.
fn split(requests: &[Request], bounds: [(usize, usize, bool, f64, f64); 3]) {
    let artifact = artifact();
    let one = row(
        &world(8),
        requests,
        plugin(&artifact, 1, 1, &options(true)),
        0.0,
    );
    let mut isolated_cost = 0;
    for (replicas, workers, exchange, mean, hits) in bounds {
        let chooser = plugin(&artifact, replicas, workers, &options(exchange));
        let ours = row(&world(8), requests, chooser, 0.0);
        let setting = format!("{replicas} x {workers}, exchange {exchange}");
        println!(
            "{setting}: mean {:.3}, hits {:.3}, {} instructions",
            ours.ttft_mean_s / one.ttft_mean_s,
            ours.hit_share / one.hit_share,
            ours.decision_instructions
        );
        assert!(
            ours.ttft_mean_s <= mean * one.ttft_mean_s,
            "{setting}: {ours:?} {one:?}"
        );
        assert!(
            ours.hit_share >= hits * one.hit_share,
            "{setting}: {ours:?} {one:?}"
        );
        if exchange {
            assert!(
                ours.decision_instructions as f64 <= 1.5 * isolated_cost as f64,
                "{setting}"
            );
        } else {
            isolated_cost = ours.decision_instructions;
        }
    }
}

#[test]
fn workers_and_replicas_on_the_chat_trace() {
    let Some(path) = chat_trace() else { return };
    let requests = trace(&path, 3000, 1.0).unwrap();
    split(
        &requests,
        [
            (1, 8, false, 1.65, 0.93),
            (1, 8, true, 1.05, 0.97),
            (2, 4, true, 1.40, 0.90),
        ],
    );
}

/// The trace's clock ticks every three seconds: nine requests at once on average, which no store can tell of in time.
const TRACE_CLOCK_MS: f64 = 3_000.0;

/// Replicas on a store, every 100 ms, against one worker; the store is simulated.
#[test]
fn replicas_with_a_store_on_the_chat_trace() {
    let Some(path) = chat_trace() else { return };
    let artifact = artifact();
    let ratios = |spread_ms: f64, seed: u64| {
        let mut requests = trace(&path, 3000, 1.0).unwrap();
        spread(&mut requests, spread_ms, seed);
        let one = plugin(&artifact, 1, 1, &options(true));
        let one = row(&world(8), &requests, one, 0.0);
        let ours = row(&world(8), &requests, on_a_store(&artifact, 2, 4), 0.0);
        let (mean, hits) = (
            ours.ttft_mean_s / one.ttft_mean_s,
            ours.hit_share / one.hit_share,
        );
        println!("2 x 4, store, spread over {spread_ms} ms: mean {mean:.3}, hits {hits:.3}");
        (mean, hits)
    };
    let spread = [1, 2, 3].map(|seed| ratios(TRACE_CLOCK_MS, seed));
    let average = |of: fn(&(f64, f64)) -> f64| spread.iter().map(of).sum::<f64>() / 3.0;
    assert!(average(|ratio| ratio.0) <= 1.10, "{spread:?}");
    assert!(average(|ratio| ratio.1) >= 0.95, "{spread:?}");
    let (mean, hits) = ratios(0.0, 1);
    assert!(mean <= 1.35 && hits >= 0.75, "all at once: {mean} {hits}");
}

#[test]
fn replicas_with_a_store_on_generated_chat() {
    let requests = generate(Kind::Chat, 1500, 8, 10.0, 0.5, 1);
    let artifact = artifact();
    let one = plugin(&artifact, 1, 1, &options(true));
    let one = row(&world(8), &requests, one, 0.0);
    let ours = row(&world(8), &requests, on_a_store(&artifact, 2, 4), 0.0);
    println!(
        "2 x 4, store: mean {:.3}, hits {:.3}",
        ours.ttft_mean_s / one.ttft_mean_s,
        ours.hit_share / one.hit_share
    );
    assert!(
        ours.ttft_mean_s <= 1.10 * one.ttft_mean_s,
        "{ours:?} {one:?}"
    );
    assert!(ours.hit_share >= 0.95 * one.hit_share, "{ours:?} {one:?}");
}

fn on_a_store(artifact: &Artifact, replicas: u64, workers: usize) -> Chooser {
    let options = PluginOptions {
        config: format!(r#"{{"replicas":{{"store":"redis","cluster":"{STORE}"}}}}"#),
        ..PluginOptions::default()
    };
    let store = Store::default();
    let mut all: Vec<Box<dyn Gateway>> = Vec::new();
    for replica in 0..replicas {
        let mut process = Process::replica(artifact, &options, replica, &store);
        for _ in 0..workers {
            all.push(Box::new(process.worker().expect("the plugin comes up")));
        }
    }
    Chooser::Workers(all)
}

#[test]
fn workers_and_replicas_on_generated_chat() {
    let requests = generate(Kind::Chat, 1500, 8, 10.0, 0.5, 1);
    split(
        &requests,
        [
            (1, 8, false, 1.65, 0.93),
            (1, 8, true, 1.05, 0.97),
            (2, 4, true, 1.20, 0.95),
        ],
    );
}
