//! A candidate's figures, made fit for reckoning once for all passes over the candidates.
//!
//! Invariant: what an engine did not tell, or told as no number, is [`UNKNOWN`] and enters no sum.

use crate::pick::{Ask, Candidate, is_sane, larger, sane, smaller};

/// What both passes need of a candidate, as numbers that can be reckoned with.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Weight of the engine's words, 0..=1.
    pub fresh: f64,
    /// Waiting requests that are not ours; [`UNKNOWN`] where the engine told none, like the next two.
    pub waiting: f64,
    pub running: f64,
    pub kv_use: f64,
    /// [`UNKNOWN`] while it is not learned.
    pub ms_per_token: f64,
    pub unseen_tokens: f64,
    pub matched_tokens: f64,
}

/// What is not known: no number, and not equal to itself.
const UNKNOWN: f64 = f64::NAN;

impl Terms {
    #[inline(always)]
    pub fn of(ask: &Ask, candidate: &Candidate, min_match_tokens: f64) -> Self {
        let signals = &candidate.signals;
        let matched = smaller(sane(candidate.matched_tokens, 0.0), ask.prompt_tokens);
        let kv_use = known(signals.kv_use).map(|share| smaller(share, 1.0));
        let rate = signals.prefill_tokens_per_ms.filter(|rate| *rate > 0.0);
        Self {
            fresh: smaller(sane(signals.freshness, 0.0), 1.0),
            waiting: others(signals.waiting, signals.waiting_own).unwrap_or(UNKNOWN),
            running: known(signals.running).unwrap_or(UNKNOWN),
            kv_use: kv_use.unwrap_or(UNKNOWN),
            ms_per_token: rate.map_or(UNKNOWN, |rate| sane(1.0 / rate, 0.0)),
            unseen_tokens: sane(signals.unseen_tokens, 0.0),
            // Where the match is worth following.
            matched_tokens: if matched >= min_match_tokens {
                matched
            } else {
                0.0
            },
        }
    }
}

pub fn known(x: Option<f64>) -> Option<f64> {
    x.filter(|x| is_sane(*x))
}

/// Waiting requests that are not ours.
fn others(waiting: Option<f64>, own: u32) -> Option<f64> {
    known(waiting).map(|waiting| larger(waiting - f64::from(own), 0.0))
}

/// `x` as far as it is fresh, the mean for the rest.
pub fn blend(mean: f64, x: f64, fresh: f64) -> f64 {
    if x.is_nan() {
        mean
    } else {
        mean + (x - mean) * fresh
    }
}

/// A weighted mean, built up value by value.
#[derive(Clone, Copy, Default)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    pub fn add(&mut self, x: f64, weight: f64) {
        self.sum += x * weight;
        self.weight += weight;
    }

    /// Whether there was a value that counts.
    pub fn is_known(&self) -> bool {
        self.weight > 0.0
    }

    /// The mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }
}
