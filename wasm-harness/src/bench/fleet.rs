//! Endpoints with the metrics of busy engines: a whole text of vLLM 0.32, 50 KB each.

use crate::host::{Health, UpstreamHost};

const METRICS: &str = include_str!("../../../tests/fixtures/metrics/vllm_full_busy.prom");

/// The endpoints of a cluster at a moment: another `moment` is another text at each of them, with counters
/// that grew.
#[must_use]
pub fn hosts(count: usize, moment: u64) -> Vec<UpstreamHost> {
    (0..count)
        .map(|n| UpstreamHost {
            address: format!("10.1.{}.{}:8000", n / 250, n % 250 + 1),
            health: Health::Healthy,
            metrics: Some(metrics(n as u64, moment).into_bytes()),
        })
        .collect()
}

fn metrics(engine: u64, moment: u64) -> String {
    let mut text = String::with_capacity(METRICS.len() + 64);
    for line in METRICS.lines() {
        let value = match line.split('{').next().unwrap_or_default() {
            "vllm:num_requests_running" => Some(3 + (engine + moment) % 5),
            "vllm:num_requests_waiting" => Some(engine % 3),
            "vllm:prefix_cache_queries_total" => Some(9_000_000 + moment * 4096),
            "vllm:prompt_tokens_total" => Some(200_683 + moment * 977),
            _ => None,
        };
        match (value, line.rsplit_once(' ')) {
            (Some(value), Some((series, _))) => text.push_str(&format!("{series} {value}.0")),
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}
