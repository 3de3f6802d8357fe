//! The configuration, validated: what every other module may rely on.
//!
//! Holds one struct a concern; each module reads its own. Every value here is inside its range:
//! [`Plugin::parse`] makes them from text in one step that refuses the whole text when anything in it is
//! wrong or unknown.

mod error;
mod opt_in;
pub mod pattern;
mod place;
mod resolve;
mod rules;
#[cfg(feature = "schema")]
pub mod schema;
mod text;
mod text_value;
mod value;

use core::time::Duration;

pub use error::ConfigError;
pub use opt_in::{
    DebugPage, Disaggregation, OverloadOptions, ProfileChoice, ReplicaOptions, Secret, StoreKind,
};
pub use rules::{ConfigId, MAX_TEXT_BYTES, Plugin, RequestPlace, Rule};

/// One whole configuration: the global part, or one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How endpoints are compared.
    pub pick: PickOptions,
    /// What of a body is read and hashed.
    pub prompt: PromptOptions,
    /// How much the prefix index may hold.
    pub index: IndexOptions,
    /// Engine metrics: how they are read and how long they count.
    pub metrics: MetricsOptions,
    /// Where endpoints come from.
    pub endpoints: EndpointSource,
    /// Session affinity.
    pub session: SessionOptions,
    /// What is shown to people.
    pub debug: DebugOptions,
    /// When to say no; `None` = never.
    pub overload: Option<OverloadOptions>,
    /// Profiles that a request may ask for.
    pub profiles: Option<ProfileChoice>,
    /// Who computes prompts for others; `None` = nobody.
    pub disaggregation: Option<Disaggregation>,
    /// Whether the access log is told what was decided.
    pub access_log: bool,
    /// Endpoints after the first in the ordered list (0..=8).
    pub fallback_endpoints: u8,
    /// Whether workers of one process share what they know.
    pub exchange: bool,
    /// The store over which replicas of a gateway share what they know; `None` = they do not.
    pub replicas: Option<ReplicaOptions>,
    /// Ask engines for ORCA load headers.
    pub orca: bool,
    /// Linear memory from which a fresh VM is asked for; 0 = never. Higress only.
    pub vm_rebuild_threshold_bytes: u64,
}

/// How endpoints are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct PickOptions {
    /// The rule.
    pub profile: Profile,
    /// Share of a later turn's head credited to its conversation's home while its place is unknown (0..=1).
    pub prior: f64,
    /// Costs closer than this share of the best are a tie.
    pub tie_ratio: f64,
    /// Costs closer than this are a tie.
    pub tie_tokens: u32,
    /// Matches shorter than this are not worth following.
    pub min_match_tokens: u32,
    /// Consecutive failures that put an endpoint aside.
    pub cooldown_failures: u32,
    /// For how long it is put aside before one request tries it again.
    pub cooldown: Duration,
    /// Aim for the first token; `None` = as soon as possible.
    pub slo_ttft: Option<Duration>,
}

/// The rule that compares endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum Profile {
    /// Predicted work before the first token, in token equivalents.
    Cost,
    /// Weighted sum of normalised signals, as Higress's ai-endpoint-picker computes it.
    Weighted(Weights),
}

/// Weights of the sum, each 0 or more, not all 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Requests waiting.
    pub queue: f64,
    /// KV cache in use.
    pub kv_cache: f64,
    /// Prefix matched.
    pub prefix_cache: f64,
    /// Adapter loaded.
    pub lora_affinity: f64,
    /// Requests of this gateway in flight.
    pub inflight: f64,
    /// Recent failures.
    pub failure: f64,
    /// Smoothing of the failure signal, (0, 1].
    pub failure_ewma_alpha: f64,
}

/// What of a body is read and hashed.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptOptions {
    /// Bytes of framed prompt per block (4..=8192).
    pub block_bytes: u32,
    /// Blocks hashed at most (1..=65536); the rest of the prompt is skipped, not hashed.
    pub max_blocks: u32,
    /// Bytes of body read at most (1..=104857600).
    pub max_body_bytes: u32,
    /// How tools enter the prefix.
    pub tool_mode: ToolMode,
    /// Per-request text inside prompts that is left out of the hash.
    pub ignore: Vec<IgnorePattern>,
    /// Request header (lower case) whose value keeps prompts of different values apart.
    pub isolation_header: Option<String>,
}

/// How tools enter the prefix; the names are those of Higress's picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolMode {
    /// Only each tool's identity (type and name).
    Identity,
    /// Not at all.
    None,
    /// The whole definition.
    Full,
}

/// A literal prefix followed by up to `max_chars` characters of a class, left out wherever it stands in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnorePattern {
    /// What the text begins with (1..=128 bytes); it stays in the hash.
    pub prefix: String,
    /// The characters that follow and are left out.
    pub class: CharClass,
    /// How many at most (1..=256).
    pub max_chars: u16,
}

/// A set of ASCII characters, as a bit mask over 0..=127.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CharClass(pub u128);

/// How much the prefix index may hold.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexOptions {
    /// Cache assumed where an engine does not tell its own, tokens.
    pub default_capacity_tokens: u64,
    /// Most of an engine's own number of KV blocks that is believed; `u64::MAX` = all of it.
    pub max_engine_blocks: u64,
    /// (block, endpoint) pairs over all endpoints.
    pub max_pairs: u32,
    /// Age at which an entry stops to count.
    pub ttl: Duration,
}

/// Engine metrics: how they are read and how long they count.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsOptions {
    /// A snapshot is refreshed at most this often.
    pub refresh: Duration,
    /// Age from which a snapshot counts for nothing; its weight falls until then.
    pub stale_after: Duration,
    /// Path that is scraped.
    pub path: String,
    /// How long a scrape may take.
    pub timeout: Duration,
}

/// Where endpoints come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum EndpointSource {
    /// The gateway's own host list (Higress).
    #[default]
    Gateway,
    /// Envoy's admin interface, asked through a cluster.
    Admin {
        /// Cluster that points at the admin port.
        cluster: String,
        /// Cluster whose hosts are wanted; empty = the cluster of each request's route.
        of: Vec<String>,
    },
    /// `ip:port` addresses.
    Static(Vec<StaticEndpoint>),
    /// A request header that lists candidates, lower case.
    Header(String),
}

/// One configured endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEndpoint {
    /// `ip:port` or `[v6]:port`.
    pub address: String,
}

/// Session affinity.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// Request header (lower case) that names a session.
    pub header: String,
    /// Whether a session may move.
    pub mode: SessionMode,
}

/// Whether a session may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionMode {
    /// The session names its home; load may override it.
    Soft,
    /// The home as long as it is eligible.
    Strict,
}

/// What is shown to people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DebugOptions {
    /// Adds `x-warmroute-decision` to responses.
    pub header: bool,
    /// Share of decisions that are logged, 0..=1.
    pub sample_rate: f64,
    /// Where the plugin shows what it knows.
    pub page: Option<DebugPage>,
}

impl Default for Config {
    /// What an empty text means.
    fn default() -> Self {
        Self {
            pick: PickOptions::default(),
            prompt: PromptOptions::default(),
            index: IndexOptions::default(),
            metrics: MetricsOptions::default(),
            endpoints: EndpointSource::default(),
            session: SessionOptions::default(),
            debug: DebugOptions::default(),
            overload: None,
            profiles: None,
            disaggregation: None,
            access_log: false,
            fallback_endpoints: 2,
            exchange: true,
            replicas: None,
            orca: false,
            vm_rebuild_threshold_bytes: 200 << 20,
        }
    }
}

impl Default for PickOptions {
    fn default() -> Self {
        Self {
            profile: Profile::Cost,
            prior: 0.9,
            tie_ratio: 0.02,
            tie_tokens: 500,
            min_match_tokens: 64,
            cooldown_failures: 3,
            cooldown: Duration::from_secs(10),
            slo_ttft: None,
        }
    }
}

impl Default for Weights {
    /// The defaults of Higress's ai-endpoint-picker (`profile: default`).
    fn default() -> Self {
        Self {
            queue: 2.0,
            kv_cache: 2.0,
            prefix_cache: 3.0,
            lora_affinity: 0.0,
            inflight: 1.0,
            failure: 0.0,
            failure_ewma_alpha: 0.2,
        }
    }
}

impl Default for PromptOptions {
    fn default() -> Self {
        Self {
            block_bytes: 256,
            max_blocks: 4096,
            max_body_bytes: 4 << 20,
            tool_mode: ToolMode::Full,
            ignore: Vec::new(),
            isolation_header: None,
        }
    }
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            default_capacity_tokens: 500_000,
            max_engine_blocks: u64::MAX,
            max_pairs: 1_000_000,
            ttl: Duration::from_secs(3600),
        }
    }
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            refresh: Duration::from_millis(250),
            stale_after: Duration::from_secs(30),
            path: "/metrics".to_owned(),
            timeout: Duration::from_secs(2),
        }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            header: "x-session-id".to_owned(),
            mode: SessionMode::Soft,
        }
    }
}
