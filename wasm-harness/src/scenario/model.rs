//! The file format of scenarios.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use super::body::Body;

/// One scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, as a sentence.
    pub name: String,
    /// Where it runs.
    pub levels: Levels,
    /// The gateways that it is about; empty = all.
    #[serde(default)]
    pub gateways: Vec<GatewayKind>,
    /// The plugin's configuration.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Top-level fields that replace those of `config` on stock Envoy.
    #[serde(default)]
    pub config_on_envoy: serde_json::Map<String, serde_json::Value>,
    /// The same on Higress.
    #[serde(default)]
    pub config_on_higress: serde_json::Map<String, serde_json::Value>,
    /// The gateway around the plugin.
    #[serde(default)]
    pub gateway: GatewaySetup,
    /// The endpoints at the start.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// What happens, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What must come of it over all.
    #[serde(default)]
    pub expect: Expect,
}

impl Scenario {
    /// Reads a file's text.
    ///
    /// # Errors
    /// No YAML, an unknown field, a value out of place; with its line.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(serde_saphyr::from_str(text)?)
    }

    /// The configuration's text on a gateway.
    #[must_use]
    pub fn config_text(&self, gateway: GatewayKind) -> String {
        let mut config = self.config.clone();
        let own = match gateway {
            GatewayKind::Envoy => &self.config_on_envoy,
            GatewayKind::Higress => &self.config_on_higress,
        };
        config.extend(own.clone());
        serde_json::Value::Object(config).to_string()
    }

    /// Whether it is about this gateway.
    #[must_use]
    pub fn is_about(&self, gateway: GatewayKind) -> bool {
        self.gateways.is_empty() || self.gateways.contains(&gateway)
    }
}

/// A gateway, as files name it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum GatewayKind {
    /// Stock Envoy.
    Envoy,
    /// Higress.
    Higress,
}

/// Where a scenario runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// On the core, natively.
    pub native: Run,
    /// On the artifact, in the harness.
    pub harness: Run,
    /// In a real Envoy.
    pub envoy: Run,
}

/// Whether a level is run.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// Yes.
    Run,
    /// No, for this reason.
    Skip(String),
}

/// The gateway around the plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySetup {
    /// The route's name.
    pub route: String,
    /// The cluster that the hosts belong to.
    pub cluster: String,
    /// The cluster behind which Envoy's admin interface is.
    pub admin_cluster: String,
    /// Bytes of body that may be held; absent = the gateway's default.
    pub buffer_limit_bytes: Option<usize>,
    /// An older host that cuts the last frame of a body.
    pub cuts_last_frame: bool,
    /// What becomes of the plugin's own calls.
    pub callouts: Callouts,
    /// Worker threads, each with a VM of its own.
    pub workers: usize,
}

impl Default for GatewaySetup {
    fn default() -> Self {
        Self {
            route: "chat".to_owned(),
            cluster: "engines".to_owned(),
            admin_cluster: "admin".to_owned(),
            buffer_limit_bytes: None,
            cuts_last_frame: false,
            callouts: Callouts::Answered,
            workers: 1,
        }
    }
}

/// What becomes of the plugin's own calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Callouts {
    /// Answered at once, from the hosts.
    #[default]
    Answered,
    /// Answered with 503.
    Refused,
    /// Never answered.
    Never,
}

/// One endpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// `ip:port`.
    pub address: String,
    /// The cluster that it belongs to; absent = the gateway's.
    pub cluster: Option<String>,
    /// The name under which Envoy's admin interface lists it.
    pub hostname: Option<String>,
    /// Its health.
    #[serde(default)]
    pub health: Health,
    /// Its metrics, as vLLM would tell them.
    pub vllm: Option<Vllm>,
    /// Its metrics, word for word; wins over `vllm`.
    pub metrics: Option<String>,
}

impl Host {
    /// Whether it belongs to cluster `name`; `default` is the gateway's own.
    #[must_use]
    pub fn is_in(&self, name: &str, default: &str) -> bool {
        self.cluster.as_deref().unwrap_or(default) == name
    }
}

/// A host's health.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Takes requests.
    #[default]
    Healthy,
    /// Takes requests when nobody better is there.
    Degraded,
    /// Takes none.
    Unhealthy,
}

/// The few numbers of vLLM's metrics that a pick reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vllm {
    /// Requests waiting.
    pub waiting: u32,
    /// Requests running.
    pub running: u32,
    /// KV cache in use, 0..=1.
    pub kv_use: f64,
    /// Blocks of the KV cache.
    pub gpu_blocks: Option<u32>,
}

/// One thing that happens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Milliseconds after the start; never before the step above.
    #[serde(default)]
    pub at_ms: Option<u64>,
    /// What happens.
    #[serde(rename = "do")]
    pub action: Action,
}

/// What happens.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A client sends a request.
    Request(Box<Request>),
    /// The client sends the rest of the request of this name, held back until now.
    Finish(String),
    /// The upstream answers; the stream ends with the answer.
    Response(Response),
    /// The client goes away in the middle of the request of this name.
    Abort(String),
    /// The endpoints are these from now on.
    Hosts(Vec<Host>),
    /// A host function fails from now on.
    Fault {
        /// Its name.
        function: String,
        /// Which call from now, from 1; absent = every.
        nth: Option<u64>,
        /// What it answers.
        status: u32,
    },
    /// Host functions work again.
    ClearFaults,
    /// What becomes of the plugin's own calls from now on.
    Callouts(Callouts),
    /// The VM of this worker is gone with its streams; a fresh one takes its place.
    Rebuild(usize),
    /// Time passes with ticks.
    Wait,
}

/// A client's request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its name in this file.
    pub name: String,
    /// The worker that serves it, from 0.
    #[serde(default)]
    pub worker: usize,
    /// The cluster that it goes to; absent = the gateway's.
    pub cluster: Option<String>,
    /// The route that it takes; absent = the gateway's.
    pub route: Option<String>,
    /// HTTP method.
    #[serde(default = "post")]
    pub method: String,
    /// HTTP path.
    #[serde(default = "chat_completions")]
    pub path: String,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body; absent = headers end the request.
    pub body: Option<Body>,
    /// Sizes of the first chunks; the rest comes in chunks of the last size. Empty = one chunk.
    #[serde(default)]
    pub chunks: Vec<usize>,
    /// Says no `content-length`.
    #[serde(default)]
    pub chunked: bool,
    /// The end comes with these trailers, after the body.
    pub trailers: Option<BTreeMap<String, String>>,
    /// The body stops after this many bytes until a `finish` step.
    pub hold_after_bytes: Option<usize>,
    /// Where it must go.
    pub pick: Pick,
    /// Headers that the upstream must get; null = must not get, `*a*` = a value with `a` in it.
    #[serde(default)]
    pub upstream_headers: BTreeMap<String, Option<String>>,
    /// Status of a reply that the gateway or the plugin must give instead.
    pub local_reply: Option<u32>,
    /// What the access log must be told; `*a*` = something with `a` in it. Absent = it is free.
    pub access_log: Option<String>,
    /// It must hang.
    #[serde(default)]
    pub hangs: bool,
}

impl Request {
    /// `:authority`, which a header of this name sets.
    #[must_use]
    pub fn authority(&self) -> &str {
        let named = self.headers.get(":authority");
        named.map_or("llm.example", String::as_str)
    }

    /// The chunks of a body of `total` bytes from `sent` on, each with whether it ends the request; all
    /// of them when `rest`, else up to where the request holds.
    #[must_use]
    pub fn plan(&self, mut sent: usize, total: usize, rest: bool) -> Vec<(Range<usize>, bool)> {
        let held = self.hold_after_bytes.filter(|_| !rest);
        let until = held.unwrap_or(total).min(total);
        let mut sizes = self.chunks.iter().copied();
        let mut size = total;
        let mut plan = Vec::new();
        while sent < until {
            size = sizes.next().unwrap_or(size).max(1);
            let end = sent.saturating_add(size).min(until);
            plan.push((sent..end, end == total && self.trailers.is_none()));
            sent = end;
        }
        plan
    }
}

fn post() -> String {
    "POST".to_owned()
}

fn chat_completions() -> String {
    "/v1/chat/completions".to_owned()
}

/// Where a request must go.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// To this address.
    To(String),
    /// To one of these.
    OneOf(Vec<String>),
    /// Where the request of this name went.
    SameAs(String),
    /// Elsewhere than the request of this name.
    NotAs(String),
    /// Anywhere, but picked.
    Any,
    /// Left to the gateway.
    None,
}

/// The upstream's answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// The request's name.
    pub to: String,
    /// HTTP status.
    #[serde(default = "ok")]
    pub status: u16,
    /// Who served; absent = who was picked.
    pub served_by: Option<String>,
    /// How many endpoints the gateway tried; absent = 1.
    pub attempts: Option<u64>,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body chunks, word for word.
    #[serde(default)]
    pub body: Vec<String>,
    /// The answer goes on: its end does not come, the stream stays open for an `abort`.
    #[serde(default)]
    pub goes_on: bool,
    /// Headers that the client must get; null = must not get, `*a*` = a value with `a` in it.
    #[serde(default)]
    pub downstream_headers: BTreeMap<String, Option<String>>,
}

fn ok() -> u16 {
    200
}

/// What must come of a scenario over all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// The plugin refuses its configuration; no step is played then.
    pub config_refused: bool,
    /// Different endpoints among all picks.
    pub endpoints_picked_at_least: usize,
    /// Counters and gauges at the end, by full name. Others are free.
    pub metrics: BTreeMap<String, u64>,
}
