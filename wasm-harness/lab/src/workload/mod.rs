//! What the gateway is asked: conversations over time.
//!
//! A [`Conversation`] sends its turns one after the other: a turn leaves when its time has come and
//! the one before it is answered, plus a time to think. Bodies are fixed beforehand, so every
//! policy is asked the very same bytes.

mod mooncake;
mod text;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

pub use mooncake::read as read_mooncake;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The JSON body of a chat completion.
    pub body: Bytes,
    /// Pause after the answer before it, or after the conversation's start.
    pub think: Duration,
}

/// Requests in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// When it begins, from the start of the play.
    pub start: Duration,
    /// Its requests, in order.
    pub turns: Vec<Turn>,
}

/// Size and shape of the generated workload.
///
/// Applications differ in the length of their shared system prompt. A conversation opens with
/// material of its own (a document, a diff, records) and then goes back and forth over it, so most
/// of each prompt was in the turn before.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadOptions {
    /// Name of the model that the bodies ask for.
    pub model: String,
    /// Equal seeds give equal bytes.
    pub seed: u64,
    /// Text put in front of everything: cold prompts on engines whose caches cannot be cleared.
    pub lead: String,
    /// Applications, each with a system prompt of its own.
    pub apps: usize,
    /// Users, each of whom holds one conversation after the other.
    pub users: usize,
    /// Conversations of each user.
    pub conversations_per_user: usize,
    /// Turns of a conversation.
    pub turns: std::ops::RangeInclusive<usize>,
    /// Length of a system prompt, tokens.
    pub system_tokens: std::ops::RangeInclusive<usize>,
    /// Length of a conversation's opening material, tokens.
    pub opening_tokens: std::ops::RangeInclusive<usize>,
    /// Length of a later question, tokens.
    pub question_tokens: std::ops::RangeInclusive<usize>,
    /// Length of an answer, tokens.
    pub answer_tokens: std::ops::RangeInclusive<usize>,
    /// Time to think before a turn, milliseconds.
    pub think_ms: std::ops::RangeInclusive<u64>,
    /// The first conversations begin within this time, milliseconds.
    pub ramp_ms: u64,
}

impl Default for WorkloadOptions {
    fn default() -> Self {
        Self {
            model: "sim".into(),
            seed: 1,
            lead: String::new(),
            apps: 6,
            users: 32,
            conversations_per_user: 2,
            turns: 4..=6,
            system_tokens: 300..=900,
            opening_tokens: 2500..=5000,
            question_tokens: 40..=240,
            answer_tokens: 24..=64,
            think_ms: 800..=3200,
            ramp_ms: 4000,
        }
    }
}

/// Generates the workload. Deterministic.
pub fn generate(options: &WorkloadOptions) -> Vec<Conversation> {
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let systems: Vec<String> = (0..options.apps.max(1))
        .map(|app| {
            let tokens = rng.usize(options.system_tokens.clone());
            // One application in three works in Chinese.
            let text = text::of(&mut rng, tokens, app % 3 == 2);
            format!("{}You are assistant {app}. {text}", options.lead)
        })
        .collect();
    let mut all = Vec::new();
    for user in 0..options.users {
        let start = Duration::from_millis(rng.u64(0..=options.ramp_ms));
        let mut turns = Vec::new();
        for _ in 0..options.conversations_per_user {
            let app = rng.usize(0..systems.len());
            turns.extend(conversation(
                options,
                &mut rng,
                user,
                &systems[app],
                app % 3 == 2,
            ));
        }
        all.push(Conversation { start, turns });
    }
    all
}

fn conversation(
    options: &WorkloadOptions,
    rng: &mut fastrand::Rng,
    user: usize,
    system: &str,
    cjk: bool,
) -> Vec<Turn> {
    let mut messages = vec![json!({"role": "system", "content": system})];
    let count = rng.usize(options.turns.clone());
    let mut turns = Vec::with_capacity(count);
    for turn in 0..count {
        let tokens = if turn == 0 {
            rng.usize(options.opening_tokens.clone())
        } else {
            rng.usize(options.question_tokens.clone())
        };
        let question = text::of(rng, tokens, cjk);
        messages.push(json!({"role": "user", "content": format!("[{user}] {question}")}));
        let answer_tokens = rng.usize(options.answer_tokens.clone());
        turns.push(Turn {
            body: body(&options.model, &messages, answer_tokens),
            think: Duration::from_millis(rng.u64(options.think_ms.clone())),
        });
        let answer = text::of(rng, answer_tokens, cjk);
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    turns
}

/// A streamed chat completion that reports its usage.
fn body(model: &str, messages: &[Value], max_tokens: usize) -> Bytes {
    json!({
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
    .to_string()
    .into()
}

#[cfg(test)]
mod tests {
    use super::{WorkloadOptions, generate};
    use serde_json::Value;

    fn messages(body: &[u8]) -> Vec<Value> {
        let value: Value = serde_json::from_slice(body).unwrap();
        value["messages"].as_array().unwrap().clone()
    }

    #[test]
    fn equal_seeds_give_equal_bytes() {
        let options = WorkloadOptions::default();
        assert_eq!(generate(&options), generate(&options));
        let other = WorkloadOptions {
            seed: 2,
            ..options.clone()
        };
        assert_ne!(generate(&options), generate(&other));
    }

    #[test]
    fn a_turn_continues_the_one_before_and_applications_share_prompts() {
        let options = WorkloadOptions::default();
        let all = generate(&options);
        assert_eq!(all.len(), options.users);
        let mut systems = std::collections::BTreeSet::new();
        let mut continued = 0;
        for conversation in &all {
            for pair in conversation.turns.windows(2) {
                let (before, after) = (messages(&pair[0].body), messages(&pair[1].body));
                systems.insert(before[0]["content"].to_string());
                // A user's next conversation starts anew.
                if after.len() > 2 {
                    assert_eq!(after.len(), before.len() + 2);
                    assert_eq!(after[..before.len()], before[..]);
                    continued += 1;
                }
            }
        }
        assert!(continued > 100);
        assert_eq!(systems.len(), options.apps);
        let cjk = |text: &String| text.chars().any(|c| ('\u{4e00}'..'\u{9fff}').contains(&c));
        assert_eq!(systems.iter().filter(|text| cjk(text)).count(), 2);
    }

    #[test]
    fn a_lead_is_in_front_of_everything() {
        let led = WorkloadOptions {
            lead: "run 7. ".into(),
            ..WorkloadOptions::default()
        };
        let system = messages(&generate(&led)[0].turns[0].body)[0]["content"].to_string();
        assert!(system.starts_with("\"run 7. You are assistant"));
    }
}
