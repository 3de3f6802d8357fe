//! What the replay has to show, with the built plugin as the gateway: against the oracle, against the
//! field, over workers and replicas, and over many rebuilds. Needs `make build`.

mod soak;
mod workers;

use std::path::{Path, PathBuf};

use warmroute_harness::built;
use warmroute_harness::host::{Artifact, Profile};
use warmroute_harness::replay::engine::EngineOptions;
use warmroute_harness::replay::plugin::{PluginOptions, Process};
use warmroute_harness::replay::report::Row;
use warmroute_harness::replay::rules::{Rule, Ruled};
use warmroute_harness::replay::simulate::{Chooser, Disturbance, What, World, run};
use warmroute_harness::replay::workload::{Kind, generate, trace};
use warmroute_harness::replay::{Gateway, Request};

fn artifact() -> Artifact {
    built::artifact(Profile::Higress).unwrap()
}

fn world(engines: usize) -> World {
    World {
        engine: EngineOptions::default(),
        engines,
        scrape_ms: 1000.0,
        assignment: 0,
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

/// The plugin as it is, with one worker that sees everything.
fn ours(world: &World, requests: &[Request], from_ms: f64) -> Row {
    let one = plugin(&artifact(), 1, 1, &options(true));
    row(world, requests, one, from_ms)
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
    let _artifact = artifact();
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
        let ours = ours(&world, &requests, 0.0);
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

#[test]
fn near_the_best_on_generated_traffic() {
    let _artifact = artifact();
    let held_out = [(Kind::Agents, 2), (Kind::Agents, 9)];
    for (kind, seed) in Kind::ALL.map(|kind| (kind, 1)).into_iter().chain(held_out) {
        let requests = generate(kind, 1500, 8, 10.0, 0.4, seed);
        let world = world(8);
        let ours = ours(&world, &requests, 0.0);
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
    let _artifact = artifact();
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
        let ours = ours(&world, &requests, at_ms + 60_000.0);
        println!("{what:?}: {:.3}", ours.ttft_part_s / oracle.ttft_part_s);
        assert_eq!(ours.unanswered, 0, "{what:?}");
        assert!(
            ours.ttft_part_s <= 1.10 * oracle.ttft_part_s,
            "{what:?}: {ours:?} {oracle:?}"
        );
    }
}
