//! The file format of scenarios: the gateway, its endpoints, the steps. Requests and their answers are in
//! `request`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::request::{Request, Response};

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

    /// What its engine tells at `/metrics`; `None` = nothing.
    #[must_use]
    pub fn metrics_text(&self) -> Option<String> {
        if self.metrics.is_some() {
            return self.metrics.clone();
        }
        let vllm = self.vllm.as_ref()?;
        let labels = r#"{engine="0",model_name="m"}"#;
        let mut text = format!(
            "vllm:num_requests_waiting{labels} {:.1}\nvllm:num_requests_running{labels} {:.1}\nvllm:kv_cache_usage_perc{labels} {}\n",
            f64::from(vllm.waiting),
            f64::from(vllm.running),
            vllm.kv_use
        );
        if let Some(blocks) = vllm.gpu_blocks {
            let info = format!(
                "vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"{blocks}\"}} 1.0\n"
            );
            text.push_str(&info);
        }
        Some(text)
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
