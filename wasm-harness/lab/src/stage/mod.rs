//! What tests of the real gateway stand on: an Envoy with the plugin before engines, and a client
//! that reads what was decided.
//!
//! Invariants
//! - nothing waits for a fixed time: what is expected is polled until [`PATIENCE`] ends;
//! - every request has a number of its own in [`REQUEST_HEADER`], by which engines' logs are read.

mod scripted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::client::{Answer, Call, Client, Protocol};
use crate::engine_sim::{EngineSim, LogEntry, SimOptions};
use crate::envoy::{Envoy, EnvoyOptions, Routing, SERVED_HEADER, plugin_configuration};
use crate::play::REQUEST_HEADER;

pub use scripted::{Asked, Part, Script, ScriptedEngine};

/// How long something that must come may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
/// The response header of `debug.header`.
pub const DECISION_HEADER: &str = "x-warmroute-decision";
/// The path of chat completions.
pub const CHAT: &str = "/v1/chat/completions";

/// Simulators that answer as fast as they can: an answer's content is asked for, not its time.
pub fn swift() -> SimOptions {
    SimOptions {
        prefill_tokens_per_s: 4e6,
        inter_token_ms: 0.2,
        default_output_tokens: 2,
        num_gpu_blocks: 60_000,
        ..SimOptions::default()
    }
}

/// Starts `count` simulators.
///
/// # Errors
/// No free socket.
pub async fn sims(count: usize, options: &SimOptions) -> anyhow::Result<Vec<EngineSim>> {
    let mut sims = Vec::with_capacity(count);
    for _ in 0..count {
        sims.push(EngineSim::start(options.clone()).await?);
    }
    Ok(sims)
}

/// `host:port` of each.
pub fn addresses(sims: &[EngineSim]) -> Vec<String> {
    sims.iter().map(|sim| sim.addr.to_string()).collect()
}

/// The shipped configuration of the plugin with `debug.header`, and `changes` put over it.
///
/// # Errors
/// `envoy/envoy.yaml` is missing or of another shape.
pub fn configuration(changes: Value) -> anyhow::Result<Value> {
    let mut configuration = plugin_configuration()?;
    configuration["debug"] = json!({"header": true});
    if let (Value::Object(all), Value::Object(changes)) = (&mut configuration, changes) {
        all.extend(changes);
    }
    Ok(configuration)
}

/// The routing through the built plugin with this configuration.
pub fn through_plugin(configuration: Value) -> Routing {
    Routing::Warmroute {
        wasm: crate::tree_root().join("dist/warmroute-envoy.wasm"),
        configuration,
    }
}

/// What [`DECISION_HEADER`] says of a steered request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The pick.
    pub endpoint: String,
    /// Why it.
    pub branch: String,
    /// Blocks that the pick is believed to hold.
    pub matched: u64,
    /// Blocks of the prompt.
    pub total: u64,
    /// The budget that cut the prompt.
    pub cut: Option<String>,
    /// Addresses of the pick and the next best, in the order in which they are tried.
    pub ranking: Vec<String>,
}

impl Decision {
    /// Reads the header; `None` when the request was left to the gateway.
    pub fn of(answer: &Answer) -> Option<Self> {
        let text = answer.header(DECISION_HEADER)?;
        let field = |name: &str| {
            let mut pairs = text.split(';').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let (matched, total) = field("blocks")?.split_once('/')?;
        let costs = field("costs").unwrap_or_default().split(',');
        Some(Self {
            endpoint: field("endpoint")?.to_owned(),
            branch: field("branch")?.to_owned(),
            matched: matched.parse().ok()?,
            total: total.parse().ok()?,
            cut: field("cut").map(str::to_owned),
            ranking: costs
                .filter_map(|cost| Some(cost.rsplit_once(':')?.0.to_owned()))
                .collect(),
        })
    }
}

/// The reason for which a request was left to the gateway.
pub fn fallback(answer: &Answer) -> Option<&str> {
    answer.header(DECISION_HEADER)?.strip_prefix("fallback=")
}

/// The engine that answered.
pub fn served_by(answer: &Answer) -> &str {
    answer.header(SERVED_HEADER).unwrap_or_default()
}

/// A chat of plain text messages, alternating between user and assistant behind a system prompt. Keys
/// stand in the order in which clients write them.
pub fn chat(system: &str, messages: &[String]) -> String {
    let roles = ["user", "assistant"].into_iter().cycle();
    let mut body = String::from(r#"{"model":"sim","max_tokens":2,"messages":["#);
    for (role, content) in [("system", system)]
        .into_iter()
        .chain(roles.zip(messages.iter().map(String::as_str)))
    {
        if !body.ends_with('[') {
            body.push(',');
        }
        body.push_str(&format!(
            r#"{{"role":"{role}","content":{}}}"#,
            json!(content)
        ));
    }
    body.push_str("]}");
    body
}

/// Text of about `bytes` bytes that no other `seed` gives.
pub fn text(seed: u64, bytes: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7ea5_e11e);
    let mut text = format!("Text {seed}.");
    while text.len() < bytes {
        let length = rng.usize(2..9);
        text.push(' ');
        text.extend((0..length).map(|_| rng.lowercase()));
    }
    text.truncate(bytes);
    text
}

/// A call with a number of its own.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// Value of [`REQUEST_HEADER`].
    pub number: String,
    /// The call, which has it.
    pub call: Call,
}

/// Gives a call its number.
pub fn numbered(call: Call) -> Numbered {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    let call = call.header(REQUEST_HEADER, &number);
    Numbered { number, call }
}

/// The gateway with the plugin, and clients for it.
#[derive(Debug)]
pub struct Stage {
    /// The gateway.
    pub envoy: Envoy,
    /// HTTP/1.1.
    pub http1: Client,
    /// HTTP/1.1, a connection a request: workers take turns.
    pub fresh: Client,
    /// HTTP/2.
    pub h2: Client,
}

impl Stage {
    /// Starts the gateway with the shipped configuration for these endpoints, and waits until the
    /// plugin has read each.
    ///
    /// # Errors
    /// Something does not start, or the plugin does not find its endpoints.
    pub async fn start(workers: u32, endpoints: Vec<String>) -> anyhow::Result<Self> {
        let count = endpoints.len();
        let stage = Self::with(workers, endpoints, json!({}), |_| {}).await?;
        stage.ready(count).await?;
        Ok(stage)
    }

    /// Starts a gateway with changes to the plugin's configuration and to the bootstrap; waits for
    /// nothing but Envoy.
    ///
    /// # Errors
    /// It does not start.
    pub async fn with(
        workers: u32,
        endpoints: Vec<String>,
        changes: Value,
        edit: impl Fn(&mut Value),
    ) -> anyhow::Result<Self> {
        let options = EnvoyOptions {
            concurrency: workers,
            health_check_interval: Some("0.25s".into()),
            ..EnvoyOptions::new(endpoints, through_plugin(configuration(changes)?))
        };
        Ok(Self::of(Envoy::start_edited(&options, edit).await?))
    }

    /// Clients for a gateway.
    pub fn of(envoy: Envoy) -> Self {
        Self {
            envoy,
            http1: Client::new(Protocol::Http1),
            fresh: Client::without_reuse(Protocol::Http1),
            h2: Client::new(Protocol::H2c),
        }
    }

    /// Waits until requests are steered with so many endpoints to choose from, by every worker that
    /// connections reach: for longer than a worker's view may be old. What it sends is shorter than
    /// a block.
    ///
    /// # Errors
    /// They are not, in [`PATIENCE`].
    pub async fn ready(&self, endpoints: usize) -> anyhow::Result<()> {
        // Decisions name the best three.
        let named = endpoints.min(3);
        const IN_A_ROW: u32 = 12;
        const VIEW: Duration = Duration::from_millis(300);
        let deadline = Instant::now() + PATIENCE;
        let body = json!({"model": "sim", "max_tokens": 1, "messages": [
            {"role": "user", "content": "ready?"},
        ]});
        let (mut steered, mut since) = (0, Instant::now());
        while steered < IN_A_ROW || since.elapsed() < VIEW {
            let call = Call::post_json(CHAT, body.to_string());
            let answer = self.send_by(&self.fresh, &call).await?;
            if Decision::of(&answer).is_some_and(|decision| decision.ranking.len() >= named) {
                steered += 1;
                continue;
            }
            let note = answer.header(DECISION_HEADER);
            ensure!(Instant::now() < deadline, "still not steered: {note:?}");
            (steered, since) = (0, Instant::now());
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Sends over HTTP/1.1.
    ///
    /// # Errors
    /// No answer.
    pub async fn send(&self, call: &Call) -> anyhow::Result<Answer> {
        self.send_by(&self.http1, call).await
    }

    /// Sends over the given client.
    ///
    /// # Errors
    /// No answer.
    pub async fn send_by(&self, client: &Client, call: &Call) -> anyhow::Result<Answer> {
        let authority = self.envoy.authority();
        tokio::time::timeout(PATIENCE, client.send(&authority, call))
            .await
            .with_context(|| format!("no answer to {} {}", call.method, call.path))?
    }

    /// Sends a chat over a connection of its own; the answer has to be a 200 that was decided.
    ///
    /// # Errors
    /// It is not.
    pub async fn steered(&self, body: &str) -> anyhow::Result<(Answer, Decision)> {
        let call = numbered(Call::post_json(CHAT, body.to_owned())).call;
        let answer = self.send_by(&self.fresh, &call).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        let note = answer.header(DECISION_HEADER).map(str::to_owned);
        let decision = Decision::of(&answer).with_context(|| format!("not steered: {note:?}"))?;
        Ok((answer, decision))
    }

    /// One of the plugin's counters or gauges, named without the endpoint of all together; 0 before it was
    /// first touched.
    ///
    /// # Errors
    /// The admin interface does not answer.
    pub async fn count(&self, name: &str) -> anyhow::Result<u64> {
        Ok(sum(
            &self.envoy.stats().await?,
            &format!("wasmcustom.{name}"),
        ))
    }

    /// Waits until a counter or gauge of the plugin is as wanted.
    ///
    /// # Errors
    /// It was not, in [`PATIENCE`].
    pub async fn until(&self, name: &str, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
        self.until_stat(&format!("wasmcustom.{name}"), wanted).await
    }

    /// Waits until any of Envoy's counters or gauges is as wanted.
    ///
    /// # Errors
    /// It was not, in [`PATIENCE`].
    pub async fn until_stat(&self, name: &str, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.envoy.stats().await?;
            let value = sum(&stats, name);
            if wanted(value) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = self.envoy.log();
                bail!("{name} stays at {value}; Envoy says:\n{log}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn sum(stats: &BTreeMap<String, u64>, name: &str) -> u64 {
    let is_it = |known: &str| {
        let label = known.strip_prefix(name);
        label.is_some_and(|label| label.is_empty() || label.starts_with(".endpoint."))
    };
    let named = stats.iter().filter(|(known, _)| is_it(known));
    named.map(|(_, count)| count).sum()
}

/// Where a numbered request arrived: the engine's place and what it logged.
pub fn arrivals(sims: &[EngineSim], number: &str) -> Vec<(usize, LogEntry)> {
    let mut found = Vec::new();
    for (place, sim) in sims.iter().enumerate() {
        let log = sim.log().into_iter();
        found.extend(
            log.filter(|entry| entry.header(REQUEST_HEADER) == Some(number))
                .map(|entry| (place, entry)),
        );
    }
    found
}

/// Waits until `is_so` says so.
///
/// # Errors
/// It did not, in [`PATIENCE`].
pub async fn until(what: &str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
