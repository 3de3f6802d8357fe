//! What a replay prints and writes.

use std::fmt::Write as _;

use serde::Serialize;

use super::Request;
use super::simulate::Outcome;

/// One policy's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who chose.
    pub policy: String,
    /// Mean time to first token, seconds.
    pub ttft_mean_s: f64,
    /// Median.
    pub ttft_p50_s: f64,
    /// 90th percentile.
    pub ttft_p90_s: f64,
    /// 99th percentile.
    pub ttft_p99_s: f64,
    /// Mean over the part of the run that was asked for, seconds.
    pub ttft_part_s: f64,
    /// Prompt tokens found in a cache, share.
    pub hit_share: f64,
    /// Prompt tokens expected in a cache, share.
    pub predicted_share: f64,
    /// Wasm instructions of a decision, from the request's first callback on; 0 = not in wasm.
    pub decision_instructions: u64,
    /// Of the dearest decision.
    pub decision_instructions_max: u64,
    /// Wasm instructions a request, responses and ticks included.
    pub request_instructions: u64,
    /// Requests left to the gateway.
    pub fallbacks: u64,
    /// Computed tokens of the busiest engine, against the mean.
    pub balance: f64,
    /// Answers that were errors.
    pub failures: u64,
    /// Requests without a first token.
    pub unanswered: usize,
}

impl Row {
    /// Sums up a run; `part_ms` bounds the arrivals of [`Self::ttft_part_s`].
    #[must_use]
    pub fn of(policy: &str, outcome: &Outcome, requests: &[Request], part_ms: (f64, f64)) -> Self {
        let mut all: Vec<f64> = outcome.ttft_ms.iter().flatten().copied().collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64 / 1e3;
        let inside: Vec<f64> = requests
            .iter()
            .zip(&outcome.ttft_ms)
            .filter(|(body, _)| body.at_ms >= part_ms.0 && body.at_ms < part_ms.1)
            .filter_map(|(_, ttft)| *ttft)
            .collect();
        all.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * all.len() as f64) as usize;
            all.get(place.min(all.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0.0)
                / 1e3
        };
        let computed: u64 = outcome.computed_tokens.iter().sum();
        let engines = outcome.computed_tokens.len().max(1) as f64;
        let busiest = outcome.computed_tokens.iter().max().copied().unwrap_or(0);
        let asked = (outcome.figures.decisions + outcome.figures.fallbacks).max(1);
        Self {
            policy: policy.to_owned(),
            ttft_mean_s: mean(&all),
            ttft_p50_s: at(0.5),
            ttft_p90_s: at(0.9),
            ttft_p99_s: at(0.99),
            ttft_part_s: mean(&inside),
            hit_share: outcome.hit_tokens as f64 / outcome.prompt_tokens.max(1) as f64,
            predicted_share: outcome.figures.predicted_tokens / outcome.prompt_tokens.max(1) as f64,
            decision_instructions: outcome.figures.instructions / asked,
            decision_instructions_max: outcome.figures.instructions_max,
            request_instructions: outcome.figures.instructions_all / asked,
            fallbacks: outcome.figures.fallbacks,
            balance: busiest as f64 / (computed.max(1) as f64 / engines),
            failures: outcome.failures,
            unanswered: outcome.ttft_ms.len() - all.len(),
        }
    }
}

/// A table for people: one line a policy, times in seconds, the first row as the measure.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<18}{:>9}{:>7}{:>8}{:>8}{:>8}{:>7}{:>10}{:>9}{:>7}{:>10}{:>10}\n",
        "policy",
        "ttft s",
        "ratio",
        "p50",
        "p90",
        "p99",
        "hit %",
        "predicted",
        "balance",
        "errors",
        "k instr.",
        "dearest"
    );
    let measure = rows.first().map_or(1.0, |row| row.ttft_mean_s);
    for row in rows {
        let _ = writeln!(
            text,
            "{:<18}{:>9.3}{:>7.3}{:>8.3}{:>8.2}{:>8.2}{:>7.2}{:>10.2}{:>9.2}{:>7}{:>10}{:>10}",
            row.policy,
            row.ttft_mean_s,
            row.ttft_mean_s / measure,
            row.ttft_p50_s,
            row.ttft_p90_s,
            row.ttft_p99_s,
            row.hit_share * 100.0,
            row.predicted_share * 100.0,
            row.balance,
            row.failures,
            row.decision_instructions / 1000,
            row.decision_instructions_max / 1000
        );
    }
    text
}
