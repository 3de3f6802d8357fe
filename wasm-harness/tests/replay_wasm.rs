//! What the replay has to show, with the built plugin as the gateway: against the oracle, against the
//! field, over workers and replicas, and over many rebuilds. Needs `make build`.

use std::path::{Path, PathBuf};

use warmroute_harness::built;
use warmroute_harness::host::{Artifact, Profile};
use warmroute_harness::replay::engine::EngineOptions;
use warmroute_harness::replay::plugin::{PluginOptions, Process, STORE, Worker};
use warmroute_harness::replay::report::Row;
use warmroute_harness::replay::rules::{Rule, Ruled};
use warmroute_harness::replay::simulate::{Chooser, Disturbance, What, World, run};
use warmroute_harness::replay::store::Store;
use warmroute_harness::replay::workload::{Kind, generate, spread, trace};
use warmroute_harness::replay::{End, Gateway, Request};

fn artifact() -> Artifact {
    built::artifact(Profile::Higress).unwrap()
}

fn world(engines: usize) -> World {
    World {
        engine: EngineOptions::default(),
        engines,
        scrape_ms: 1000.0,
        disturbances: Vec::new(),
    }
}

fn options(exchange: bool) -> PluginOptions {
    PluginOptions {
        config: format!(r#"{{"exchange":{exchange}}}"#),
        ..PluginOptions::default()
    }
}

fn plugin(
    artifact: &Artifact,
    replicas: usize,
    workers: usize,
    options: &PluginOptions,
) -> Chooser {
    let mut all: Vec<Box<dyn Gateway>> = Vec::new();
    for _ in 0..replicas {
        let mut process = Process::new(artifact, options);
        for _ in 0..workers {
            all.push(Box::new(process.worker().expect("the plugin comes up")));
        }
    }
    Chooser::Workers(all)
}

fn row(world: &World, requests: &[Request], chooser: Chooser, from_ms: f64) -> Row {
    let outcome = run(world, requests, chooser);
    Row::of("", &outcome, requests, (from_ms, from_ms + 300_000.0))
}

/// The chat trace that stands beside the repository where it does.
fn chat_trace() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/traces/mooncake_conversation_trace.jsonl");
    path.exists().then_some(path)
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let artifact = artifact();
    let requests = generate(Kind::Agents, 300, 4, 10.0, 0.6, 5);
    assert_eq!(requests, generate(Kind::Agents, 300, 4, 10.0, 0.6, 5));
    assert_ne!(requests, generate(Kind::Agents, 300, 4, 10.0, 0.6, 6));
    let play = || {
        run(
            &world(4),
            &requests,
            plugin(&artifact, 1, 2, &options(true)),
        )
    };
    let (first, second) = (play(), play());
    assert_eq!(first.ttft_ms, second.ttft_ms);
    assert_eq!(first.ttft_ms.iter().flatten().count(), requests.len());
    assert_eq!(first.figures.fallbacks, 0);
}

#[test]
fn the_chat_trace_against_the_oracle() {
    let Some(path) = chat_trace() else { return };
    let artifact = artifact();
    // Speed, engines, metrics every so often, slowed by decodes: mean and p99 against the oracle.
    for (speed, engines, scrape_ms, decode_slows, mean, p99) in [
        (1.0, 8, 1_000.0, 0.0, 1.06, 1.05),
        (0.5, 8, 1_000.0, 0.0, 1.15, 1.15),
        (1.3, 8, 1_000.0, 0.0, 1.15, 1.15),
        (0.35, 3, 1_000.0, 0.0, 1.10, 1.10),
        (3.5, 32, 1_000.0, 0.0, 1.10, 1.10),
        (1.0, 8, 10_000.0, 0.0, 1.10, 1.10),
        (1.0, 8, 1_000.0, 1.0, 1.08, 1.08),
    ] {
        let requests = trace(&path, 3000, speed).unwrap();
        let engine = EngineOptions {
            decode_slows,
            ..EngineOptions::default()
        };
        let world = World {
            engine,
            scrape_ms,
            ..world(engines)
        };
        let oracle = row(&world, &requests, Chooser::Oracle, 0.0);
        let ours = row(
            &world,
            &requests,
            plugin(&artifact, 1, 1, &options(true)),
            0.0,
        );
        let setting =
            format!("speed {speed}, {engines} engines, {scrape_ms} ms, slowed {decode_slows}");
        println!(
            "{setting}: mean {:.3}, p99 {:.3}, hits {:.3}",
            ours.ttft_mean_s / oracle.ttft_mean_s,
            ours.ttft_p99_s / oracle.ttft_p99_s,
            ours.hit_share / oracle.hit_share
        );
        assert!(
            ours.ttft_mean_s <= mean * oracle.ttft_mean_s,
            "{setting}: {ours:?} {oracle:?}"
        );
        assert!(
            ours.ttft_p99_s <= p99 * oracle.ttft_p99_s,
            "{setting}: {ours:?} {oracle:?}"
        );
        assert!(
            ours.hit_share >= 0.88 * oracle.hit_share,
            "{setting}: {ours:?} {oracle:?}"
        );
    }
}

/// With the weights of Higress's picker the sum of the profile `balanced` is as slow as the picker itself: without
/// inflight slower than round robin.
#[test]
fn the_weighted_sum_herds_as_the_field_s_does() {
    let Some(path) = chat_trace() else { return };
    let artifact = artifact();
    let requests = trace(&path, 3000, 1.0).unwrap();
    let mean_s = |chooser| row(&world(8), &requests, chooser, 0.0).ttft_mean_s;
    let weighted = |inflight: u32| {
        let options = PluginOptions {
            config: format!(
                r#"{{"weights":{{"queue":2,"kvCache":2,"prefixCache":3,"inflight":{inflight}}}}}"#
            ),
            ..PluginOptions::default()
        };
        mean_s(plugin(&artifact, 1, 1, &options))
    };
    let oracle = mean_s(Chooser::Oracle);
    let round_robin = mean_s(Chooser::Workers(vec![Box::new(Ruled::new(
        Rule::RoundRobin,
        1500,
        1,
    ))]));
    let [with, without] = [1, 0].map(weighted);
    println!("oracle {oracle:.2}, round robin {round_robin:.2}, weighted {with:.2}, {without:.2}");
    assert!((1.4..1.9).contains(&(with / oracle)), "{with} {oracle}");
    assert!(without > 1.5 * round_robin, "{without} {round_robin}");
}

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

#[test]
fn near_the_best_on_generated_traffic() {
    let artifact = artifact();
    let held_out = [(Kind::Agents, 2), (Kind::Agents, 9)];
    for (kind, seed) in Kind::ALL.map(|kind| (kind, 1)).into_iter().chain(held_out) {
        let requests = generate(kind, 1500, 8, 10.0, 0.4, seed);
        let world = world(8);
        let ours = row(
            &world,
            &requests,
            plugin(&artifact, 1, 1, &options(true)),
            0.0,
        );
        let ruled =
            Rule::ALL.map(|rule| Chooser::Workers(vec![Box::new(Ruled::new(rule, 1500, 1))]));
        let best = ruled
            .into_iter()
            .chain([Chooser::Oracle])
            .map(|chooser| row(&world, &requests, chooser, 0.0).ttft_mean_s)
            .fold(f64::INFINITY, f64::min);
        let share = ours.ttft_mean_s / best;
        println!("{}, seed {seed}: {share:.3}", kind.name());
        assert!(share <= 1.05, "{}, seed {seed}: {share}", kind.name());
    }
}

#[test]
fn a_disturbance_is_over_in_a_minute() {
    let Some(path) = chat_trace() else { return };
    let artifact = artifact();
    let requests = trace(&path, 3000, 1.0).unwrap();
    let at_ms = 450_000.0;
    for what in [
        What::Restart(0),
        What::Clear(0),
        What::Add(4),
        What::Fail(0, at_ms + 30_000.0),
    ] {
        let world = World {
            disturbances: vec![Disturbance { at_ms, what }],
            ..world(8)
        };
        let oracle = row(&world, &requests, Chooser::Oracle, at_ms + 60_000.0);
        let ours = row(
            &world,
            &requests,
            plugin(&artifact, 1, 1, &options(true)),
            at_ms + 60_000.0,
        );
        println!("{what:?}: {:.3}", ours.ttft_part_s / oracle.ttft_part_s);
        assert_eq!(ours.unanswered, 0, "{what:?}");
        assert!(
            ours.ttft_part_s <= 1.10 * oracle.ttft_part_s,
            "{what:?}: {ours:?} {oracle:?}"
        );
    }
}

/// VMs die and are made anew while requests go on; `SOAK` sets how many requests.
#[test]
fn a_soak_with_rebuilds_leaves_nothing_behind() {
    let given = std::env::var("SOAK")
        .ok()
        .and_then(|text| text.parse().ok());
    let count: usize = given.unwrap_or(20_000);
    let options = PluginOptions {
        config: r#"{"debug":{"header":true}}"#.to_owned(),
        ..PluginOptions::default()
    };
    let mut process = Process::new(&artifact(), &options);
    let mut workers: Vec<Worker> = (0..8).map(|_| process.worker().unwrap()).collect();
    let bodies = generate(Kind::Tenants, 2000, 8, 10.0, 0.5, 1);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut open: Vec<(usize, usize)> = Vec::new();
    // By tenth of the run: the largest memory, and instructions of decisions.
    let mut tenths = [(0, 0); 10];
    let mut now_ms = 0.0;
    for request in 0..count {
        now_ms += 5.0;
        let at = rng.usize(..8);
        let body = &bodies[request % bodies.len()];
        let before = workers[at].figures().instructions;
        workers[at].pick(now_ms, request, body, &[true; 8]);
        workers[at].accepted(now_ms, request);
        open.push((at, request));
        if open.len() > 64 {
            let (at, request) = open.swap_remove(rng.usize(..open.len()));
            workers[at].first_token(now_ms, request);
            workers[at].end(now_ms, request, End::Done { cached_tokens: 0 });
        }
        let tenth = &mut tenths[request * 10 / count];
        tenth.0 = tenth.0.max(workers[at].vm().memory_bytes());
        tenth.1 += workers[at].figures().instructions - before;
        if request % 20 == 0 {
            workers.iter_mut().for_each(|worker| worker.tick(now_ms));
        }
        if rng.usize(..500) == 0 {
            let dead = rng.usize(..8);
            workers[dead] = process.worker().unwrap();
            open.retain(|(at, _)| *at != dead);
        }
    }
    println!("memory and instructions by tenth of the run: {tenths:?}");
    assert!(
        tenths[9].0 <= tenths[1].0 * 3 / 2,
        "memory grows: {tenths:?}"
    );
    assert!(
        tenths[9].1 <= tenths[1].1 * 3 / 2,
        "decisions get dearer: {tenths:?}"
    );
    for (at, request) in open {
        workers[at].end(now_ms, request, End::Failed);
    }
    // Past the expiry of who died last, and of failures.
    for _ in 0..3000 {
        now_ms += 100.0;
        workers.iter_mut().for_each(|worker| worker.tick(now_ms));
    }
    let cold = generate(Kind::OneShot, 64, 8, 10.0, 0.5, 9);
    let mut before = Vec::new();
    for (at, prompt) in cold.iter().enumerate() {
        // Alone, an endpoint costs what the prompt does and what is before it, however fast it was seen to be.
        let up: [bool; 8] = std::array::from_fn(|engine| engine == at / 8);
        let worker = &mut workers[at % 8];
        worker.pick(now_ms, at, prompt, &up);
        worker.accepted(now_ms, at);
        let decision = worker.decision(at).unwrap();
        let cost = decision.rsplit_once(':').unwrap().1.parse::<u32>().unwrap();
        let tokens = decision.split_once(";costs=").unwrap().0;
        let tokens = tokens.rsplit_once('/').unwrap().1.parse::<u32>().unwrap();
        before.push(cost - tokens);
        worker.end(now_ms, at, End::Done { cached_tokens: 0 });
        now_ms += 1000.0;
    }
    // The same constant everywhere: a forgotten request would cost 80 tokens at least.
    let most = before.iter().max().unwrap() - before.iter().min().unwrap();
    assert!(most < 80, "load that nobody has: {before:?}");
}
