//! The table for people, and the same as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::budget;
use super::case::{Case, Cost};
use super::memory::Memory;
use super::native::Native;

/// Whole numbers in groups of three digits.
fn grouped(figure: u64) -> String {
    let digits = figure.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// All tables.
#[must_use]
pub fn table(costs: &[(Case, Cost)], native: &[Native], memory: Option<&Memory>) -> String {
    let mut out = String::from(
        "Wasm instructions of one request, everything known and unchanged since the last:\n",
    );
    let heads = [
        "headers", "read", "decide", "whole", "response", "listing", "refresh", "first", "worst",
        "whole us",
    ];
    let _ = write!(out, "{:36}", "");
    for head in heads {
        let _ = write!(out, "{head:>12}");
    }
    out.push('\n');
    let optional = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), grouped);
    for (case, cost) in costs {
        let _ = write!(out, "{:36}", case.name());
        for figure in [
            cost.headers,
            cost.read,
            cost.decide,
            cost.whole,
            cost.response,
        ] {
            let _ = write!(out, "{:>12}", grouped(figure));
        }
        for figure in [cost.unchanged, cost.refresh, cost.first, cost.worst] {
            let _ = write!(out, "{:>12}", optional(figure));
        }
        let _ = writeln!(out, "{:>12.0}", cost.whole_us);
    }
    out.push_str("  what a decision costs more: listing, the endpoints being listed anew; refresh, all metrics having changed;\n");
    out.push_str("  first, all endpoints being new; worst, the most of 66 refreshes, in which endpoints take turns in being read whole\n");
    out.push_str("\nThe core, natively, nanoseconds; a prompt that every endpoint holds:\n");
    let _ = writeln!(
        out,
        "{:>10}{:>8}{:>8}{:>12}{:>12}{:>12}",
        "bytes", "blocks", "hosts", "read", "match", "record"
    );
    for row in native {
        let _ = writeln!(
            out,
            "{:>10}{:>8}{:>8}{:>12}{:>12}{:>12}",
            row.bytes, row.blocks, row.hosts, row.read_ns, row.match_ns, row.record_ns
        );
    }
    if let Some(memory) = memory {
        let _ = writeln!(
            out,
            "\nLinear memory over {} new prompts: {} at first, {} half way, {} at the end, with {} pairs in the index",
            grouped(memory.requests as u64),
            grouped(memory.first_bytes as u64),
            grouped(memory.full_bytes as u64),
            grouped(memory.last_bytes as u64),
            grouped(memory.pairs),
        );
    }
    out
}

/// Writes `target/report/bench.json`.
///
/// # Errors
/// The file cannot be written.
pub fn write(costs: &[(Case, Cost)], native: &[Native], memory: Option<&Memory>) -> Result<()> {
    let cases: Vec<_> = costs
        .iter()
        .map(|(case, cost)| json!({ "case": case.name(), "cost": cost }))
        .collect();
    let report = json!({ "cases": cases, "native": native, "memory": memory, "built_with": budget::built_with()? });
    let folder = budget::tree().join("target/report");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(
        folder.join("bench.json"),
        serde_json::to_string_pretty(&report)? + "\n",
    )?;
    Ok(())
}
