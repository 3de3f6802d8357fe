//! The table for people, and the same as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::budget::Measured;
use super::memory::Memory;
use super::native::Native;
use crate::built::{self, built_with};

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

/// A case's figures, and its native ones.
pub type Line = (Measured, Native);

/// All tables.
#[must_use]
pub fn table(lines: &[Line], memory: Option<&Memory>) -> String {
    let mut out = decisions(lines);
    out.push('\n');
    out.push_str(&callbacks(lines));
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

/// A decision's parts and the whole, in both measures.
fn decisions(lines: &[Line]) -> String {
    let mut out =
        String::from("A decision and its parts, everything known and unchanged since the last:\n");
    let _ = writeln!(
        out,
        "{:36}{:>55}  |{:>50}",
        "", "wasm instructions", "nanoseconds, natively"
    );
    let heads = ["parse", "hash", "match", "record", "whole"];
    let _ = write!(out, "{:36}", "");
    for head in heads {
        let _ = write!(out, "{head:>11}");
    }
    out.push_str("  |");
    for head in heads {
        let _ = write!(out, "{head:>10}");
    }
    out.push('\n');
    for (Measured { case, cost, parts }, native) in lines {
        let _ = write!(out, "{:36}", case.name());
        for figure in [
            parts.parse,
            parts.hash,
            parts.find,
            parts.record,
            cost.whole,
        ] {
            let _ = write!(out, "{:>11}", grouped(figure));
        }
        out.push_str("  |");
        for figure in [
            native.parse_ns,
            native.hash_ns,
            native.match_ns,
            native.record_ns,
            native.whole_ns,
        ] {
            let _ = write!(out, "{:>10}", grouped(figure));
        }
        out.push('\n');
    }
    out.push_str("  parse, the body read with a budget of no blocks; hash, what reading it into blocks costs more; match and record, of a\n");
    out.push_str("  prompt that every endpoint holds; whole, headers to pick: of the built plugin with its host calls, natively of the core\n");
    out
}

/// A request by its callbacks, and what a listing costs it.
fn callbacks(lines: &[Line]) -> String {
    let mut out = String::from(
        "Wasm instructions of the same request by its callbacks, and what is due at times:\n",
    );
    let heads = [
        "headers", "read", "decide", "response", "listing", "refresh", "first", "worst", "whole us",
    ];
    let _ = write!(out, "{:36}", "");
    for head in heads {
        let _ = write!(out, "{head:>12}");
    }
    out.push('\n');
    let optional = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), grouped);
    for (Measured { case, cost, .. }, _) in lines {
        let _ = write!(out, "{:36}", case.name());
        for figure in [cost.headers, cost.read, cost.decide, cost.response] {
            let _ = write!(out, "{:>12}", grouped(figure));
        }
        for figure in [cost.unchanged, cost.refresh, cost.first, cost.worst] {
            let _ = write!(out, "{:>12}", optional(figure));
        }
        let _ = writeln!(out, "{:>12.0}", cost.whole_us);
    }
    out.push_str("  what a decision costs more: listing, the endpoints being listed anew; refresh, all metrics having changed;\n");
    out.push_str("  first, all endpoints being new; worst, the most of 66 refreshes, in which endpoints take turns in being read whole;\n");
    out.push_str("  whole us, a decision in wasmtime, which counts each instruction as it runs\n");
    out
}

/// Writes `target/report/bench.json`.
///
/// # Errors
/// The file cannot be written.
pub fn write(lines: &[Line], memory: Option<&Memory>) -> Result<()> {
    let cases: Vec<_> = lines
        .iter()
        .map(|(Measured { case, cost, parts }, native)| {
            json!({ "case": case.name(), "parts": parts, "cost": cost, "native": native })
        })
        .collect();
    let report = json!({ "cases": cases, "memory": memory, "built_with": built_with()? });
    let text = serde_json::to_string_pretty(&report)? + "\n";
    Ok(std::fs::write(built::report("bench.json")?, text)?)
}
