//! A request body as the engine would read it: a count of tokens and a chain of block hashes.
//!
//! The tokenizer is a stand-in that needs no vocabulary: four ASCII bytes are a token, any other
//! character is a token of its own, a role or a frame is one token. Equal text from the start
//! gives equal tokens from the start, which is all that a prefix cache looks at.

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What is left of a prompt once it is cut into blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Chained hash of every full block.
    pub(crate) blocks: Vec<u64>,
    pub(crate) tokens: usize,
}

/// What the call asked for besides its prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) prompt: Prompt,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) max_tokens: Option<usize>,
}

/// The API calls the simulator answers with a model's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Chat,
    Completions,
}

impl Call {
    /// By path, a query apart.
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            _ => None,
        }
    }
}

/// Reads a JSON body. The error is the text of the engine's 400.
pub(crate) fn read(call: Call, body: &[u8], block_tokens: usize) -> Result<Ask, String> {
    let value: Value = serde_json::from_slice(body).map_err(|e| format!("not JSON: {e}"))?;
    let mut tokens = Tokens::new(block_tokens);
    match call {
        Call::Chat => chat(&value, &mut tokens)?,
        Call::Completions => completion(&value, &mut tokens)?,
    }
    let count = |key: &str| {
        value
            .get(key)?
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
    };
    Ok(Ask {
        prompt: tokens.finish(),
        stream: value.get("stream").and_then(Value::as_bool) == Some(true),
        include_usage: value
            .pointer("/stream_options/include_usage")
            .and_then(Value::as_bool)
            == Some(true),
        max_tokens: count("max_completion_tokens").or_else(|| count("max_tokens")),
    })
}

/// A body that is no plain JSON (gzip): its bytes are the prompt, one token for four.
pub(crate) fn read_opaque(body: &[u8], block_tokens: usize) -> Ask {
    let mut tokens = Tokens::new(block_tokens);
    for piece in body.chunks(4) {
        tokens.push(piece);
    }
    Ask {
        prompt: tokens.finish(),
        stream: false,
        include_usage: false,
        max_tokens: None,
    }
}

fn chat(value: &Value, tokens: &mut Tokens) -> Result<(), String> {
    let messages = value
        .get("messages")
        .and_then(Value::as_array)
        .ok_or("messages: a list is required")?;
    if let Some(tools) = value.get("tools").filter(|tools| !tools.is_null()) {
        tokens.frame("tools");
        tokens.text(&tools.to_string());
    }
    for message in messages {
        let role = message
            .get("role")
            .and_then(Value::as_str)
            .ok_or("messages: a role is required")?;
        tokens.frame(role);
        for key in ["name", "content", "tool_calls", "tool_call_id"] {
            match message.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => tokens.text(text),
                Some(other) => tokens.parts(other),
            }
        }
        tokens.frame("end");
    }
    tokens.frame("assistant");
    Ok(())
}

fn completion(value: &Value, tokens: &mut Tokens) -> Result<(), String> {
    match value.get("prompt") {
        None | Some(Value::Null) => Err("prompt: required".into()),
        Some(prompt) => {
            tokens.parts(prompt);
            Ok(())
        }
    }
}

struct Tokens {
    block_tokens: usize,
    /// Bytes of the open block, a separator after each token.
    open: Vec<u8>,
    in_open: usize,
    count: usize,
    parent: u64,
    blocks: Vec<u64>,
}

impl Tokens {
    fn new(block_tokens: usize) -> Self {
        Self {
            block_tokens: block_tokens.max(1),
            open: Vec::new(),
            in_open: 0,
            count: 0,
            parent: 0,
            blocks: Vec::new(),
        }
    }

    fn push(&mut self, token: &[u8]) {
        self.open.extend_from_slice(token);
        self.open.push(0xff);
        self.count += 1;
        self.in_open += 1;
        if self.in_open == self.block_tokens {
            self.parent = xxh3_64_with_seed(&self.open, self.parent);
            self.blocks.push(self.parent);
            self.open.clear();
            self.in_open = 0;
        }
    }

    fn frame(&mut self, name: &str) {
        self.push(format!("\u{1}{name}").as_bytes());
    }

    fn text(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while let Some(&first) = rest.first() {
            let take = if first.is_ascii() {
                rest.iter().take(4).take_while(|b| b.is_ascii()).count()
            } else {
                // The bytes of one character: a start and its continuations.
                1 + rest
                    .iter()
                    .skip(1)
                    .take_while(|b| **b & 0xc0 == 0x80)
                    .count()
            };
            let (token, after) = rest.split_at(take);
            self.push(token);
            rest = after;
        }
    }

    /// Strings, token ids, content parts and lists of them, in order.
    fn parts(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Number(id) => self.push(id.to_string().as_bytes()),
            Value::Array(list) => list.iter().for_each(|item| self.parts(item)),
            Value::Object(part) => match part.get("text").and_then(Value::as_str) {
                Some(text) => self.text(text),
                None => self.text(&value.to_string()),
            },
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn finish(self) -> Prompt {
        Prompt {
            blocks: self.blocks,
            tokens: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, read};
    use serde_json::json;

    fn chat(texts: &[&str]) -> super::Prompt {
        let messages: Vec<_> = texts
            .iter()
            .map(|t| json!({"role": "user", "content": t}))
            .collect();
        let body = json!({"messages": messages}).to_string();
        read(Call::Chat, body.as_bytes(), 16).unwrap().prompt
    }

    #[test]
    fn a_longer_conversation_keeps_the_blocks_of_the_shorter() {
        let first = "a question of some length, ".repeat(40);
        let short = chat(&[&first]);
        let long = chat(&[&first, "and then another"]);
        let shared = short
            .blocks
            .iter()
            .zip(&long.blocks)
            .take_while(|(a, b)| a == b)
            .count();
        assert_eq!(short.tokens, 3 + first.len() / 4);
        assert_eq!(shared, (short.tokens - 1) / 16);
    }

    #[test]
    fn a_character_outside_ascii_is_a_token() {
        assert_eq!(chat(&["缓存"]).tokens, 3 + 2);
        assert_eq!(chat(&["ab缓cd"]).tokens, 3 + 3);
        assert_eq!(chat(&["abcdefgh"]).tokens, 3 + 2);
    }

    #[test]
    fn completions_take_text_and_token_ids() {
        let ids = json!({"prompt": (0..40).collect::<Vec<_>>(), "max_tokens": 3}).to_string();
        let ask = read(Call::Completions, ids.as_bytes(), 16).unwrap();
        assert_eq!((ask.prompt.tokens, ask.prompt.blocks.len()), (40, 2));
        assert_eq!(ask.max_tokens, Some(3));
        assert!(read(Call::Completions, b"{}", 16).is_err());
        assert!(read(Call::Chat, b"{\"messages\":1}", 16).is_err());
        assert!(read(Call::Chat, b"\x1f\x8b", 16).is_err());
    }
}
