//! `warmroute-lab run` as a process, as `make run` starts it: what it prints, writes, ends with and leaves
//! behind.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::Command;
use warmroute_lab::engine_sim::{EngineSim, Faults, SimOptions};

fn json_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn command(json: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmroute-lab"));
    command
        .args(["run", "--json"])
        .arg(json)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for variable in ["ENGINES", "TRACE", "SPEED", "LIMIT", "PLUGIN", "CONFIG"] {
        command.env_remove(variable);
    }
    command
}

async fn run(json: &Path, arguments: &[&str]) -> Output {
    let policies = ["--policies", "round-robin,least-request"];
    let arguments = [&policies[..], arguments].concat();
    command(json, &arguments).output().await.unwrap()
}

fn read(json: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

/// Twelve requests in half a second at `--speed 10`, all of which share their first block.
fn trace(name: &str) -> String {
    let path = json_path(name);
    let line = |i: u32| {
        let (at, ids) = (i * 400, [0, i % 3 + 1, i + 10]);
        format!(
            "{{\"timestamp\": {at}, \"input_length\": 1400, \"output_length\": 2, \"hash_ids\": {ids:?}}}\n"
        )
    };
    std::fs::write(&path, (0..12).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn simulators_of_its_own_and_a_trace() {
    let json = json_path("trace.json");
    let trace = trace("own.jsonl");
    let arguments = ["--trace", &trace, "--speed", "10", "--limit", "10"];
    let output = run(&json, &arguments).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.contains("least request against round robin: "),
        "{said}"
    );
    let report = read(&json);
    assert_eq!(report["engines"].as_array().unwrap().len(), 4);
    for row in report["rows"].as_array().unwrap() {
        assert_eq!((&row["requests"], &row["errors"]), (&10.into(), &0.into()));
        assert_eq!(row["identical_bodies"], 10);
        // Ten requests over four engines: block 0 is found again on each.
        assert!(row["hit_tokens"].as_u64().unwrap() >= 6 * 512, "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_that_are_already_there_meet_new_prompts_for_every_policy() {
    let sim = EngineSim::start(SimOptions {
        model: "already-here".into(),
        prefill_tokens_per_s: 1e6,
        inter_token_ms: 0.1,
        hide_cached_tokens: true,
        ..SimOptions::default()
    })
    .await
    .unwrap();
    let json = json_path("engines.json");
    let (engine, trace) = (sim.addr.to_string(), trace("engines.jsonl"));
    let output = run(
        &json,
        &["--engines", &engine, "--trace", &trace, "--speed", "10"],
    )
    .await;
    assert!(output.status.success(), "{output:?}");
    let report = read(&json);
    assert_eq!(report["engines"], serde_json::json!([engine]));
    let row = &report["rows"][1];
    assert_eq!(
        (&row["hit_tokens"], &row["identical_bodies"]),
        (&Value::Null, &Value::Null)
    );
    let log: Vec<_> = sim
        .log()
        .into_iter()
        .filter(|entry| entry.method == "POST")
        .collect();
    let (first, second) = log.split_at(log.len() / 2);
    assert_eq!((first.len(), second.len()), (12, 12));
    assert_eq!((first[0].cached_tokens, second[0].cached_tokens), (0, 0));
    assert!(second[1].cached_tokens > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_requests_fail_the_run() {
    let sim = EngineSim::start(SimOptions::default()).await.unwrap();
    sim.set_faults(Faults {
        fail: Some((500, "/v1/chat".into())),
        ..Faults::default()
    });
    let json = json_path("failed.json");
    let (engine, trace) = (sim.addr.to_string(), trace("failed.jsonl"));
    let output = run(
        &json,
        &["--engines", &engine, "--trace", &trace, "--speed", "10"],
    )
    .await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("first error: 500"), "{said}");
    let row = &read(&json)["rows"][0];
    assert_eq!(row["errors"], row["requests"]);
}

/// What a process with this number would have left: a gateway's folder, and a process that reads from it.
fn left_by(process: u32) -> Vec<String> {
    let mark = format!("warmroute-lab-{process}-");
    let names = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let folders = names(&std::env::temp_dir()).into_iter();
    let folders = folders.map(|path| path.display().to_string());
    let processes = names(Path::new("/proc")).into_iter();
    let processes = processes.filter_map(|path| {
        let command = std::fs::read(path.join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&command).into_owned())
    });
    folders
        .chain(processes)
        .filter(|text| text.contains(&mark))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_three_policies_are_measured_and_nothing_stays() {
    let json = json_path("all.json");
    let trace = trace("all.jsonl");
    let mut command = command(&json, &["--trace", &trace, "--speed", "4"]);
    let child = command.spawn().unwrap();
    let process = child.id().unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = read(&json);
    let rows = report["rows"].as_array().unwrap();
    let policies: Vec<_> = rows.iter().map(|row| &row["policy"]).collect();
    assert_eq!(policies, ["round robin", "least request", "warmroute"]);
    for row in rows {
        assert_eq!((&row["requests"], &row["errors"]), (&12.into(), &0.into()));
        assert_eq!(row["identical_bodies"], 12);
        assert!(row["hit_tokens"].as_u64().unwrap() >= 4 * 512, "{row}");
    }
    assert_eq!(left_by(process), [""; 0]);
}

/// `cargo run -p warmroute-lab` has to know which binary is meant, and it is the one tested here.
#[test]
fn the_package_names_the_binary_that_make_runs() {
    let output = std::process::Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let lab = packages
        .iter()
        .find(|package| package["name"] == "warmroute-lab")
        .unwrap();
    assert_eq!(lab["default_run"], "warmroute-lab");
    let makefile = warmroute_lab::tree_root().join("Makefile");
    let makefile = std::fs::read_to_string(makefile).unwrap();
    assert!(makefile.contains("cargo run --quiet --profile native -p warmroute-lab --\n"));
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_warmroute-lab"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for target in ["run", "serve"] {
        assert!(makefile.contains(&format!("@$(LAB) {target}\n")));
        assert!(help.contains(&format!("\n  {target} ")), "{help}");
    }
}
