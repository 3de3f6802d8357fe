//! What came of a scenario, in the words in which files expect it.

use std::collections::BTreeMap;

/// What came of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether the plugin took its configuration.
    pub accepted: bool,
    /// By the request's name.
    pub requests: BTreeMap<String, RequestOutcome>,
    /// Counters and gauges by full name.
    pub metrics: BTreeMap<String, u64>,
    /// All streams have ended, and time has passed since for a tick.
    pub all_ended: bool,
    /// Traps, violations of the host's rules, steps that name a request that is not there.
    pub errors: Vec<String>,
}

/// What came of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Where the plugin steered it; `None` = left to the gateway.
    pub picked: Option<String>,
    /// Body bytes at the upstream are those that the client sent.
    pub body_untouched: bool,
    /// Sent whole, neither forwarded whole nor answered.
    pub hangs: bool,
    /// Status of a local reply.
    pub local_reply: Option<u32>,
    /// What the access log was told.
    pub access_log: Option<String>,
    /// Request headers at the upstream.
    pub upstream_headers: BTreeMap<String, String>,
    /// Response headers at the client.
    pub downstream_headers: BTreeMap<String, String>,
}

/// The endpoint of a pick that is tried first; the others are for retries.
#[must_use]
pub fn first_of(list: &str) -> &str {
    list.split(',').next().unwrap_or(list).trim()
}
