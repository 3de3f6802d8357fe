//! What is counted, and under which names.
//!
//! The core counts into a [`Telemetry`]; the host hands the differences on to the gateway's metrics.
//! The README's table of metrics is held against [`Counter::all`], [`Gauge::ALL`], [`Series::ALL`] and
//! [`Histogram::ALL`] by a test. A name's parts after a dot are labels: `warmroute_fallback_total.reason.malformed`
//! (`envoy/` ships the rules that turn them into labels). No prompt text, no header value is ever counted by.
//!
//! Cost: an addition an event; a drain O(counters), and only when something changed.

use crate::fallback::Fallback;
use crate::overload::Refusal;
use crate::pick::Branch;
use crate::request::Cut;

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Requests seen.
    Requests,
    /// Requests steered, by why the winner won.
    Decision(Branch),
    /// Requests left to the gateway, by reason.
    Fallback(Fallback),
    /// Requests that the plugin answered itself, by status.
    Answered(Refusal),
    /// Prompts read in part, by the budget that ended the reading.
    Cut(Cut),
    /// Prompt tokens of steered requests, estimated.
    PromptTokens,
    /// Tokens that the index predicted to be cached at the picked endpoint.
    PredictedHitTokens,
    /// Tokens that engines reported as cached.
    DeliveredHitTokens,
    /// Prompt tokens of answers that reported cached tokens.
    ReportedPromptTokens,
    /// Requests whose prompt another endpoint than the answering one computes.
    Prefills,
    /// Requests that named a profile which they may not choose.
    IgnoredProfiles,
    /// Tentative records withdrawn: failed, or served elsewhere.
    Withdrawn,
    /// Requests served by another endpoint than the picked one.
    ServedElsewhere,
    /// Answers whose engine had clearly less of the prompt cached than predicted.
    Shortfalls,
    /// Endpoints taken to have emptied their cache without a restart.
    EmptiedCaches,
    /// Endpoints whose engine was seen to restart.
    Restarts,
    /// Index pairs evicted.
    Evictions,
    /// Metrics texts read.
    Scrapes,
    /// Metrics texts that could not be had or told nothing.
    ScrapeFailures,
    /// Endpoint listings that could not be had.
    ListingFailures,
    /// Entries of other workers' logs that were gone before they were read.
    ExchangeGaps,
    /// Calls to the replicas' store.
    ReplicaCalls,
    /// Of these, failed or refused.
    ReplicaFailures,
    /// Bytes sent to the store.
    ReplicaBytesOut,
    /// Bytes that the store answered.
    ReplicaBytesIn,
    /// Log entries of other replicas that were gone before they were read.
    ReplicaGaps,
    /// What stood in the store and was no message of this version.
    ReplicaForeign,
    /// Host calls that failed.
    HostCallFailures,
}

/// Counters without a label, in the order of their places.
const PLAIN: [Counter; 24] = [
    Counter::Requests,
    Counter::PromptTokens,
    Counter::PredictedHitTokens,
    Counter::DeliveredHitTokens,
    Counter::ReportedPromptTokens,
    Counter::Prefills,
    Counter::IgnoredProfiles,
    Counter::Withdrawn,
    Counter::ServedElsewhere,
    Counter::Shortfalls,
    Counter::EmptiedCaches,
    Counter::Restarts,
    Counter::Evictions,
    Counter::Scrapes,
    Counter::ScrapeFailures,
    Counter::ListingFailures,
    Counter::ExchangeGaps,
    Counter::ReplicaCalls,
    Counter::ReplicaFailures,
    Counter::ReplicaBytesOut,
    Counter::ReplicaBytesIn,
    Counter::ReplicaGaps,
    Counter::ReplicaForeign,
    Counter::HostCallFailures,
];

const PLACES: usize =
    PLAIN.len() + Branch::ALL.len() + Fallback::ALL.len() + Cut::ALL.len() + Refusal::ALL.len();

impl Counter {
    /// All counters, in the order of their places.
    pub fn all() -> impl Iterator<Item = Self> {
        let decisions = Branch::ALL.into_iter().map(Self::Decision);
        let fallbacks = Fallback::ALL.into_iter().map(Self::Fallback);
        let cuts = Cut::ALL.into_iter().map(Self::Cut);
        let answers = Refusal::ALL.into_iter().map(Self::Answered);
        PLAIN
            .into_iter()
            .chain(decisions)
            .chain(fallbacks)
            .chain(cuts)
            .chain(answers)
    }

    /// The counter's name as the gateway gets it.
    #[must_use]
    pub fn name(self) -> String {
        let plain = match self {
            Self::Decision(branch) => {
                return format!("warmroute_decision_total.branch.{}", branch.name());
            }
            Self::Fallback(reason) => {
                return format!("warmroute_fallback_total.reason.{}", reason.name());
            }
            Self::Cut(cut) => return format!("warmroute_prompt_cut_total.budget.{}", cut.name()),
            Self::Answered(refusal) => {
                return format!("warmroute_answered_total.status.{}", refusal.name());
            }
            Self::Requests => "warmroute_request_total",
            Self::PromptTokens => "warmroute_prompt_tokens_total",
            Self::PredictedHitTokens => "warmroute_predicted_hit_tokens_total",
            Self::DeliveredHitTokens => "warmroute_delivered_hit_tokens_total",
            Self::ReportedPromptTokens => "warmroute_reported_prompt_tokens_total",
            Self::Prefills => "warmroute_prefill_total",
            Self::IgnoredProfiles => "warmroute_ignored_profile_total",
            Self::Withdrawn => "warmroute_withdrawn_total",
            Self::ServedElsewhere => "warmroute_served_elsewhere_total",
            Self::Shortfalls => "warmroute_shortfall_total",
            Self::EmptiedCaches => "warmroute_emptied_cache_total",
            Self::Restarts => "warmroute_engine_restart_total",
            Self::Evictions => "warmroute_index_evicted_pairs_total",
            Self::Scrapes => "warmroute_scrape_total",
            Self::ScrapeFailures => "warmroute_scrape_failure_total",
            Self::ListingFailures => "warmroute_listing_failure_total",
            Self::ExchangeGaps => "warmroute_exchange_gap_total",
            Self::ReplicaCalls => "warmroute_replica_call_total",
            Self::ReplicaFailures => "warmroute_replica_failure_total",
            Self::ReplicaBytesOut => "warmroute_replica_sent_bytes_total",
            Self::ReplicaBytesIn => "warmroute_replica_received_bytes_total",
            Self::ReplicaGaps => "warmroute_replica_gap_total",
            Self::ReplicaForeign => "warmroute_replica_foreign_total",
            Self::HostCallFailures => "warmroute_host_call_failure_total",
        };
        plain.to_owned()
    }

    fn place(self) -> Option<usize> {
        let decisions = PLAIN.len();
        let fallbacks = decisions + Branch::ALL.len();
        let cuts = fallbacks + Fallback::ALL.len();
        let answers = cuts + Cut::ALL.len();
        match self {
            Self::Decision(branch) => Some(decisions + branch as usize),
            Self::Fallback(reason) => Some(fallbacks + reason as usize),
            Self::Cut(cut) => Some(cuts + cut as usize),
            Self::Answered(refusal) => Some(answers + refusal as usize),
            plain => PLAIN.iter().position(|counter| *counter == plain),
        }
    }
}

/// A level; the sum over all VMs is what the gateway shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Endpoints known.
    Endpoints,
    /// Requests in flight.
    Inflight,
    /// Uncached prompt tokens sent that gave no first token yet.
    BacklogTokens,
    /// (block, endpoint) pairs in the index.
    IndexPairs,
    /// Bytes that the index holds.
    IndexBytes,
    /// Other replicas that are heard of.
    Replicas,
}

impl Gauge {
    /// All gauges, in the order of their places.
    pub const ALL: [Self; 6] = [
        Self::Endpoints,
        Self::Inflight,
        Self::BacklogTokens,
        Self::IndexPairs,
        Self::IndexBytes,
        Self::Replicas,
    ];

    /// The gauge's name as the gateway gets it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Endpoints => "warmroute_endpoints",
            Self::Inflight => "warmroute_inflight",
            Self::BacklogTokens => "warmroute_backlog_tokens",
            Self::IndexPairs => "warmroute_index_pairs",
            Self::IndexBytes => "warmroute_index_bytes",
            Self::Replicas => "warmroute_replicas",
        }
    }
}

/// A distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Histogram {
    /// Time from a request's last body byte to the pick, microseconds.
    DecisionUs,
    /// Time from the pick to the first chunk of a streamed answer, milliseconds.
    TtftMs,
    /// The same, as predicted.
    PredictedTtftMs,
    /// Age of the picked endpoint's load figures, milliseconds.
    SnapshotAgeMs,
}

impl Histogram {
    /// All histograms, in the order of their places.
    pub const ALL: [Self; 4] = [
        Self::DecisionUs,
        Self::TtftMs,
        Self::PredictedTtftMs,
        Self::SnapshotAgeMs,
    ];

    /// The histogram's name as the gateway gets it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DecisionUs => "warmroute_decision_us",
            Self::TtftMs => "warmroute_ttft_ms",
            Self::PredictedTtftMs => "warmroute_predicted_ttft_ms",
            Self::SnapshotAgeMs => "warmroute_snapshot_age_ms",
        }
    }
}

/// Something that is counted, or is a level, by endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Level: requests in flight.
    Inflight,
    /// Requests that went there: picked, or served there in the picked one's stead.
    Requests,
    /// Requests that failed there.
    Failures,
    /// Of the prompts that went there, tokens that the index predicted to be cached.
    HitTokens,
}

/// Endpoints of a process with a series of their own; further ones share [`OTHER`]'s. A gateway never
/// forgets a series, and addresses come and go.
pub const MAX_SERIES: usize = 64;
/// The label's value for the rest.
pub const OTHER: &str = "other";

impl Series {
    /// All of them, in the order of their places.
    pub const ALL: [Self; 4] = [
        Self::Inflight,
        Self::Requests,
        Self::Failures,
        Self::HitTokens,
    ];

    /// The name without the endpoint.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inflight => "warmroute_endpoint_inflight",
            Self::Requests => "warmroute_endpoint_request_total",
            Self::Failures => "warmroute_endpoint_failure_total",
            Self::HitTokens => "warmroute_endpoint_hit_tokens_total",
        }
    }

    /// The name as the gateway gets it.
    #[must_use]
    pub fn of(self, endpoint: &str) -> String {
        format!("{}.endpoint.{endpoint}", self.name())
    }
}

/// What was counted at one endpoint and not handed on yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// [`Series::Requests`].
    pub requests: u64,
    /// [`Series::Failures`].
    pub failures: u64,
    /// [`Series::HitTokens`].
    pub hit_tokens: u64,
}

/// Observations kept between two drains at most; later ones are dropped.
const MAX_OBSERVATIONS: usize = 64;

/// What was counted and not handed on yet.
#[derive(Debug)]
pub struct Telemetry {
    counts: [u64; PLACES],
    observations: Vec<(Histogram, u64)>,
    changed: bool,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            counts: [0; PLACES],
            observations: Vec::new(),
            changed: false,
        }
    }
}

impl Telemetry {
    /// Counts `by` more.
    pub fn add(&mut self, counter: Counter, by: u64) {
        if by == 0 {
            return;
        }
        if let Some(count) = counter.place().and_then(|at| self.counts.get_mut(at)) {
            *count = count.saturating_add(by);
            self.changed = true;
        }
    }

    /// Records a value of a distribution.
    pub fn observe(&mut self, histogram: Histogram, value: u64) {
        if self.observations.len() < MAX_OBSERVATIONS {
            self.observations.push((histogram, value));
            self.changed = true;
        }
    }

    /// Hands on every counter that grew, with its place and growth, and every observation; starts anew.
    pub fn drain(
        &mut self,
        mut counted: impl FnMut(usize, u64),
        mut observed: impl FnMut(Histogram, u64),
    ) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        for (place, count) in self.counts.iter_mut().enumerate() {
            if *count > 0 {
                counted(place, core::mem::take(count));
            }
        }
        for (histogram, value) in self.observations.drain(..) {
            observed(histogram, value);
        }
    }
}

#[cfg(test)]
mod tests;
