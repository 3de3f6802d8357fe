//! The weighted sum of normalised signals, as Higress's ai-endpoint-picker computes it.
//!
//! Waiting and inflight are min-max normalised over the candidates (all equal = 1), KV use and
//! failures count `1 - x`, the prefix `0.75 * matched / total + 0.25 * min(matched / 8192, 1)^2`
//! in tokens, an adapter that runs there 1 and one that does not 0. A missing signal adds nothing,
//! and the sum is always over all weights. The order of additions is that picker's, so that equal
//! inputs give equal bits.
//!
//! Cost: O(candidates), two passes.

use super::{Adapter, Ask, Branch, Candidate, Entry, sane};
use crate::config::Weights;

/// Matched tokens that count in full.
const LONG_MATCH_TOKENS: f64 = 8192.0;

/// Scores all candidates into `scores`; the highest wins, exact ties by `rng`. `None` without
/// candidates, weights or a single signal that has weight.
pub(super) fn choose(
    ask: &Ask,
    candidates: &[Candidate],
    weights: &Weights,
    rng: &mut fastrand::Rng,
    scores: &mut Vec<Entry>,
) -> Option<(usize, Branch)> {
    let whole = weights.queue
        + weights.kv_cache
        + weights.prefix_cache
        + weights.lora_affinity
        + weights.inflight
        + weights.failure;
    if !(whole > 0.0 && whole < f64::INFINITY) {
        return None;
    }
    let ranges = Ranges {
        queue: Range::of(candidates.iter().filter_map(waiting)),
        inflight: Range::of(candidates.iter().map(|c| f64::from(c.signals.inflight))),
    };
    let mut any = false;
    let mut best = -1.0_f64;
    let mut ties = 0_usize;
    for candidate in candidates {
        let sum = sum(ask, candidate, weights, &ranges);
        any |= sum.is_some();
        let score = sum.unwrap_or(0.0) / whole;
        if score > best {
            best = score;
            ties = 1;
        } else if score == best {
            ties = ties.saturating_add(1);
        }
        scores.push(Entry {
            slot: candidate.slot,
            cost: -score,
            matched_tokens: sane(candidate.matched_tokens, 0.0),
            ttft_ms: None,
        });
    }
    if !any {
        return None;
    }
    let nth = if ties > 1 { rng.usize(..ties) } else { 0 };
    let winner = scores
        .iter()
        .enumerate()
        .filter(|(_, e)| e.cost == -best)
        .nth(nth)?;
    Some((winner.0, Branch::Weighted))
}

/// A candidate's signals, weighted and added up; `None` when none of them has weight.
fn sum(ask: &Ask, candidate: &Candidate, weights: &Weights, ranges: &Ranges) -> Option<f64> {
    let signals = &candidate.signals;
    let mut sum = None;
    let mut add = |weight: f64, value: Option<f64>| {
        if let Some(value) = value
            && weight != 0.0
        {
            *sum.get_or_insert(0.0) += weight * value.clamp(0.0, 1.0);
        }
    };
    add(
        weights.queue,
        waiting(candidate).map(|x| ranges.queue.lower_is_better(x)),
    );
    add(
        weights.kv_cache,
        finite(signals.kv_use).map(|x| 1.0 - x.clamp(0.0, 1.0)),
    );
    add(
        weights.prefix_cache,
        Some(prefix(candidate.matched_tokens, ask.prompt_tokens)),
    );
    add(weights.lora_affinity, adapter(signals.adapter));
    add(
        weights.inflight,
        Some(ranges.inflight.lower_is_better(f64::from(signals.inflight))),
    );
    add(
        weights.failure,
        Some(1.0 - sane(signals.failure, 1.0).clamp(0.0, 1.0)),
    );
    sum
}

fn waiting(candidate: &Candidate) -> Option<f64> {
    finite(candidate.signals.waiting).filter(|x| *x >= 0.0)
}

fn finite(x: Option<f64>) -> Option<f64> {
    x.filter(|x| x.is_finite())
}

fn prefix(matched_tokens: f64, total_tokens: f64) -> f64 {
    let matched = sane(matched_tokens, 0.0);
    if !(total_tokens > 0.0 && total_tokens < f64::INFINITY) {
        return 0.0;
    }
    let length = (matched / LONG_MATCH_TOKENS).min(1.0);
    0.75 * (matched / total_tokens) + 0.25 * length * length
}

fn adapter(adapter: Adapter) -> Option<f64> {
    match adapter {
        Adapter::Unknown => None,
        Adapter::Active => Some(1.0),
        Adapter::Room | Adapter::Waiting | Adapter::Full => Some(0.0),
    }
}

/// The signals that are normalised over all candidates.
struct Ranges {
    queue: Range,
    inflight: Range,
}

/// The smallest and the largest value over all candidates.
struct Range {
    min: f64,
    max: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        values.fold(
            Self {
                min: f64::INFINITY,
                max: f64::NEG_INFINITY,
            },
            |range, x| Self {
                min: range.min.min(x),
                max: range.max.max(x),
            },
        )
    }

    fn lower_is_better(&self, x: f64) -> f64 {
        if self.min == self.max {
            1.0
        } else {
            1.0 - (x - self.min) / (self.max - self.min)
        }
    }
}
