//! Every file of `tests/scenarios` that names the level `envoy`, on a real Envoy with the built plugin: its
//! hosts are servers, its requests go over sockets.

mod bootstrap;
mod engines;
mod looking;
mod player;
mod stream;
mod wire;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use warmroute_lab::stage::PATIENCE;
use warmroute_scenario::{GatewayKind, Run, Scenario, check, files};

/// Gateways at once: most of their time they wait for health checks and scrapes.
const AT_ONCE: usize = 5;
/// Fewer than this would mean that files stopped saying that they run here.
const AT_LEAST: usize = 50;

/// What is not as expected.
async fn differences(name: &str, text: &str, patience: Duration) -> Vec<String> {
    match player::play(name, text, patience).await {
        Ok((scenario, outcome)) => {
            let found = check(&scenario, &outcome);
            found.iter().map(ToString::to_string).collect()
        }
        Err(error) => vec![format!("{error:#}")],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_that_names_envoy_holds_there() {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let mut played = JoinSet::new();
    let mut table = String::new();
    for (name, text) in files().unwrap() {
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if !only.is_empty() && only != name {
            continue;
        }
        if let Run::Skip(reason) = scenario.levels.envoy {
            let _ = writeln!(table, "{name:36} skip: {reason}");
        } else if !scenario.is_about(GatewayKind::Envoy) {
            let _ = writeln!(table, "{name:36} skip: about the other gateway");
        } else {
            let slots = Arc::clone(&slots);
            played.spawn(async move {
                let _slot = slots.acquire().await.unwrap();
                let started = std::time::Instant::now();
                let wrong = differences(&name, &text, PATIENCE).await;
                (name, wrong, started.elapsed())
            });
        }
    }
    let (mut count, mut failed) = (0, String::new());
    while let Some(done) = played.join_next().await {
        let (name, wrong, took) = done.unwrap();
        let word = if wrong.is_empty() { "pass" } else { "FAIL" };
        let _ = writeln!(table, "{name:36} {word} {took:.1?}");
        if !wrong.is_empty() {
            let _ = writeln!(failed, "{name}:\n        {}", wrong.join("\n        "));
        }
        count += 1;
    }
    println!("{table}{count} files on a real Envoy");
    assert!(failed.is_empty(), "\n{failed}");
    assert!(count >= AT_LEAST || !only.is_empty(), "{count}");
}

/// A wrong pick, a wrong header and a wrong count are told, with what was wanted and what came.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_expectation_is_told() {
    let files = files().unwrap();
    let (name, text) = files
        .iter()
        .find(|(name, _)| name == "warm-prefix")
        .unwrap();
    let wrong = text
        .replace("same_as: first turn", "not_as: first turn")
        .replace(
            "        to: second turn\n",
            "        to: second turn\n        downstream_headers: {x-lab-none: there}\n",
        );
    let wrong = format!("{wrong}\nexpect:\n  metrics: {{warmroute_request_total: 3}}\n");
    let told = differences(&format!("{name}-wrong"), &wrong, Duration::from_secs(2)).await;
    assert_eq!(told.len(), 3, "{told:#?}");
    assert!(told[0].starts_with(r#"second turn: pick: wanted NotAs("first turn"), got"#));
    assert!(told[1].starts_with("second turn: response header x-lab-none: wanted"));
    assert_eq!(told[2], "metric warmroute_request_total: wanted 3, got 2");
}
