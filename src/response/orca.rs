//! ORCA load reports: the response header `endpoint-load-metrics`.
//!
//! vLLM answers a request that has `endpoint-load-metrics-format: JSON` or `TEXT` with
//! `JSON {"named_metrics": {"num_requests_waiting": 0.0, ..}}` or
//! `TEXT named_metrics.num_requests_waiting=0, ..`. The figures are those of its metrics text.

use serde::Deserialize;

use crate::endpoints::load::{Load, gauge};

/// Longest header value that is read.
const MAX_HEADER_BYTES: usize = 16 * 1024;

const WAITING: &str = "num_requests_waiting";
const RUNNING: &str = "num_requests_running";
const KV_USE: &str = "kv_cache_usage_perc";

/// The load that a header value reports; `None` when it reports nothing that we know. The engine is
/// not told.
#[must_use]
pub fn parse(header: &[u8]) -> Option<Load> {
    if header.len() > MAX_HEADER_BYTES {
        return None;
    }
    let header = header.trim_ascii();
    let format_len = header.iter().position(u8::is_ascii_whitespace)?;
    let (format, report) = header.split_at_checked(format_len)?;
    let load = if format.eq_ignore_ascii_case(b"JSON") {
        from_json(report)?
    } else if format.eq_ignore_ascii_case(b"TEXT") {
        from_text(report)
    } else {
        return None;
    };
    (!load.is_unknown()).then_some(load)
}

#[derive(Deserialize)]
struct Report {
    named_metrics: Named,
}

#[derive(Deserialize)]
struct Named {
    num_requests_waiting: Option<f64>,
    num_requests_running: Option<f64>,
    kv_cache_usage_perc: Option<f64>,
}

fn from_json(report: &[u8]) -> Option<Load> {
    let report: Report = serde_json::from_slice(report).ok()?;
    let named = report.named_metrics;
    let mut load = Load::default();
    set(&mut load, WAITING, named.num_requests_waiting);
    set(&mut load, RUNNING, named.num_requests_running);
    set(&mut load, KV_USE, named.kv_cache_usage_perc);
    Some(load)
}

fn from_text(report: &[u8]) -> Load {
    let mut load = Load::default();
    for pair in report.split(|&b| b == b',') {
        let Ok(pair) = core::str::from_utf8(pair) else {
            continue;
        };
        if let Some((name, value)) = pair.trim().split_once('=')
            && let Some(name) = name.trim().strip_prefix("named_metrics.")
        {
            set(&mut load, name, value.trim().parse().ok());
        }
    }
    load
}

fn set(load: &mut Load, name: &str, value: Option<f64>) {
    let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) else {
        return;
    };
    match name {
        WAITING => load.waiting = Some(gauge(value)),
        RUNNING => load.running = Some(gauge(value)),
        KV_USE => load.kv_use = Some(gauge(value.min(1.0))),
        _ => {}
    }
}
