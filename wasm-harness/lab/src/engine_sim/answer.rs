//! What the simulator writes: the JSON and SSE shapes of vLLM 0.32.

use bytes::Bytes;
use serde_json::{Value, json};

use super::prompt::{Call, Prompt};

const FINGERPRINT: &str = "engine-sim-0.32";
const WORDS: [&str; 16] = [
    " the",
    " cache",
    " holds",
    " a",
    " warm",
    " prefix",
    " of",
    " every",
    " turn",
    "。缓存",
    "命中",
    " and",
    " answers",
    " at",
    " once",
    ".",
];

/// One answer in the making.
pub(crate) struct Answer {
    call: Call,
    id: String,
    model: String,
    created: u64,
    /// Selects the words: equal prompts get equal answers.
    seed: u64,
    pub(crate) output_tokens: usize,
}

impl Answer {
    pub(crate) fn new(
        call: Call,
        model: &str,
        seq: u64,
        prompt: &Prompt,
        output_tokens: usize,
    ) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = prompt
            .blocks
            .last()
            .copied()
            .unwrap_or(prompt.tokens as u64);
        let kind = match call {
            Call::Chat => "chatcmpl",
            Call::Completions => "cmpl",
        };
        Self {
            call,
            id: format!("{kind}-{seq:08x}{:08x}", seed >> 32),
            model: model.to_owned(),
            created: now.unwrap_or_default().as_secs(),
            seed,
            output_tokens,
        }
    }

    fn word(&self, place: usize) -> &'static str {
        let pick = self
            .seed
            .rotate_left(u32::try_from(place % 64).unwrap_or(0)) as usize
            ^ place;
        WORDS[pick % WORDS.len()]
    }

    fn envelope(&self, object: &str, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    /// The event that comes with the first token and says the role; only chat has it.
    pub(crate) fn opening(&self) -> Option<Bytes> {
        (self.call == Call::Chat).then(|| {
            let delta = json!({"role": "assistant", "content": ""});
            let choice = json!({
                "index": 0, "delta": delta, "logprobs": null, "finish_reason": null,
            });
            event(&self.envelope("chat.completion.chunk", &json!([choice])))
        })
    }

    /// The event of one token.
    pub(crate) fn token(&self, place: usize) -> Bytes {
        let last = place + 1 == self.output_tokens;
        let finish = last.then_some("length");
        let text = self.word(place);
        match self.call {
            Call::Chat => {
                let choice = json!({
                    "index": 0, "delta": {"content": text}, "logprobs": null,
                    "finish_reason": finish, "token_ids": null,
                });
                event(&self.envelope("chat.completion.chunk", &json!([choice])))
            }
            Call::Completions => {
                let choice = json!({
                    "index": 0, "text": text, "logprobs": null, "finish_reason": finish,
                    "stop_reason": null,
                });
                event(&self.envelope("text_completion", &json!([choice])))
            }
        }
    }

    /// What follows the last token: usage if asked for, and the end mark.
    pub(crate) fn closing(&self, usage: Option<Value>) -> Bytes {
        let object = match self.call {
            Call::Chat => "chat.completion.chunk",
            Call::Completions => "text_completion",
        };
        let mut out = Vec::new();
        if let Some(usage) = usage {
            let mut last = self.envelope(object, &json!([]));
            last["usage"] = usage;
            last["system_fingerprint"] = json!(FINGERPRINT);
            out.extend_from_slice(&event(&last));
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
        out.into()
    }

    /// An answer in one piece.
    pub(crate) fn whole(&self, usage: Value) -> Bytes {
        let text: String = (0..self.output_tokens).map(|i| self.word(i)).collect();
        let (object, mut choice) = match self.call {
            Call::Chat => {
                let message = json!({
                    "role": "assistant", "content": text, "refusal": null, "annotations": null,
                    "audio": null, "function_call": null, "reasoning": null,
                });
                ("chat.completion", json!({"message": message}))
            }
            Call::Completions => ("text_completion", json!({"text": text})),
        };
        choice["index"] = json!(0);
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = json!("length");
        choice["stop_reason"] = Value::Null;
        let mut body = self.envelope(object, &json!([choice]));
        body["system_fingerprint"] = json!(FINGERPRINT);
        body["usage"] = usage;
        body.to_string().into()
    }
}

/// The `usage` object; `cached` is `None` where the engine does not report it.
pub(crate) fn usage(prompt_tokens: usize, output_tokens: usize, cached: Option<usize>) -> Value {
    json!({
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": cached.map(|cached| json!({
            "cached_tokens": cached, "created_cache_tokens": 0,
        })),
    })
}

/// The body of an error.
pub(crate) fn error(status: u16, message: &str) -> Bytes {
    let kind = if status < 500 {
        "BadRequestError"
    } else {
        "InternalServerError"
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": status}})
        .to_string()
        .into()
}

fn event(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}
