//! Request bodies of a given size.

use serde_json::{Value, json};

/// What a body's text is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// A chat in English.
    Ascii,
    /// A chat in Chinese: three bytes a character.
    Cjk,
    /// A chat full of code: a line break or a quote every few characters, escaped.
    Escapes,
    /// A completion whose prompt is a list of token ids.
    TokenIds,
}

impl Text {
    /// As rows name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ascii => "ascii",
            Self::Cjk => "cjk",
            Self::Escapes => "escapes",
            Self::TokenIds => "token ids",
        }
    }

    /// The path that such a body is posted to.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::TokenIds => "/v1/completions",
            _ => "/v1/chat/completions",
        }
    }
}

/// A message is so long at most: long prompts are conversations of several turns.
const MESSAGE_BYTES: usize = 4096;

/// A body of about `bytes`; another `seed` is another prompt from its first block on.
#[must_use]
pub fn body(text: Text, bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    if text == Text::TokenIds {
        let ids: Vec<u32> = (0..bytes / 7).map(|_| rng.u32(100_000..130_000)).collect();
        return json!({ "model": "chat-8b", "prompt": ids, "max_tokens": 64 })
            .to_string()
            .into_bytes();
    }
    let mut messages = vec![json!({ "role": "system", "content": "You are a helpful assistant." })];
    let mut left = bytes.saturating_sub(120);
    while left > 0 {
        let role = if messages.len() % 2 == 1 {
            "user"
        } else {
            "assistant"
        };
        let content = words(text, left.min(MESSAGE_BYTES), &mut rng);
        left = left.saturating_sub(MESSAGE_BYTES);
        messages.push(json!({ "role": role, "content": content }));
    }
    json!({ "model": "chat-8b", "messages": Value::Array(messages), "max_tokens": 64 })
        .to_string()
        .into_bytes()
}

/// Text that takes about `bytes` in JSON.
fn words(text: Text, bytes: usize, rng: &mut fastrand::Rng) -> String {
    let mut out = String::with_capacity(bytes);
    let mut used = 0;
    while used < bytes {
        used += match text {
            Text::Cjk => {
                out.push(rng.char('\u{4e00}'..'\u{9fa5}'));
                3
            }
            Text::Escapes if rng.u8(..6) == 0 => {
                out.push(*rng.choice(&['\n', '"', '\\', '\t']).unwrap_or(&'\n'));
                2
            }
            _ if rng.u8(..6) == 0 => {
                out.push(' ');
                1
            }
            _ => {
                out.push(rng.lowercase());
                1
            }
        };
    }
    out
}
