//! Plays a workload through a gateway and measures each request.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Answer, Call, Client};
use crate::envoy::SERVED_HEADER;
use crate::workload::{Conversation, Turn};

/// Numbers a request, so that it can be found in an engine's log.
pub const REQUEST_HEADER: &str = "x-lab-request";
/// A request that takes longer is an error.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(180);

/// What became of one request.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Value of its [`REQUEST_HEADER`].
    pub number: usize,
    /// [`crate::digest`] of the body that was sent.
    pub body_digest: String,
    /// Why it failed.
    pub error: Option<String>,
    /// The engine that answered.
    pub served_by: Option<String>,
    /// Sent to first token.
    pub first_token: Option<Duration>,
    /// From `usage`; `None` where the engine does not tell.
    pub prompt_tokens: Option<u64>,
    /// Likewise.
    pub cached_tokens: Option<u64>,
}

/// A whole play.
#[derive(Debug, Clone)]
pub struct Played {
    /// All requests, in no order.
    pub outcomes: Vec<Outcome>,
    /// First request sent to last answer read.
    pub took: Duration,
}

/// Plays all conversations side by side. A turn that fails does not end its conversation.
pub async fn play(
    label: &str,
    client: &Client,
    authority: &str,
    conversations: &Arc<Vec<Conversation>>,
) -> Played {
    let total = conversations.iter().map(|c| c.turns.len()).sum();
    let progress = Progress::start(label, total);
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let mut number = 0;
    for (place, conversation) in conversations.iter().enumerate() {
        let first = number;
        number += conversation.turns.len();
        let conversations = Arc::clone(conversations);
        let (client, authority) = (client.clone(), authority.to_owned());
        let done = Arc::clone(&progress.done);
        tasks.spawn(async move {
            let Some(conversation) = conversations.get(place) else {
                return Vec::new();
            };
            let mut outcomes = Vec::with_capacity(conversation.turns.len());
            tokio::time::sleep(conversation.start).await;
            for (turn, number) in conversation.turns.iter().zip(first..) {
                tokio::time::sleep(turn.think).await;
                outcomes.push(request(&client, &authority, number, turn).await);
                done.fetch_add(1, Ordering::Relaxed);
            }
            outcomes
        });
    }
    let mut outcomes = Vec::with_capacity(total);
    while let Some(finished) = tasks.join_next().await {
        // A task that panicked is missing in the count, which the report compares.
        outcomes.extend(finished.unwrap_or_default());
    }
    Played {
        outcomes,
        took: start.elapsed(),
    }
}

async fn request(client: &Client, authority: &str, number: usize, turn: &Turn) -> Outcome {
    let call = Call::post_json("/v1/chat/completions", turn.body.clone())
        .header(REQUEST_HEADER, &number.to_string());
    let mut outcome = Outcome {
        number,
        body_digest: crate::digest(&turn.body),
        error: None,
        served_by: None,
        first_token: None,
        prompt_tokens: None,
        cached_tokens: None,
    };
    let sent = client.send(authority, &call);
    match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
        Ok(Ok(answer)) => outcome.take(&answer),
        Ok(Err(error)) => outcome.error = Some(format!("{error:#}")),
        Err(_) => outcome.error = Some(format!("no answer within {REQUEST_TIMEOUT:?}")),
    }
    outcome
}

impl Outcome {
    fn take(&mut self, answer: &Answer) {
        self.served_by = answer.header(SERVED_HEADER).map(str::to_owned);
        let text = answer.text();
        if answer.status != 200 {
            let start: String = text.chars().take(200).collect();
            self.error = Some(format!("{}: {start}", answer.status));
            return;
        }
        if !text.trim_end().ends_with("data: [DONE]") {
            self.error = Some("the stream has no end".into());
        }
        self.first_token = answer.first_bytes_after;
        let usage = usage(&text);
        let count = |pointer: &str| usage.as_ref()?.pointer(pointer)?.as_u64();
        self.prompt_tokens = count("/prompt_tokens");
        self.cached_tokens = count("/prompt_tokens_details/cached_tokens");
    }
}

/// The `usage` of a stream: in its last event that has one.
fn usage(stream: &str) -> Option<Value> {
    stream.rsplit("\n\n").find_map(|event| {
        let data = event.trim_start().strip_prefix("data: ")?;
        let mut event: Value = serde_json::from_str(data).ok()?;
        event
            .get_mut("usage")
            .map(Value::take)
            .filter(Value::is_object)
    })
}

/// Compares what was sent with what the engines logged: how many bodies arrived as they left.
pub fn identical_bodies(outcomes: &[Outcome], logs: &[crate::engine_sim::LogEntry]) -> usize {
    let received: BTreeMap<&str, &str> = logs
        .iter()
        .filter_map(|entry| Some((entry.header(REQUEST_HEADER)?, entry.body_digest.as_str())))
        .collect();
    outcomes
        .iter()
        .filter(|sent| {
            let digest = received.get(sent.number.to_string().as_str());
            digest == Some(&sent.body_digest.as_str())
        })
        .count()
}

/// One line that is written over on a terminal, else one line a phase.
struct Progress {
    done: Arc<AtomicUsize>,
    ticker: Option<tokio::task::JoinHandle<()>>,
}

impl Progress {
    fn start(label: &str, total: usize) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        if !std::io::stderr().is_terminal() {
            eprintln!("{label}: {total} requests");
            return Self { done, ticker: None };
        }
        let (label, count) = (label.to_owned(), Arc::clone(&done));
        let start = Instant::now();
        let ticker = tokio::spawn(async move {
            loop {
                let now = count.load(Ordering::Relaxed);
                let seconds = start.elapsed().as_secs();
                eprint!("\r{label}: {now} of {total} requests, {seconds} s ");
                // A terminal that went away is no reason to stop.
                let _ = std::io::stderr().flush();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self {
            done,
            ticker: Some(ticker),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(ticker) = self.ticker.take() {
            ticker.abort();
            eprint!("\r{:60}\r", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::usage;

    #[test]
    fn usage_is_in_the_last_event_that_has_one() {
        let stream = "data: {\"choices\":[1],\"usage\":null}\n\n\
                      data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n\
                      data: [DONE]\n\n";
        assert_eq!(usage(stream).unwrap()["prompt_tokens"], 7);
        assert_eq!(usage("data: {\"usage\":null}\n\ndata: [DONE]\n\n"), None);
    }
}
