//! Every file of `tests/scenarios`, on every level that it names: natively, and on both built plugins.
//!
//! The artifacts come from `make build`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use warmroute::fallback::Fallback;
use warmroute_harness::built;
use warmroute_harness::host::{Artifact, Profile};
use warmroute_harness::scenario::{
    Action, GatewayKind, Outcome, Pick, Run, Scenario, Step, check, run_in_harness, run_native,
};

const KINDS: [GatewayKind; 2] = [GatewayKind::Higress, GatewayKind::Envoy];

fn artifact(kind: GatewayKind) -> Artifact {
    let profile = match kind {
        GatewayKind::Envoy => Profile::Envoy,
        GatewayKind::Higress => Profile::Higress,
    };
    built::artifact(profile).unwrap()
}

/// File name and scenario, by name.
fn files() -> Vec<(String, Scenario)> {
    let files = warmroute_harness::scenario::files().expect("the folder is there");
    let parsed = files.into_iter().map(|(name, text)| {
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, scenario)
    });
    parsed.collect()
}

/// What a level said of a file.
enum Verdict {
    Pass,
    Skip(String),
    Fail(String),
}

fn judge(
    scenario: &Scenario,
    kind: GatewayKind,
    level: &Run,
    play: impl FnOnce() -> Outcome,
) -> Verdict {
    if let Run::Skip(reason) = level {
        return Verdict::Skip(reason.clone());
    }
    if !scenario.is_about(kind) {
        return Verdict::Skip("about the other gateway".to_owned());
    }
    let differences = check(scenario, &play());
    if differences.is_empty() {
        return Verdict::Pass;
    }
    let lines = differences.iter().map(ToString::to_string);
    Verdict::Fail(lines.collect::<Vec<_>>().join("\n        "))
}

#[test]
fn every_file_holds_on_every_level_that_it_names() {
    let artifacts = KINDS.map(artifact);
    let (mut table, mut failed) = (String::new(), String::new());
    for (name, scenario) in files() {
        for (kind, artifact) in KINDS.into_iter().zip(&artifacts) {
            let native = judge(&scenario, kind, &scenario.levels.native, || {
                run_native(&scenario, kind)
            });
            let harness = judge(&scenario, kind, &scenario.levels.harness, || {
                run_in_harness(&scenario, artifact).expect("the artifact comes up")
            });
            for (level, verdict) in [("native", native), ("wasm", harness)] {
                let word = match &verdict {
                    Verdict::Pass => "pass".to_owned(),
                    Verdict::Skip(reason) => format!("skip: {reason}"),
                    Verdict::Fail(_) => "FAIL".to_owned(),
                };
                let _ = writeln!(table, "{name:36} {kind:?} {level:6} {word}");
                if let Verdict::Fail(lines) = verdict {
                    let _ = writeln!(failed, "{name}, {kind:?} {level}:\n        {lines}");
                }
            }
        }
    }
    println!("{table}");
    assert!(failed.is_empty(), "\n{failed}");
}

#[test]
fn each_file_runs_somewhere_and_there_are_enough() {
    let files = files();
    assert!(files.len() >= 36, "{}", files.len());
    for (name, scenario) in &files {
        let levels = [
            &scenario.levels.native,
            &scenario.levels.harness,
            &scenario.levels.envoy,
        ];
        assert!(levels.into_iter().any(|level| *level == Run::Run), "{name}");
    }
}

#[test]
fn every_reason_to_fall_back_is_in_a_file() {
    let named: BTreeSet<String> = files()
        .into_iter()
        .flat_map(|(_, scenario)| scenario.expect.metrics)
        .filter(|(_, count)| *count > 0)
        .map(|(name, _)| name)
        .collect();
    for reason in Fallback::ALL {
        let name = format!("warmroute_fallback_total.reason.{}", reason.name());
        assert!(named.contains(&name), "no file expects {name}");
    }
}

/// Whatever a host function answers, and whenever: no trap, nothing hangs, no reply of our own, no byte
/// of a body changed, and all counts go back to 0.
#[test]
fn any_host_function_may_fail() {
    let (_, scenario) = files()
        .into_iter()
        .find(|(name, _)| name == "host-function-fails")
        .expect("the file is there");
    for artifact in KINDS.map(artifact) {
        let imports = artifact.imports();
        let functions = imports
            .iter()
            .filter_map(|import| import.strip_prefix("env."));
        for function in functions {
            for status in [2, 6, 10, 12] {
                for nth in [None, Some(1), Some(3)] {
                    let mut scenario = scenario.clone();
                    let fault = Action::Fault {
                        function: function.to_owned(),
                        nth,
                        status,
                    };
                    let step = Step {
                        at_ms: None,
                        action: fault,
                    };
                    scenario.steps.insert(0, step);
                    let outcome = run_in_harness(&scenario, &artifact).expect("it comes up");
                    // Where it goes, and what of it is shown, is free.
                    let is_free =
                        |place: &str| place.contains(": pick") || place.contains(" header ");
                    let wrong: Vec<_> = check(&scenario, &outcome)
                        .into_iter()
                        .filter(|difference| !is_free(&difference.place))
                        .map(|difference| difference.to_string())
                        .collect();
                    assert!(
                        wrong.is_empty(),
                        "{function}, {nth:?}: {status}: {wrong:#?}"
                    );
                }
            }
        }
    }
}

/// A wrong pick and a wrong count are told, with what was wanted and what came, on each level.
#[test]
fn a_wrong_expectation_is_told() {
    let (_, mut scenario) = files()
        .into_iter()
        .find(|(name, _)| name == "warm-prefix")
        .expect("the file is there");
    for step in &mut scenario.steps {
        if let Action::Request(request) = &mut step.action
            && request.name == "second turn"
        {
            request.pick = Pick::NotAs("first turn".to_owned());
        }
    }
    let wrong = ("warmroute_request_total".to_owned(), 3);
    scenario.expect.metrics.extend([wrong]);
    for kind in KINDS {
        let native = run_native(&scenario, kind);
        let wasm = run_in_harness(&scenario, &artifact(kind)).expect("it comes up");
        for outcome in [native, wasm] {
            let told: Vec<_> = check(&scenario, &outcome)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told[0].starts_with(r#"second turn: pick: wanted NotAs("first turn"), got"#));
            assert_eq!(told[1], "metric warmroute_request_total: wanted 3, got 2");
        }
    }
}
