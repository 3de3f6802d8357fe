//! Reader of traces in the Mooncake format: one JSON object a line with `timestamp` (ms),
//! `input_length` and `output_length` (tokens) and `hash_ids`, one id for each 512-token block of
//! the prompt. Equal ids from the start mean an equal prefix.
//!
//! Every id becomes the same text wherever it appears, every block one message; the last is cut to
//! what `input_length` leaves. Requests go out at their time, whatever became of the others.

use std::io::BufRead;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::json;

use super::{Conversation, Turn, body};

const BLOCK_TOKENS: usize = 512;
const TOKEN_BYTES: usize = 4;

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: usize,
    output_length: usize,
    hash_ids: Vec<u64>,
}

/// Reads at most `limit` requests of a trace, with its time divided by `speed`.
///
/// # Errors
/// A line that is no request of this format, by its number; a speed that is not above 0.
pub fn read(
    trace: impl BufRead,
    model: &str,
    lead: &str,
    speed: f64,
    limit: usize,
) -> anyhow::Result<Vec<Conversation>> {
    ensure!(
        speed.is_finite() && speed > 0.0,
        "SPEED={speed}: above 0 expected"
    );
    let mut all = Vec::new();
    for (number, line) in trace.lines().enumerate() {
        let line = line.with_context(|| format!("line {}", number + 1))?;
        if line.trim().is_empty() {
            continue;
        }
        if all.len() == limit {
            break;
        }
        let line: Line = serde_json::from_str(&line)
            .with_context(|| format!("line {}: no request of a Mooncake trace", number + 1))?;
        let seconds = (line.timestamp / 1000.0 / speed).max(0.0);
        all.push(Conversation {
            start: Duration::try_from_secs_f64(seconds)
                .with_context(|| format!("line {}: timestamp", number + 1))?,
            turns: vec![Turn {
                body: request(model, lead, &line),
                think: Duration::ZERO,
            }],
        });
    }
    Ok(all)
}

fn request(model: &str, lead: &str, line: &Line) -> bytes::Bytes {
    let mut left = line.input_length;
    let mut messages = Vec::with_capacity(line.hash_ids.len());
    for (place, id) in line.hash_ids.iter().enumerate() {
        let tokens = left.min(BLOCK_TOKENS);
        left -= tokens;
        let role = match place {
            0 => "system",
            odd if odd % 2 == 1 => "user",
            _ => "assistant",
        };
        let lead = if place == 0 { lead } else { "" };
        messages.push(json!({"role": role, "content": format!("{lead}{}", text(*id, tokens))}));
    }
    body(model, &messages, line.output_length.max(1))
}

/// The text of a block: hexadecimal words drawn from its id.
fn text(id: u64, tokens: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(id);
    let mut text = String::with_capacity(tokens * TOKEN_BYTES + 8);
    while text.len() < tokens * TOKEN_BYTES {
        text.push_str(&format!("{:07x} ", rng.u32(..) >> 4));
    }
    text.truncate(tokens * TOKEN_BYTES);
    text
}

#[cfg(test)]
mod tests {
    use super::read;
    use std::time::Duration;

    const TRACE: &str = r#"{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 2]}
"#;

    fn contents(body: &[u8]) -> Vec<String> {
        let value: serde_json::Value = serde_json::from_slice(body).unwrap();
        let messages = value["messages"].as_array().unwrap().iter();
        messages
            .map(|m| m["content"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn equal_ids_are_equal_text_and_time_is_divided() {
        let all = read(TRACE.as_bytes(), "m", "lead ", 2.0, 10).unwrap();
        assert_eq!(all[1].start, Duration::from_millis(1500));
        let (first, second) = (
            contents(&all[0].turns[0].body),
            contents(&all[1].turns[0].body),
        );
        assert_eq!(first[0], second[0]);
        assert!(first[0].starts_with("lead ") && first[0].len() == 5 + 512 * 4);
        assert_eq!((first[1].len(), second[1].len()), (188 * 4, 512 * 4));
        assert!(second[1].starts_with(&first[1]));
        assert_eq!(second[2].len(), 76 * 4);
    }

    #[test]
    fn limits_and_errors() {
        assert_eq!(read(TRACE.as_bytes(), "m", "", 1.0, 1).unwrap().len(), 1);
        let error = read(&b"{}"[..], "m", "", 1.0, 1).unwrap_err().to_string();
        assert!(error.starts_with("line 1: "), "{error}");
        assert!(read(TRACE.as_bytes(), "m", "", 0.0, 1).is_err());
    }
}
