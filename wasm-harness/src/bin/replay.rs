//! `make replay`: what each way of choosing endpoints is worth, on a trace or generated traffic.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use warmroute_harness::built;
use warmroute_harness::host::{Artifact, Profile};
use warmroute_harness::replay::engine::EngineOptions;
use warmroute_harness::replay::plugin::{PluginOptions, Process, STORE};
use warmroute_harness::replay::report::{Row, table};
use warmroute_harness::replay::rules::{Rule, Ruled};
use warmroute_harness::replay::simulate::{Chooser, Disturbance, What, World, run};
use warmroute_harness::replay::store::Store;
use warmroute_harness::replay::workload::{Kind, generate, spread, trace};
use warmroute_harness::replay::{Gateway, Request};

const HELP: &str = "\
Settings come from the environment:
  TRACE      a trace file, or chat, agents, documents, tenants, one_shot, bursts [chat]
  REQUESTS   requests to play [3000]
  SPEED      how many times as fast a trace is played [1]
  SPREAD_MS  each request of a trace comes up to so much later: where its clock is coarse [0]
  LOAD       share of their time that generated traffic keeps engines busy [0.6]
  ENGINES    engines [8]
  CACHE      blocks of 512 tokens that an engine's cache holds [1500]
  WORKERS    workers of a gateway process [1]
  REPLICAS   gateway processes; requests spread over all workers of all of them [1]
  ASSIGNMENT which worker each request comes to: a number for each way [0]
  EXCHANGE   on, off: whether the plugin's workers share what they know [on]
  STORE      on, off: whether the plugin's replicas have a store, every 100 ms [off]
  CONFIG     more of the plugin's configuration, JSON [{}]
  CACHED     on, off: whether engines tell cached_tokens [on]
  PLUGIN     the artifact [dist/warmroute-higress.wasm]
  SCRAPE_MS  time between two readings of metrics [1000]
  SLOW       how much longer a prefill takes beside many decodes (1 = twice) [0]
  DISTURB    restart, clear, add, fail: what happens in the middle of the run
  POLICIES   names, comma-separated [all]
  SEED       [1]
  OUT        the file for the figures as JSON [target/report/replay.json]";

fn main() -> Result<()> {
    if std::env::args().len() > 1 {
        println!("{HELP}");
        return Ok(());
    }
    let engines = number("ENGINES", 8.0)? as usize;
    let seed = number("SEED", 1.0)? as u64;
    let engine = EngineOptions {
        cache_blocks: number("CACHE", 1500.0)? as usize,
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
        assignment: number("ASSIGNMENT", 0.0)? as u64,
        disturbances,
    };
    let workers = (number("WORKERS", 1.0)? as u64).max(1);
    let replicas = (number("REPLICAS", 1.0)? as u64).max(1);
    let mut rows = Vec::new();
    for name in policies() {
        let chooser = match name.as_str() {
            "oracle" => Chooser::Oracle,
            "warmroute" => plugin("cost", replicas, workers)?,
            "weighted" => plugin("default", replicas, workers)?,
            rule => ruled(rule, replicas * workers, engine.cache_blocks, seed)?,
        };
        let outcome = run(&world, &requests, chooser);
        let part = (middle + 60_000.0, middle + 360_000.0);
        rows.push(Row::of(&name, &outcome, &requests, part));
    }
    print!("{}", table(&rows));
    let path = match std::env::var("OUT") {
        Ok(path) if !path.is_empty() => PathBuf::from(path),
        _ => built::report("replay.json")?,
    };
    let figures = serde_json::to_string_pretty(&rows)?;
    std::fs::write(&path, figures).with_context(|| path.display().to_string())?;
    println!("written to {}", path.display());
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
        None => {
            let mut requests = trace(Path::new(name), count, number("SPEED", 1.0)?)?;
            spread(&mut requests, number("SPREAD_MS", 0.0)?, seed);
            Ok(requests)
        }
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

fn is_on(name: &str, otherwise: bool) -> Result<bool> {
    match std::env::var(name).unwrap_or_default().as_str() {
        "" => Ok(otherwise),
        "on" => Ok(true),
        "off" => Ok(false),
        other => bail!("{name}={other}: expected on or off"),
    }
}

/// The built plugin with a profile.
fn plugin(profile: &str, replicas: u64, workers: u64) -> Result<Chooser> {
    let artifact = match std::env::var("PLUGIN").unwrap_or_default().as_str() {
        "" => built::artifact(Profile::Higress)?,
        path => Artifact::load(&std::fs::read(path).with_context(|| path.to_owned())?)?,
    };
    let mut config = serde_json::Map::new();
    if let Ok(text) = std::env::var("CONFIG") {
        config = serde_json::from_str(&text).context("CONFIG")?;
    }
    config.insert("profile".to_owned(), profile.into());
    config.insert("exchange".to_owned(), is_on("EXCHANGE", true)?.into());
    let has_store = is_on("STORE", false)?;
    if has_store {
        let replicas = serde_json::json!({"store": "redis", "cluster": STORE});
        config.entry("replicas").or_insert(replicas);
    }
    let options = PluginOptions {
        config: serde_json::Value::Object(config).to_string(),
        tells_cached: is_on("CACHED", true)?,
    };
    let mut gateways: Vec<Box<dyn Gateway>> = Vec::new();
    let store = Store::default();
    for replica in 0..replicas {
        let mut process = if has_store {
            Process::replica(&artifact, &options, replica, &store)
        } else {
            Process::new(&artifact, &options)
        };
        for _ in 0..workers {
            gateways.push(Box::new(process.worker()?));
        }
    }
    Ok(Chooser::Workers(gateways))
}

fn ruled(name: &str, workers: u64, index_blocks: usize, seed: u64) -> Result<Chooser> {
    let Some(rule) = Rule::ALL.into_iter().find(|rule| rule.name() == name) else {
        bail!("POLICIES: no policy is called {name}")
    };
    let seeds = (0..workers).map(|worker| seed.wrapping_mul(1000).wrapping_add(worker));
    let gateways =
        seeds.map(|seed| Box::new(Ruled::new(rule, index_blocks, seed)) as Box<dyn Gateway>);
    Ok(Chooser::Workers(gateways.collect()))
}
