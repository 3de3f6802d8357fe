//! What a run has shown: one row a policy, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::play::{Outcome, Played};

/// Time to first token, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct FirstToken {
    /// Mean.
    pub mean_ms: f64,
    /// Half are faster.
    pub p50_ms: f64,
    /// Nine of ten are faster.
    pub p90_ms: f64,
    /// All but one in a hundred are faster.
    pub p99_ms: f64,
}

/// One policy's row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub policy: String,
    /// Requests sent.
    pub requests: usize,
    /// Those that failed.
    pub errors: usize,
    /// The first failure's text.
    pub first_error: Option<String>,
    /// Prompt tokens, where the engines tell.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens found in a cache; `None` where no engine tells.
    pub hit_tokens: Option<u64>,
    /// Hit tokens over prompt tokens.
    pub hit_share: Option<f64>,
    /// Time to first token.
    pub ttft: FirstToken,
    /// First request sent to last answer read, seconds.
    pub total_s: f64,
    /// Requests of the busiest engine over the mean of all; 1 is even.
    pub balance_requests: f64,
    /// The same of computed prompt tokens, where the engines tell.
    pub balance_tokens: Option<f64>,
    /// Bodies that reached an engine byte for byte; `None` where it cannot be seen.
    pub identical_bodies: Option<usize>,
}

impl Row {
    /// Sums up a play over `engines` engines.
    pub fn new(policy: &str, played: &Played, engines: usize, identical: Option<usize>) -> Self {
        let outcomes = &played.outcomes;
        let errors = outcomes.iter().filter(|o| o.error.is_some());
        let prompt_tokens = sum(outcomes, |o| o.prompt_tokens);
        let hit_tokens = sum(outcomes, |o| o.cached_tokens);
        let hit_share = match (hit_tokens, prompt_tokens) {
            (Some(hit), Some(all)) if all > 0 => Some(hit as f64 / all as f64),
            _ => None,
        };
        let computed =
            |o: &Outcome| Some(o.prompt_tokens? - o.cached_tokens?.min(o.prompt_tokens?));
        Self {
            policy: policy.to_owned(),
            requests: outcomes.len(),
            errors: errors.clone().count(),
            first_error: errors.clone().find_map(|o| o.error.clone()),
            prompt_tokens,
            hit_tokens,
            hit_share,
            ttft: first_token(outcomes),
            total_s: played.took.as_secs_f64(),
            balance_requests: balance(outcomes, engines, |_| 1),
            balance_tokens: hit_tokens
                .map(|_| balance(outcomes, engines, |o| computed(o).unwrap_or(0))),
            identical_bodies: identical,
        }
    }

    /// Whether every request was answered and, as far as can be seen, arrived untouched.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
            && self
                .identical_bodies
                .is_none_or(|same| same == self.requests)
    }
}

fn sum(outcomes: &[Outcome], of: impl Fn(&Outcome) -> Option<u64>) -> Option<u64> {
    outcomes
        .iter()
        .filter_map(of)
        .fold(None, |sum, n| Some(sum.unwrap_or(0) + n))
}

fn first_token(outcomes: &[Outcome]) -> FirstToken {
    let mut all: Vec<Duration> = outcomes.iter().filter_map(|o| o.first_token).collect();
    all.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let percentile = |p: usize| {
        let place = (all.len() * p).div_ceil(100).saturating_sub(1);
        all.get(place).copied().map_or(0.0, ms)
    };
    FirstToken {
        mean_ms: all.iter().copied().map(ms).sum::<f64>() / all.len().max(1) as f64,
        p50_ms: percentile(50),
        p90_ms: percentile(90),
        p99_ms: percentile(99),
    }
}

fn balance(outcomes: &[Outcome], engines: usize, weight: impl Fn(&Outcome) -> u64) -> f64 {
    let mut by_engine: BTreeMap<&str, u64> = BTreeMap::new();
    for outcome in outcomes {
        if let Some(engine) = outcome.served_by.as_deref() {
            *by_engine.entry(engine).or_default() += weight(outcome);
        }
    }
    let most = by_engine.values().max().copied().unwrap_or(0);
    let all: u64 = by_engine.values().sum();
    most as f64 * engines as f64 / all.max(1) as f64
}

/// `other`'s hit tokens and mean TTFT against a base's: factors above 1 are better.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The policy that is compared.
    pub policy: String,
    /// What with.
    pub base: String,
    /// Its hit tokens over the base's.
    pub hit_tokens: Option<f64>,
    /// The base's mean TTFT over its own.
    pub mean_ttft: f64,
}

/// All rows and how the last compares.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was played.
    pub workload: String,
    /// The engines, `host:port`.
    pub engines: Vec<String>,
    /// A row a policy, in order of play.
    pub rows: Vec<Row>,
    /// The last row against each other one.
    pub ratios: Vec<Ratio>,
}

impl Report {
    /// Adds the ratios.
    pub fn new(workload: String, engines: Vec<String>, rows: Vec<Row>) -> Self {
        let ratios = match rows.split_last() {
            Some((last, others)) => others.iter().map(|base| ratio(last, base)).collect(),
            None => Vec::new(),
        };
        Self {
            workload,
            engines,
            rows,
            ratios,
        }
    }

    /// The table and a sentence for each ratio.
    pub fn table(&self) -> String {
        let mut out = format!("{}, {} engines\n\n", self.workload, self.engines.len());
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<14}{:>9}{:>8}{:>12}{:>7}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "policy",
            "requests",
            "errors",
            "hit tokens",
            "share",
            "TTFT mean",
            "p50",
            "p90",
            "p99",
            "total",
            "balance",
            "bodies =",
        );
        for row in &self.rows {
            let unknown = || "unknown".to_owned();
            let ms = |value: f64| format!("{value:.0} ms");
            let _ = writeln!(
                out,
                "{:<14}{:>9}{:>8}{:>12}{:>7}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
                row.policy,
                row.requests,
                row.errors,
                row.hit_tokens.map_or_else(unknown, |n| n.to_string()),
                row.hit_share
                    .map_or_else(|| "-".into(), |share| format!("{:.1}%", share * 100.0)),
                ms(row.ttft.mean_ms),
                ms(row.ttft.p50_ms),
                ms(row.ttft.p90_ms),
                ms(row.ttft.p99_ms),
                format!("{:.1} s", row.total_s),
                format!("{:.2}", row.balance_requests),
                row.identical_bodies.map_or_else(unknown, |n| n.to_string()),
            );
        }
        out.push('\n');
        for ratio in &self.ratios {
            let Ratio { policy, base, .. } = ratio;
            let _ = write!(out, "{policy} against {base}: ");
            if let Some(hits) = ratio.hit_tokens {
                let _ = write!(out, "{hits:.2}x the hit tokens, ");
            }
            let _ = writeln!(out, "mean TTFT {:.2}x shorter", ratio.mean_ttft);
        }
        for row in self.rows.iter().filter(|row| row.first_error.is_some()) {
            let error = row.first_error.as_deref().unwrap_or_default();
            let _ = writeln!(out, "{}: first error: {error}", row.policy);
        }
        out
    }
}

fn ratio(row: &Row, base: &Row) -> Ratio {
    let hit_tokens = match (row.hit_tokens, base.hit_tokens) {
        (Some(own), Some(base)) => Some(own as f64 / base.max(1) as f64),
        _ => None,
    };
    Ratio {
        policy: row.policy.clone(),
        base: base.policy.clone(),
        hit_tokens,
        mean_ttft: base.ttft.mean_ms / row.ttft.mean_ms.max(0.001),
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, Row};
    use crate::play::{Outcome, Played};
    use std::time::Duration;

    fn row(policy: &str, hits: &[(u64, u64, &str)]) -> Row {
        let outcomes = hits
            .iter()
            .enumerate()
            .map(|(number, &(ttft, cached, engine))| Outcome {
                number,
                body_digest: String::new(),
                error: None,
                served_by: Some(engine.into()),
                first_token: Some(Duration::from_millis(ttft)),
                prompt_tokens: Some(100),
                cached_tokens: Some(cached),
            });
        let played = Played {
            outcomes: outcomes.collect(),
            took: Duration::from_secs(2),
        };
        Row::new(policy, &played, 2, Some(hits.len()))
    }

    #[test]
    fn rows_and_ratios() {
        let base = row(
            "base",
            &[(100, 10, "a"), (300, 20, "a"), (200, 0, "b"), (400, 0, "a")],
        );
        assert_eq!(
            (base.ttft.p50_ms, base.ttft.p99_ms, base.ttft.mean_ms),
            (200.0, 400.0, 250.0)
        );
        assert_eq!((base.hit_tokens, base.balance_requests), (Some(30), 1.5));
        assert!(base.is_clean());
        let own = row("own", &[(50, 45, "a"), (75, 45, "b")]);
        let report = Report::new("test".into(), vec!["a".into(), "b".into()], vec![base, own]);
        assert_eq!(report.ratios[0].hit_tokens, Some(3.0));
        assert_eq!(report.ratios[0].mean_ttft, 4.0);
        assert!(
            report
                .table()
                .contains("own against base: 3.00x the hit tokens")
        );
    }

    #[test]
    fn a_changed_body_is_not_clean() {
        let mut changed = row("own", &[(50, 45, "a")]);
        changed.identical_bodies = Some(0);
        assert!(!changed.is_clean());
    }
}
