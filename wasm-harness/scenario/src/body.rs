//! Request bodies, short to write: word for word, JSON, or a generated conversation.

use serde::Deserialize;
use serde_json::json;

/// A request body.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Word for word.
    Text(String),
    /// Written compactly.
    Json(serde_json::Value),
    /// A chat completion of generated texts.
    Chat {
        /// `model`.
        model: String,
        /// `messages`.
        messages: Vec<Message>,
    },
}

/// One message of a generated conversation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `role`.
    pub role: String,
    /// `content`, word for word; goes before the generated words.
    #[serde(default)]
    pub text: String,
    /// Generated words after it.
    #[serde(default)]
    pub words: u32,
    /// Equal seeds give equal words.
    #[serde(default)]
    pub seed: u32,
}

impl Body {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Json(value) => value.to_string().into_bytes(),
            Self::Chat { model, messages } => {
                let messages: Vec<_> = messages
                    .iter()
                    .map(|message| json!({ "role": message.role, "content": message.content() }))
                    .collect();
                json!({ "model": model, "messages": messages })
                    .to_string()
                    .into_bytes()
            }
        }
    }
}

impl Message {
    /// Word n of seed s is `ws-n`: nothing repeats, so that a prefix is a prefix of one text only.
    fn content(&self) -> String {
        let words = (0..self.words).map(|word| format!("w{}-{word}", self.seed));
        let words = words.collect::<Vec<_>>().join(" ");
        format!("{}{words}", self.text)
    }
}
