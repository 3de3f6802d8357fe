//! `make replay`: what each way of choosing endpoints is worth, on a trace or generated traffic.

use std::path::Path;

use anyhow::{Context, Result, bail};
use warmroute::config::{PickOptions, Profile, Weights};
use warmroute_harness::replay::engine::EngineOptions;
use warmroute_harness::replay::report::{Row, table};
use warmroute_harness::replay::rules::{Rule, Ruled};
use warmroute_harness::replay::simulate::{Chooser, Disturbance, What, World, run};
use warmroute_harness::replay::warm::Warm;
use warmroute_harness::replay::workload::{Kind, generate, trace};
use warmroute_harness::replay::{Gateway, Request};

const HELP: &str = "\
Settings come from the environment:
  TRACE      a trace file, or chat, agents, documents, tenants, one_shot, bursts [chat]
  REQUESTS   requests to play [3000]
  SPEED      how many times as fast a trace is played [1]
  LOAD       share of their time that generated traffic keeps engines busy [0.6]
  ENGINES    engines [8]
  WORKERS    gateway workers, each with its own view [1]
  SCRAPE_MS  time between two readings of metrics [1000]
  SLOW       how much longer a prefill takes beside many decodes (1 = twice) [0]
  DISTURB    restart, clear, add, fail: what happens in the middle of the run
  POLICIES   names, comma-separated [all]
  SEED       [1]
  OUT        a file for the figures as JSON";

fn main() -> Result<()> {
    if std::env::args().len() > 1 {
        println!("{HELP}");
        return Ok(());
    }
    let engines = number("ENGINES", 8.0)? as usize;
    let seed = number("SEED", 1.0)? as u64;
    let engine = EngineOptions {
        decode_slows: number("SLOW", 0.0)?,
        ..EngineOptions::default()
    };
    let requests = workload(engines, engine.prefill_tokens_per_ms, seed)?;
    let middle = requests.last().map_or(0.0, |body| body.at_ms) / 2.0;
    let disturbances = disturbances(middle)?;
    let world = World {
        engine,
        engines,
        scrape_ms: number("SCRAPE_MS", 1000.0)?,
        disturbances,
    };
    let workers = (number("WORKERS", 1.0)? as u64).max(1);
    let mut rows = Vec::new();
    for name in policies() {
        let chooser = chooser(&name, workers, engine.cache_blocks, seed)?;
        let outcome = run(&world, &requests, chooser);
        let part = (middle + 60_000.0, middle + 360_000.0);
        rows.push(Row::of(&name, &outcome, &requests, part));
    }
    print!("{}", table(&rows));
    if let Ok(path) = std::env::var("OUT") {
        std::fs::write(&path, serde_json::to_string_pretty(&rows)?).context(path)?;
    }
    Ok(())
}

fn number(name: &str, otherwise: f64) -> Result<f64> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .with_context(|| format!("{name}={text}: expected a number")),
        _ => Ok(otherwise),
    }
}

fn workload(engines: usize, tokens_per_ms: f64, seed: u64) -> Result<Vec<Request>> {
    let name = std::env::var("TRACE").unwrap_or_default();
    let count = number("REQUESTS", 3000.0)? as usize;
    let name = if name.is_empty() { "chat" } else { &name };
    match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
        Some(kind) => Ok(generate(
            kind,
            count,
            engines,
            tokens_per_ms,
            number("LOAD", 0.6)?,
            seed,
        )),
        None => trace(Path::new(name), count, number("SPEED", 1.0)?),
    }
}

fn disturbances(at_ms: f64) -> Result<Vec<Disturbance>> {
    let what = match std::env::var("DISTURB").unwrap_or_default().as_str() {
        "" => return Ok(Vec::new()),
        "restart" => What::Restart(0),
        "clear" => What::Clear(0),
        "add" => What::Add(4),
        "fail" => What::Fail(0, at_ms + 30_000.0),
        other => bail!("DISTURB={other}: expected restart, clear, add or fail"),
    };
    Ok(vec![Disturbance { at_ms, what }])
}

fn policies() -> Vec<String> {
    match std::env::var("POLICIES") {
        Ok(names) if !names.is_empty() => names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect(),
        _ => ["oracle", "warmroute", "weighted"]
            .into_iter()
            .chain(Rule::ALL.map(Rule::name))
            .map(str::to_owned)
            .collect(),
    }
}

fn chooser(name: &str, workers: u64, index_blocks: usize, seed: u64) -> Result<Chooser> {
    let options = match name {
        "oracle" => return Ok(Chooser::Oracle),
        "warmroute" => Some(PickOptions::default()),
        "weighted" => Some(PickOptions {
            profile: Profile::Weighted(Weights::default()),
            ..PickOptions::default()
        }),
        _ => None,
    };
    let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name);
    let mut gateways: Vec<Box<dyn Gateway>> = Vec::new();
    for worker in 0..workers {
        let seed = seed.wrapping_mul(1000).wrapping_add(worker);
        gateways.push(match (&options, rule) {
            (Some(options), _) => Box::new(Warm::new(options.clone(), index_blocks, seed)),
            (None, Some(rule)) => Box::new(Ruled::new(rule, index_blocks, seed)),
            (None, None) => bail!("POLICIES: no policy is called {name}"),
        });
    }
    Ok(Chooser::Workers(gateways))
}
