//! What the replay has to show: figures against the oracle and against the field.

use std::path::{Path, PathBuf};

use warmroute::config::{PickOptions, Profile, Weights};

use super::engine::EngineOptions;
use super::report::Row;
use super::rules::{Rule, Ruled};
use super::simulate::{Chooser, Disturbance, What, World, run};
use super::warm::Warm;
use super::workload::{Kind, generate, trace};
use super::{Gateway, Request};

fn world(engines: usize) -> World {
    World {
        engine: EngineOptions::default(),
        engines,
        scrape_ms: 1000.0,
        disturbances: Vec::new(),
    }
}

fn one(gateway: impl Gateway + 'static) -> Chooser {
    Chooser::Workers(vec![Box::new(gateway)])
}

fn warm() -> Chooser {
    one(Warm::new(PickOptions::default(), 1500, 1))
}

fn weighted() -> Chooser {
    let profile = Profile::Weighted(Weights::default());
    one(Warm::new(
        PickOptions {
            profile,
            ..PickOptions::default()
        },
        1500,
        1,
    ))
}

fn ruled(rule: Rule) -> Chooser {
    one(Ruled::new(rule, 1500, 1))
}

fn row(world: &World, requests: &[Request], chooser: Chooser, from_ms: f64) -> Row {
    let outcome = run(world, requests, chooser);
    Row::of("", &outcome, requests, (from_ms, from_ms + 300_000.0))
}

/// The trace that stands beside the repository, where it does.
fn chat_trace() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/traces/mooncake_conversation_trace.jsonl");
    path.exists().then_some(path)
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let requests = generate(Kind::Agents, 300, 4, 10.0, 0.6, 5);
    assert_eq!(requests, generate(Kind::Agents, 300, 4, 10.0, 0.6, 5));
    assert_ne!(requests, generate(Kind::Agents, 300, 4, 10.0, 0.6, 6));
    let first = run(&world(4), &requests, warm());
    let second = run(&world(4), &requests, warm());
    assert_eq!(first.ttft_ms, second.ttft_ms);
    assert_eq!(first.ttft_ms.iter().flatten().count(), requests.len());
}

#[test]
fn the_chat_trace_against_the_oracle() {
    let Some(path) = chat_trace() else { return };
    // Speed, engines, metrics every so often, slowed by decodes: mean, p99 and hits against the oracle.
    for (speed, engines, scrape_ms, slows, mean, p99, hits) in [
        (1.0, 8, 1_000.0, 0.0, 1.06, 1.05, 0.88),
        (0.5, 8, 1_000.0, 0.0, 1.15, 1.15, 0.88),
        (1.3, 8, 1_000.0, 0.0, 1.15, 1.15, 0.88),
        (0.35, 3, 1_000.0, 0.0, 1.10, 1.10, 0.88),
        (3.5, 32, 1_000.0, 0.0, 1.10, 1.10, 0.88),
        (1.0, 8, 10_000.0, 0.0, 1.10, 1.10, 0.88),
        (1.0, 8, 1_000.0, 1.0, 1.08, 1.08, 0.88),
    ] {
        let requests = trace(&path, 3000, speed).unwrap();
        let engine = EngineOptions {
            decode_slows: slows,
            ..EngineOptions::default()
        };
        let world = World {
            engine,
            scrape_ms,
            ..world(engines)
        };
        let oracle = row(&world, &requests, Chooser::Oracle, 0.0);
        let ours = row(&world, &requests, warm(), 0.0);
        let setting = format!("speed {speed}, {engines} engines, {scrape_ms} ms, slowed {slows}");
        assert!(
            ours.ttft_mean_s <= mean * oracle.ttft_mean_s,
            "{setting}: {ours:?} {oracle:?}"
        );
        assert!(
            ours.ttft_p99_s <= p99 * oracle.ttft_p99_s,
            "{setting}: {ours:?} {oracle:?}"
        );
        assert!(
            ours.hit_share >= hits * oracle.hit_share,
            "{setting}: {ours:?} {oracle:?}"
        );
    }
}

#[test]
fn the_weighted_sum_herds() {
    let Some(path) = chat_trace() else { return };
    let requests = trace(&path, 3000, 1.0).unwrap();
    let ours = row(&world(8), &requests, warm(), 0.0);
    let theirs = row(&world(8), &requests, weighted(), 0.0);
    assert!(
        theirs.ttft_mean_s > 1.5 * ours.ttft_mean_s,
        "{theirs:?} {ours:?}"
    );
}

#[test]
fn never_worse_than_the_best_on_generated_traffic() {
    for kind in Kind::ALL {
        let requests = generate(kind, 3000, 8, 10.0, 0.4, 1);
        let world = world(8);
        let ours = row(&world, &requests, warm(), 0.0);
        let others = Rule::ALL
            .map(ruled)
            .into_iter()
            .chain([weighted(), Chooser::Oracle]);
        let best = others
            .map(|chooser| row(&world, &requests, chooser, 0.0).ttft_mean_s)
            .fold(f64::INFINITY, f64::min);
        let share = ours.ttft_mean_s / best;
        assert!(share <= 1.05, "{}: {share}", kind.name());
    }
}

#[test]
fn a_disturbance_is_over_in_a_minute() {
    let Some(path) = chat_trace() else { return };
    let requests = trace(&path, 3000, 1.0).unwrap();
    let at_ms = 450_000.0;
    let until = at_ms + 30_000.0;
    for what in [
        What::Restart(0),
        What::Clear(0),
        What::Add(4),
        What::Fail(0, until),
    ] {
        let disturbances = vec![Disturbance { at_ms, what }];
        let world = World {
            disturbances,
            ..world(8)
        };
        let oracle = row(&world, &requests, Chooser::Oracle, at_ms + 60_000.0);
        let ours = row(&world, &requests, warm(), at_ms + 60_000.0);
        assert_eq!(ours.unanswered, 0, "{what:?}");
        assert!(
            ours.ttft_part_s <= 1.10 * oracle.ttft_part_s,
            "{what:?}: {ours:?} {oracle:?}"
        );
    }
}
