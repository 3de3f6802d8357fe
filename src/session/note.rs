//! A decision in one line, for people: response header, log, access log.

use crate::number::to_u32;
use crate::pool::{Pool, Sent};
use crate::request::Prompt;

pub(super) fn whole(tokens: f64) -> u64 {
    u64::from(to_u32(tokens))
}

/// What was decided and why; with the best three costs where somebody looks closely.
pub(super) fn note(
    sent: &Sent,
    prompt: &Prompt,
    addresses: &str,
    pool: &Pool,
    with_costs: bool,
) -> String {
    let endpoint = addresses.split(',').next().unwrap_or_default();
    let mut text = format!(
        "endpoint={endpoint};branch={};blocks={}/{};tokens={}/{}",
        sent.branch.name(),
        sent.matched_blocks,
        sent.total_blocks(),
        whole(sent.matched_tokens),
        whole(sent.prompt_tokens),
    );
    if let Some(prefill) = pool.prefill_address(sent) {
        text.push_str(";prefill=");
        text.push_str(prefill);
    }
    if let Some(cut) = prompt.cut {
        text.push_str(";cut=");
        text.push_str(cut.name());
    }
    if !with_costs {
        return text;
    }
    for (n, (address, cost)) in pool.costs().iter().enumerate() {
        // A weighted sum is at most a few units: it is shown in thousandths.
        let (label, shown) = if *cost < 0.0 {
            (";score_milli=", whole(-cost * 1000.0))
        } else {
            (";costs=", whole(*cost))
        };
        text.push_str(if n == 0 { label } else { "," });
        text.push_str(&format!("{address}:{shown}"));
    }
    text
}
