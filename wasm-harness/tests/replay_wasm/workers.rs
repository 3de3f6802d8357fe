//! A gateway split into workers and replicas, against one worker that sees everything.

use warmroute_harness::host::Artifact;
use warmroute_harness::replay::plugin::{PluginOptions, Process, STORE};
use warmroute_harness::replay::report::Row;
use warmroute_harness::replay::simulate::{Chooser, World};
use warmroute_harness::replay::store::Store;
use warmroute_harness::replay::workload::{Kind, generate, spread, trace};
use warmroute_harness::replay::{Gateway, Request};

use super::{artifact, chat_trace, options, ours, plugin, row, world};

/// Ways in which requests come to workers: where a decision is blind, luck moves a single one by some percent.
const WAYS: u64 = 2;

/// A gateway's mean and hits as ratios to one worker's, over some ways in which requests come to workers, and the
/// instructions of a decision.
#[derive(Debug)]
struct Ratios {
    mean: f64,
    hits: f64,
    instructions: u64,
}

fn ratios(
    setting: &str,
    one: &Row,
    requests: &[Request],
    ways: u64,
    gateway: impl Fn() -> Chooser,
) -> Ratios {
    let rows: Vec<Row> = (0..ways)
        .map(|assignment| {
            let world = World {
                assignment,
                ..world(8)
            };
            row(&world, requests, gateway(), 0.0)
        })
        .collect();
    let average = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / ways as f64;
    let ratios = Ratios {
        mean: average(|row| row.ttft_mean_s) / one.ttft_mean_s,
        hits: average(|row| row.hit_share) / one.hit_share,
        instructions: rows[0].decision_instructions,
    };
    println!("{setting}: {ratios:.3?}");
    ratios
}

impl Ratios {
    fn stay_within(&self, setting: &str, mean: f64, hits: f64) {
        assert!(self.mean <= mean, "{setting}: {self:?}, asked {mean}");
        assert!(self.hits >= hits, "{setting}: {self:?}, asked {hits}");
    }
}

/// Every way to split a gateway against one worker that sees everything.
fn split(requests: &[Request], bounds: [(usize, usize, bool, u64, f64, f64); 3]) {
    let artifact = artifact();
    let one = ours(&world(8), requests, 0.0);
    let mut isolated_cost = 0;
    for (replicas, workers, exchange, ways, mean, hits) in bounds {
        let setting = format!("{replicas} x {workers}, exchange {exchange}");
        let split = ratios(&setting, &one, requests, ways, || {
            plugin(&artifact, replicas, workers, &options(exchange))
        });
        split.stay_within(&setting, mean, hits);
        if exchange {
            assert!(
                split.instructions as f64 <= 1.5 * isolated_cost as f64,
                "{setting}: {} after {isolated_cost}",
                split.instructions
            );
        } else {
            isolated_cost = split.instructions;
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
            (1, 8, false, 1, 1.65, 0.93),
            (1, 8, true, 1, 1.05, 0.97),
            (2, 4, true, WAYS, 1.40, 0.90),
        ],
    );
}

/// The trace's clock ticks every three seconds: nine requests at once on average, which no store can tell of in time.
const TRACE_CLOCK_MS: f64 = 3_000.0;

/// Replicas on a store, every 100 ms, against one worker; the store is simulated. As the trace is, and with its
/// requests spread over the time between its clock's ticks.
#[test]
fn replicas_with_a_store_on_the_chat_trace() {
    let Some(path) = chat_trace() else { return };
    let artifact = artifact();
    for (spread_ms, ways) in [(0.0, WAYS), (TRACE_CLOCK_MS, 1)] {
        let mut requests = trace(&path, 3000, 1.0).unwrap();
        spread(&mut requests, spread_ms, 1);
        let setting = format!("2 x 4, store, spread over {spread_ms} ms");
        let one = ours(&world(8), &requests, 0.0);
        let split = ratios(&setting, &one, &requests, ways, || {
            on_a_store(&artifact, 2, 4)
        });
        split.stay_within(&setting, 1.10, 0.95);
    }
}

#[test]
fn replicas_with_a_store_on_generated_chat() {
    let requests = generate(Kind::Chat, 1500, 8, 10.0, 0.5, 1);
    let artifact = artifact();
    let one = ours(&world(8), &requests, 0.0);
    let split = ratios("2 x 4, store, generated", &one, &requests, 1, || {
        on_a_store(&artifact, 2, 4)
    });
    split.stay_within("2 x 4, store, generated", 1.10, 0.95);
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
            (1, 8, false, 1, 1.65, 0.93),
            (1, 8, true, 1, 1.05, 0.97),
            (2, 4, true, 1, 1.20, 0.95),
        ],
    );
}
