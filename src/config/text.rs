//! The configuration as people write it: one struct an object, one field a key.
//!
//! Unknown keys, keys given twice, wrong types and values out of range are refused here; what the
//! keys mean together is decided in `resolve`. The comments are the schema's descriptions.

use serde::Deserialize;

use super::opt_in::{DisaggregationText, OverloadText, ProfilesText, ReplicasText};
use super::value::{
    Address, Alpha, ClassText, Given, HeaderName, List, Literal, Name, Names, Object, SecretText,
    Section, Share, Switch, UrlPath, Weight, Whole, Word,
};

/// A whole configuration: the top of the text, or one entry of `_rules_`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConfigText {
    /// How endpoints are compared. `cost`: predicted work before the first token. `default`, `balanced`: the weighted sum of Higress's ai-endpoint-picker, with that plugin's defaults. Without `profile`, `weights` alone means the weighted sum, else `cost`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "cost")))]
    pub profile: Given<Option<Word<ProfileText>>>,
    /// Weights of the weighted sum; at least one over 0.
    pub weights: Section<WeightsText>,
    /// Smoothing of what endpoints' answers tell.
    pub feedback: Section<FeedbackText>,
    /// How the endpoint is chosen among those compared.
    pub picker: Section<PickerText>,
    /// Endpoints that fail are set aside for a while.
    pub cooldown: Section<CooldownText>,
    /// Aims.
    pub slo: Section<SloText>,
    /// Blocks of a prompt, with the keys of Higress's ai-endpoint-picker.
    pub prefix: Section<PrefixText>,
    /// Blocks of a prompt: the grain of the prefix index.
    pub block: Section<BlockText>,
    /// What of a prompt is compared.
    pub prompt: Section<PromptText>,
    /// Bounds.
    pub limits: Section<LimitsText>,
    /// What the prefix index may hold.
    pub index: Section<IndexText>,
    /// The engines' metrics.
    pub metrics: Section<MetricsText>,
    /// Where endpoints come from: exactly one of the keys. Without it, the gateway's own list of hosts (Higress).
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 1)))]
    pub endpoints: Section<EndpointsText>,
    /// Session affinity.
    pub session: Section<SessionText>,
    /// What is shown to people.
    pub debug: Section<DebugText>,
    /// What to do when all endpoints are full.
    pub overload: Section<OverloadText>,
    /// Profiles that a request may ask for. Without it no request may.
    pub profiles: Section<ProfilesText>,
    /// Endpoints that compute prompts for others, as llm-d's prefill and decode workers. Without it each endpoint does both.
    pub disaggregation: Section<DisaggregationText>,
    /// Gives the access log what was decided: Envoy's `%FILTER_STATE(wasm.warmroute_decision:PLAIN)%`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub access_log: Given<bool>,
    /// Endpoints named after the first one in the ordered list, for the gateway's retries.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 2)))]
    pub fallback_endpoints: Given<Whole<0, 8>>,
    /// Whether the workers of one gateway process share what they know.
    #[cfg_attr(feature = "schema", schemars(extend("default" = true)))]
    pub exchange: Given<Switch>,
    /// A store over which the replicas of a gateway share what they know. Not given: they do not.
    pub replicas: Given<Object<ReplicasText>>,
    /// Ask engines for their load in response headers (ORCA); the headers never reach a client that did not ask.
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub orca: Given<bool>,

    /// Configurations for some of the requests. The first rule that matches is used, else the keys beside `_rules_`, else the plugin is off for the request. A rule inherits nothing.
    #[serde(rename = "_rules_")]
    pub rules: Given<List<Object<ConfigText>, 0, 10_000>>,
    /// Names of routes that the rule is for.
    #[serde(rename = "_match_route_")]
    pub match_route: Given<MatchText>,
    /// Services that the rule is for: `fqdn` or `fqdn:port` of a cluster `outbound|port|subset|fqdn`, or a plain cluster's whole name. Beside `_match_route_` both must match.
    #[serde(rename = "_match_service_")]
    pub match_service: Given<MatchText>,
    /// Domains that the rule is for: `a.com`, `*.a.com`, `a.*` or `*`.
    #[serde(rename = "_match_domain_")]
    pub match_domain: Given<MatchText>,
    /// Beginnings of the names of routes that the rule is for.
    #[serde(rename = "_match_route_prefix_")]
    pub match_route_prefix: Given<MatchText>,
    /// Consumers (header `x-mse-consumer`) that the rule is for; only beside `_match_route_prefix_`, both must match.
    #[serde(rename = "_match_consumer_")]
    pub match_consumer: Given<MatchText>,
}

/// What a rule is for.
pub type MatchText = List<Name, 1, 10_000>;

/// The rule that compares endpoints; an empty text counts as not given.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum ProfileText {
    Cost,
    Default,
    Balanced,
    #[serde(rename = "")]
    NotGiven,
}

/// Weights of the weighted sum; at least one over 0.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WeightsText {
    /// Requests waiting: fewest of all endpoints = 1, most = 0.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 2)))]
    pub queue: Given<Weight>,
    /// Share of the KV cache that is free.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 2)))]
    pub kv_cache: Given<Weight>,
    /// Share of the prompt that the endpoint probably holds.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 3)))]
    pub prefix_cache: Given<Weight>,
    /// Whether the request's adapter is loaded.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0)))]
    pub lora_affinity: Given<Weight>,
    /// Requests of this gateway in flight: fewest = 1, most = 0.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 1)))]
    pub inflight: Given<Weight>,
    /// Share of recent requests that did not fail.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0)))]
    pub failure: Given<Weight>,
}

/// Smoothing of what endpoints' answers tell.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FeedbackText {
    /// How much the newest answer counts in the failure signal of the weighted sum.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0.2)))]
    pub ewma_alpha: Given<Alpha>,
}

/// How the endpoint is chosen among those compared.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PickerText {
    /// The best one; the only mode. An empty text counts as not given.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "max-score")))]
    pub mode: Given<Option<Word<PickerModeText>>>,
    /// Profile `cost`: share of a later turn's head credited to its conversation's home while nobody here knows where it was served.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0.9)))]
    pub prior: Given<Share>,
    /// Profile `cost`: costs within this share of the best are a tie.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0.02)))]
    pub tie_ratio: Given<Share>,
    /// Profile `cost`: costs within so many tokens of the best are a tie.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 500)))]
    pub tie_tokens: Given<Whole<0, 1_000_000>>,
    /// Profile `cost`: shorter matches are not followed.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 64)))]
    pub min_match_tokens: Given<Whole<0, 1_000_000>>,
}

/// The best one; the only mode.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[allow(missing_docs)]
pub enum PickerModeText {
    #[serde(rename = "max-score")]
    MaxScore,
    #[serde(rename = "")]
    NotGiven,
}

/// Endpoints that fail are set aside for a while.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CooldownText {
    /// Consecutive failures that set an endpoint aside.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 3)))]
    pub failures: Given<Whole<1, 100>>,
    /// For how long, before one request tries it again; milliseconds.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 10_000)))]
    pub ms: Given<Whole<100, 600_000>>,
}

/// Aims.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SloText {
    /// Profile `cost`: time to the first token to aim for, milliseconds. Among endpoints predicted to meet it the one with most of the prompt is taken; without it always the fastest.
    pub ttft_ms: Given<Whole<1, 600_000>>,
}

/// Blocks of a prompt, with the keys of Higress's ai-endpoint-picker.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrefixText {
    /// How `tools` enter the prompt: `identity` by type and name, `none` not at all, `full` with their whole definition. Not given: `full` with `cost`, `identity` with the weighted sum.
    pub tool_mode: Given<Word<ToolModeText>>,
    /// Blocks of a prompt that are compared. Not given: 4096 with `cost` (see `block.max`), 32 with the weighted sum. With `cost` and no block size given, blocks of 1024 tokens are meant: the same length of prompt is read, in finer blocks.
    pub max_blocks: Given<Whole<1, 128>>,
    /// Length of a block, in tokens of 4 bytes. Not given: 64 with `cost` (see `block.bytes`), 1024 with the weighted sum.
    pub block_size_tokens: Given<Whole<1, 1024>>,
    /// Cache of an endpoint, in engine blocks of 16 tokens: assumed where the engine does not tell its own, and the most that is believed where it does. Not given: 500,000 tokens and no bound with `cost`, 31250 blocks with the weighted sum.
    pub max_cache_blocks_per_endpoint: Given<Whole<1, 1_048_576>>,
}

/// How `tools` enter the prompt.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum ToolModeText {
    Identity,
    None,
    Full,
}

/// Blocks of a prompt: the grain of the prefix index.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BlockText {
    /// Length of a block in bytes of prompt; not beside `prefix.blockSizeTokens`. Not given: 256 with `cost`, 4096 with the weighted sum.
    pub bytes: Given<Whole<16, 8192>>,
    /// Blocks of a prompt that are compared; not beside `prefix.maxBlocks`. Not given: 4096 with `cost`, 32 with the weighted sum.
    pub max: Given<Whole<1, 65_536>>,
}

/// What of a prompt is compared.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PromptText {
    /// Text that changes with every request though the engine's answer does not depend on it, such as a client's nonce in a system prompt: left out of the comparison.
    pub ignore: Given<List<Object<IgnoreText>, 0, 16>>,
    /// Request header whose value keeps prompts apart: prompts of different values never count as equal.
    pub isolation_header: Given<HeaderName>,
}

/// A literal text and the characters after it that are left out.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IgnoreText {
    /// The text before what is left out, exactly as it stands in the prompt; it stays in the comparison.
    pub prefix: Literal,
    /// The characters that are left out: single ones and ranges, such as `0-9a-f`.
    pub class: ClassText,
    /// How many of them at most.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 64)))]
    pub max: Given<Whole<1, 256>>,
}

/// Bounds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitsText {
    /// Requests with a longer body are not held; the gateway's own load balancing takes them.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 4_194_304)))]
    pub max_request_body_bytes: Given<Whole<1, 104_857_600>>,
    /// Memory of a worker's plugin from which a fresh one is asked for, which takes over what this one knew; 0 = never. Higress only.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 209_715_200)))]
    pub vm_rebuild_threshold_bytes: Given<Whole<0, 4_294_967_296>>,
}

/// What the prefix index may hold.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IndexText {
    /// Cache assumed of an endpoint whose engine does not tell its own, in tokens; not beside `prefix.maxCacheBlocksPerEndpoint`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 500_000)))]
    pub capacity_tokens: Given<Whole<1024, 1_000_000_000>>,
    /// Pairs of block and endpoint over all endpoints; about 40 bytes of memory each.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 1_000_000)))]
    pub max_pairs: Given<Whole<1000, 4_000_000>>,
    /// Age from which an entry does not count any more, seconds.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 3600)))]
    pub ttl_seconds: Given<Whole<1, 604_800>>,
}

/// The engines' metrics.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsText {
    /// How often they are read at most, milliseconds.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 250)))]
    pub refresh_ms: Given<Whole<50, 60_000>>,
    /// Age from which they do not count any more, milliseconds; their weight falls until then. Not below `metrics.refreshMs`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 30_000)))]
    pub stale_after_ms: Given<Whole<1000, 3_600_000>>,
    /// Path that is scraped (stock Envoy; on Higress the cluster's health check names it).
    #[cfg_attr(feature = "schema", schemars(extend("default" = "/metrics")))]
    pub path: Given<UrlPath>,
    /// How long a scrape may take, milliseconds.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 2000)))]
    pub timeout_ms: Given<Whole<100, 60_000>>,
}

/// Where endpoints come from: exactly one of the keys.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EndpointsText {
    /// Envoy's admin interface: hosts and their health.
    pub admin: Section<AdminText>,
    /// A fixed list of `ip:port` and `[ipv6]:port`.
    #[serde(rename = "static")]
    pub fixed: Given<List<Address, 1, 1024>>,
    /// Request header in which a control plane lists the candidates.
    pub header: Given<HeaderName>,
}

/// Envoy's admin interface: hosts and their health.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminText {
    /// Cluster that points at the admin port.
    pub cluster: Name,
    /// Clusters whose hosts are the endpoints. Not given: the cluster of each request's route.
    #[serde(default)]
    pub of: Given<Names>,
}

/// Session affinity.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SessionText {
    /// Request header that names a session.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "x-session-id")))]
    pub header: Given<HeaderName>,
    /// `soft`: a session has a home that load may override. `strict`: it stays there as long as the endpoint can be picked.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "soft")))]
    pub mode: Given<Word<SessionModeText>>,
}

/// Whether a session may move.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum SessionModeText {
    Soft,
    Strict,
}

/// What is shown to people.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DebugText {
    /// Adds `x-warmroute-decision` to responses.
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub header: Given<bool>,
    /// Share of decisions that are logged.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0)))]
    pub sample_rate: Given<Share>,
    /// Path at which the plugin itself answers a GET with what the worker that gets it knows and has decided lately: a page, or JSON with `?format=json` or `accept: application/json`. No prompt text and no header value is in it. Off without it.
    pub path: Given<UrlPath>,
    /// Who sends it in the header `x-warmroute-secret` may read `debug.path`; any other request goes on to the endpoints. Without it only requests from the gateway's own machine (or pod) to its loopback address may.
    pub secret: Given<SecretText>,
}
