//! The plugin's configuration is replaced while requests go on: a listener that a file names (LDS), as a
//! control plane replaces it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use warmroute_lab::client::Call;
use warmroute_lab::envoy::{Envoy, EnvoyOptions};
use warmroute_lab::stage::{
    CHAT, DECISION_HEADER, PATIENCE, Part, Script, ScriptedEngine, Stage, chat, configuration,
    text, through_plugin,
};

const WORKERS: u32 = 2;
const ENGINES: u64 = 2;
const FIRST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const LAST: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":900}}\n\ndata: [DONE]\n\n";
const VALUE: &str = "/filter_chains/0/filters/0/typed_config/http_filters/0/typed_config/config/configuration/value";

/// The file that names the listener; it goes with its owner.
struct Listener {
    folder: PathBuf,
    listener: Mutex<Value>,
}

impl Listener {
    fn new() -> Self {
        let name = format!("warmroute-reconfigured-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            folder,
            listener: Mutex::default(),
        }
    }

    /// Moves the bootstrap's listener into the file.
    fn take_over(&self, bootstrap: &mut Value) {
        let listeners = bootstrap["static_resources"]["listeners"].take();
        *self.listener.lock().unwrap() = listeners[0].clone();
        bootstrap["static_resources"]["listeners"] = json!([]);
        bootstrap["node"] = json!({"id": "lab", "cluster": "lab"});
        bootstrap["dynamic_resources"] = json!({"lds_config": {"path_config_source": {
            "path": self.folder.join("lds.json"),
            "watched_directory": {"path": self.folder},
        }}});
        self.write();
    }

    /// A new file is moved over the old one: Envoy never sees half of it.
    fn write(&self) {
        let mut listener = self.listener.lock().unwrap().clone();
        listener["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
        let response = json!({"resources": [listener]});
        let (fresh, path) = (self.folder.join("next"), self.folder.join("lds.json"));
        std::fs::write(&fresh, response.to_string()).unwrap();
        std::fs::rename(fresh, path).unwrap();
    }

    /// Gives the plugin another configuration.
    fn configure(&self, configuration: &Value) {
        *self.listener.lock().unwrap().pointer_mut(VALUE).unwrap() =
            json!(configuration.to_string());
        self.write();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn body(seed: u64) -> String {
    chat(&text(seed, 3000), &[text(seed + 1, 300)])
}

/// Requests one after the other, each over a connection of its own, until it is told to stop.
struct Traffic {
    goes_on: AtomicBool,
    answered: AtomicU64,
    faults: Mutex<Vec<String>>,
}

impl Traffic {
    fn start(stage: &Arc<Stage>) -> (Arc<Self>, JoinHandle<()>) {
        let traffic = Arc::new(Self {
            goes_on: AtomicBool::new(true),
            answered: AtomicU64::new(0),
            faults: Mutex::default(),
        });
        let (stage, shared) = (Arc::clone(stage), Arc::clone(&traffic));
        let task = tokio::spawn(async move {
            let mut seed = 0;
            while shared.goes_on.load(Ordering::Relaxed) {
                seed += 10;
                let call = Call::post_json(CHAT, body(seed));
                let fault = match stage.send_by(&stage.fresh, &call).await {
                    Ok(answer) if answer.status == 200 => None,
                    Ok(answer) => Some(format!("{}: {}", answer.status, answer.text())),
                    Err(error) => Some(format!("{error:#}")),
                };
                shared.faults.lock().unwrap().extend(fault);
                shared.answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        (traffic, task)
    }

    /// Waits for so many more answers.
    async fn more(&self, count: u64) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        warmroute_lab::stage::until("more answers", || {
            self.answered.load(Ordering::Relaxed) >= wanted
        })
        .await
        .unwrap();
    }
}

/// Waits until every answer shows the decision, or none does.
async fn until_shown(stage: &Stage, is_shown: bool) {
    const IN_A_ROW: u32 = 12;
    let deadline = Instant::now() + PATIENCE;
    let mut as_wanted = 0;
    while as_wanted < IN_A_ROW {
        let call = Call::post_json(CHAT, body(1));
        let answer = stage.send_by(&stage.fresh, &call).await.unwrap();
        assert_eq!(answer.status, 200);
        let note = answer.header(DECISION_HEADER);
        as_wanted = if note.is_some() == is_shown {
            as_wanted + 1
        } else {
            0
        };
        let log = stage.envoy.log();
        assert!(
            Instant::now() < deadline,
            "still {note:?}; Envoy says:\n{log}"
        );
    }
}

/// Waits until every worker says that it hears the others.
async fn until_all_hear(stage: &Stage) {
    let deadline = Instant::now() + PATIENCE;
    let mut hearing = BTreeSet::new();
    while hearing.len() < WORKERS as usize {
        let call = Call::get("/page?format=json");
        let answer = stage.send_by(&stage.fresh, &call).await.unwrap();
        let page = answer.json().unwrap();
        let heard = &page["clusters"][0]["workers_heard"];
        if *heard == u64::from(WORKERS) - 1 {
            hearing.insert(page["worker"].as_u64());
        }
        assert!(Instant::now() < deadline, "{page}");
    }
}

/// Engines that answer with a stream of two frames; between them, where the request says `x-long`, they wait for `gate`.
async fn engines(gate: &Arc<Notify>) -> Vec<ScriptedEngine> {
    let mut engines = Vec::new();
    for _ in 0..ENGINES {
        let gate = Arc::clone(gate);
        let engine = ScriptedEngine::start(([127, 0, 0, 1], 0).into(), move |asked| {
            match asked.path.as_str() {
                "/health" => Script::ok("text/plain", &[]),
                "/metrics" => Script::ok("text/plain", &["vllm:num_requests_running 0.0\n"]),
                _ => {
                    let mut script = Script::ok("text/event-stream", &[FIRST, LAST]);
                    if asked.headers.contains_key("x-long") {
                        script.parts.insert(1, Part::Wait(Arc::clone(&gate)));
                    }
                    script
                }
            }
        });
        engines.push(engine.await.unwrap());
    }
    engines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_replaced_while_requests_go_on() {
    let gate = Arc::new(Notify::new());
    let engines = engines(&gate).await;
    let endpoints = engines.iter().map(|engine| engine.addr.to_string());
    let debug = |header: bool| json!({"debug": {"header": header, "path": "/page"}});
    let [shown, hidden] = [true, false].map(|header| configuration(debug(header)).unwrap());
    let listener = Listener::new();
    let options = EnvoyOptions {
        concurrency: WORKERS,
        health_check_interval: Some("0.25s".into()),
        drain_time_s: 6,
        ..EnvoyOptions::new(endpoints.collect(), through_plugin(shown.clone()))
    };
    let envoy = Envoy::start_edited(&options, |bootstrap| listener.take_over(bootstrap));
    let stage = Arc::new(Stage::of(envoy.await.unwrap()));
    stage.ready(2).await.unwrap();

    let (traffic, task) = Traffic::start(&stage);
    until_all_hear(&stage).await;
    let known = u64::from(WORKERS) * ENGINES;
    stage
        .until("warmroute_endpoints", |level| level == known)
        .await
        .unwrap();

    // A stream that begins before the change and ends after it.
    let call = Call::post_json(CHAT, body(5)).header("x-long", "yes");
    let authority = stage.envoy.authority();
    let mut long = stage.fresh.open(&authority, &call).await.unwrap();
    let frame = long.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), FIRST);

    listener.configure(&hidden);
    until_shown(&stage, false).await;
    gate.notify_one();
    let rest = long.body_mut().collect().await.unwrap();
    assert_eq!(rest.to_bytes(), LAST);
    traffic.more(30).await;
    until_all_hear(&stage).await;
    // Until its connections are drained the replaced one is in the levels as well; then no longer.
    let draining = "listener_manager.total_filter_chains_draining";
    stage
        .until_stat(draining, |count| count == 0)
        .await
        .unwrap();
    stage
        .until("warmroute_endpoints", |level| level == known)
        .await
        .unwrap();

    // A typo is refused, and all goes on as before.
    let rejected = "listener_manager.lds.update_rejected";
    stage
        .until_stat(rejected, |count| count == 0)
        .await
        .unwrap();
    listener.configure(&configuration(json!({"exchnage": true})).unwrap());
    stage
        .until_stat(rejected, |count| count == 1)
        .await
        .unwrap();
    assert!(stage.envoy.log().contains("exchnage: unknown key"));
    traffic.more(30).await;
    until_shown(&stage, false).await;

    listener.configure(&shown);
    until_shown(&stage, true).await;
    until_all_hear(&stage).await;

    traffic.goes_on.store(false, Ordering::Relaxed);
    task.await.unwrap();
    stage
        .until("warmroute_inflight", |level| level == 0)
        .await
        .unwrap();
    let faults = traffic.faults.lock().unwrap();
    assert!(faults.is_empty(), "{faults:?}");
}
