//! Bodies and answers of replayed requests, as engines and gateways see them.
//!
//! A block is always the same text of 4 characters a token, so equal blocks are equal text. Answers stream:
//! one event at the first token, one with the usage at the end.

use std::fmt::Write as _;

use super::engine::Metrics;
use super::{BLOCK_TOKENS, Request};

/// Characters of a token.
const TOKEN_BYTES: u32 = 4;
/// What stands for an earlier answer between two turns.
const ANSWER: &str = r#",{"role":"assistant","content":"Go on."}"#;

/// The request as a chat completion.
#[must_use]
pub fn chat(body: &Request) -> Vec<u8> {
    let mut text =
        String::with_capacity((body.tokens * TOKEN_BYTES) as usize + 64 * body.blocks.len() + 256);
    text.push_str(
        r#"{"model":"chat","stream":true,"stream_options":{"include_usage":true},"messages":["#,
    );
    let mut left_bytes = (body.tokens * TOKEN_BYTES) as usize;
    for (place, block) in body.blocks.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        if body.turns.first() == Some(&place) {
            // The words that tell conversations apart.
            let _ = write!(
                text,
                r#"{{"role":"user","content":"Conversation {:x}."}},"#,
                body.conversation
            );
        }
        let role = match (body.turns.first(), place) {
            (None, 0) => "system",
            (None, place) if place % 2 == 0 => "assistant",
            (Some(system), place) if place < *system => "system",
            _ => "user",
        };
        if body
            .turns
            .get(1..)
            .is_some_and(|turns| turns.contains(&place))
        {
            text.truncate(text.len() - 1);
            text.push_str(ANSWER);
            text.push(',');
        }
        let _ = write!(text, r#"{{"role":"{role}","content":""#);
        let bytes = left_bytes.min((BLOCK_TOKENS * TOKEN_BYTES) as usize);
        left_bytes -= bytes;
        push_text(&mut text, *block, bytes);
        text.push_str("\"}");
    }
    text.push_str("]}");
    text.into_bytes()
}

/// The first `bytes` characters of a block's text.
fn push_text(text: &mut String, block: u64, bytes: usize) {
    const LETTERS: &[u8; 32] = b"etaoinshrdlucmfwypvbgkjqxz ,.-:;";
    let mut rng = fastrand::Rng::with_seed(block);
    let mut left = bytes;
    while left > 0 {
        let mut bits = rng.u64(..);
        for _ in 0..left.min(12) {
            text.push(char::from(LETTERS[(bits & 31) as usize]));
            bits >>= 5;
        }
        left -= left.min(12);
    }
}

/// The event of a first token.
pub const FIRST_EVENT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Yes\"}}]}\n\n";

/// The end of a stream.
#[must_use]
pub fn last_events(body: &Request, cached_tokens: u32, tells_cached: bool) -> Vec<u8> {
    let (prompt, output) = (body.tokens, body.output_tokens);
    let details = if tells_cached {
        format!(r#","prompt_tokens_details":{{"cached_tokens":{cached_tokens}}}"#)
    } else {
        String::new()
    };
    format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{output},\"total_tokens\":{}{details}}}}}\n\ndata: [DONE]\n\n",
        prompt + output
    )
    .into_bytes()
}

/// An engine's metrics text, with vLLM's names.
#[must_use]
pub fn metrics(metrics: &Metrics) -> Vec<u8> {
    let labels = r#"{engine="0",model_name="chat"}"#;
    let mut text = String::new();
    let mut gauge = |name: &str, kind: &str, value: f64| {
        let _ = writeln!(
            text,
            "# TYPE vllm:{name} {kind}\nvllm:{name}{labels} {value:?}"
        );
    };
    gauge("num_requests_running", "gauge", metrics.running as f64);
    gauge("num_requests_waiting", "gauge", metrics.waiting as f64);
    gauge("kv_cache_usage_perc", "gauge", metrics.kv_use);
    gauge(
        "prefix_cache_queries_total",
        "counter",
        metrics.queried_tokens as f64,
    );
    gauge(
        "prefix_cache_hits_total",
        "counter",
        metrics.hit_tokens as f64,
    );
    let _ = writeln!(
        text,
        "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size=\"{BLOCK_TOKENS}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"{}\"}} 1.0",
        metrics.cache_blocks
    );
    text.into_bytes()
}
