//! What this gateway itself knows of an endpoint: the requests it sent and how they fare.
//!
//! Invariants
//! - every [`Ticket`] that was issued is released exactly once: it is consumed by value, and a ticket
//!   of an endpoint that left (or left and came back) finds another generation and changes nothing;
//! - counts never go below zero: every subtraction saturates.
//!
//! Cost: O(1) an event, but for a first token or an end out of order: O(requests waiting there).

use std::collections::VecDeque;

use crate::clock::Millis;
use crate::number::to_f64;

/// Half-life of the count of cold prompts sent.
const COLD_HALF_LIFE_MS: f64 = 60_000.0;
/// Half-life of the share of failures: an engine that came back is forgiven by itself.
const FAILURE_HALF_LIFE_MS: f64 = 10_000.0;
/// Prefill rate assumed until one was seen, tokens per millisecond (10,000 tokens/s).
pub const DEFAULT_PREFILL_TOKENS_PER_MS: f64 = 10.0;

/// One request on its way to an endpoint; its release is owed.
#[derive(Debug, PartialEq)]
pub struct Ticket {
    generation: u32,
    number: u64,
    uncached_tokens: u32,
    streams: bool,
    first_token_seen: bool,
}

impl Ticket {
    /// Prompt tokens that the endpoint was predicted to compute.
    #[must_use]
    pub fn uncached_tokens(&self) -> u32 {
        self.uncached_tokens
    }
}

/// How a request ended, as far as the endpoint is to blame or to praise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Answered; also 4xx and 429, which say nothing against the endpoint.
    Served,
    /// 5xx, reset, timeout, refused connection.
    Failed,
    /// The client went away, or another endpoint answered: nothing learned.
    Unknown,
}

/// What a first token showed: these tokens took this long, and nothing of ours was before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefilled {
    /// Uncached prompt tokens.
    pub tokens: u32,
    /// Milliseconds since the request was sent, or since the first token before it.
    pub took_ms: u64,
}

/// A streaming request without a first token.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    number: u64,
    tokens: u32,
    at: Millis,
}

/// Work before an engine: what was sent and gave no first token yet. Engines take it in order, so the
/// progress of the oldest is known, and who knows of all senders knows it best.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ahead {
    /// Uncached prompt tokens, progress not taken off.
    pub tokens: f64,
    /// The oldest streaming request: when it was sent, and its uncached tokens.
    pub oldest: Option<(Millis, u32)>,
    /// The last first token.
    pub first_token_at: Millis,
}

impl Ahead {
    /// Both senders' work.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            oldest: match (self.oldest, other.oldest) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
            first_token_at: self.first_token_at.max(other.first_token_at),
        }
    }

    /// What is left of it.
    #[must_use]
    pub fn left(self, rate: f64, now: Millis) -> f64 {
        let computed = self.oldest.map_or(0.0, |(at, tokens)| {
            let since_ms = now.since(at.max(self.first_token_at));
            (to_f64(since_ms) * rate).min(f64::from(tokens))
        });
        (self.tokens - computed).max(0.0)
    }
}

/// Our own counts for one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Own {
    generation: u32,
    /// Requests sent and not ended.
    pub inflight: u32,
    /// Of these, requests without a first token yet.
    pub awaiting_first: u32,
    /// Streaming requests without a first token, oldest first, and the sum of their uncached tokens.
    queue: VecDeque<Waiting>,
    streamed_tokens: u64,
    sent: u64,
    first_token_at: Millis,
    /// Uncached tokens of requests that will not stream, undrained.
    unstreamed_tokens: u64,
    /// What is left of `unstreamed_tokens` after draining at the prefill rate.
    undrained_tokens: f64,
    drained_at: Millis,
    cold: f64,
    cold_at: Millis,
    failure: f64,
    failure_at: Millis,
}

impl Own {
    /// Fresh counts of an endpoint's `generation`: tickets of earlier generations no longer count.
    #[must_use]
    pub fn new(generation: u32) -> Self {
        Self {
            generation,
            ..Self::default()
        }
    }

    /// Counts a request that is about to be sent.
    pub fn send(
        &mut self,
        uncached_tokens: u32,
        streams: bool,
        cold: bool,
        rate: f64,
        now: Millis,
    ) -> Ticket {
        self.drain(rate, now);
        self.inflight = self.inflight.saturating_add(1);
        self.awaiting_first = self.awaiting_first.saturating_add(1);
        if streams {
            self.queue.push_back(Waiting {
                number: self.sent,
                tokens: uncached_tokens,
                at: now,
            });
            self.streamed_tokens = self
                .streamed_tokens
                .saturating_add(u64::from(uncached_tokens));
        } else {
            self.unstreamed_tokens = self
                .unstreamed_tokens
                .saturating_add(u64::from(uncached_tokens));
            self.undrained_tokens += f64::from(uncached_tokens);
        }
        if cold {
            self.cold = self.cold_recent(now) + 1.0;
            self.cold_at = now;
        }
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        Ticket {
            generation: self.generation,
            number,
            uncached_tokens,
            streams,
            first_token_seen: false,
        }
    }

    /// The first token of a streaming answer arrived: its prefill is done. `None` when this is no news.
    pub fn first_token(&mut self, ticket: &mut Ticket, now: Millis) -> Option<Prefilled> {
        if ticket.generation != self.generation || ticket.first_token_seen || !ticket.streams {
            return None;
        }
        ticket.first_token_seen = true;
        let waited = self.prefill_done(ticket)?;
        let began = waited.at.max(self.first_token_at);
        self.first_token_at = now;
        Some(Prefilled {
            tokens: waited.tokens,
            took_ms: now.since(began),
        })
    }

    /// The request is over. `false` when the ticket is of another generation.
    pub fn release(
        &mut self,
        ticket: &Ticket,
        ending: Ending,
        alpha: f64,
        rate: f64,
        now: Millis,
    ) -> bool {
        if ticket.generation != self.generation {
            return false;
        }
        self.drain(rate, now);
        self.inflight = self.inflight.saturating_sub(1);
        if !ticket.first_token_seen {
            self.prefill_done(ticket);
        }
        match ending {
            Ending::Served => self.sample(0.0, alpha, now),
            Ending::Failed => self.sample(1.0, alpha, now),
            Ending::Unknown => {}
        }
        true
    }

    fn sample(&mut self, failed: f64, alpha: f64, now: Millis) {
        let failure = self.failure(now);
        self.failure = failure + alpha * (failed - failure);
        self.failure_at = now;
    }

    fn prefill_done(&mut self, ticket: &Ticket) -> Option<Waiting> {
        let tokens = u64::from(ticket.uncached_tokens);
        self.awaiting_first = self.awaiting_first.saturating_sub(1);
        if ticket.streams {
            self.streamed_tokens = self.streamed_tokens.saturating_sub(tokens);
            let at = self
                .queue
                .iter()
                .position(|waiting| waiting.number == ticket.number)?;
            self.queue.remove(at)
        } else {
            self.unstreamed_tokens = self.unstreamed_tokens.saturating_sub(tokens);
            self.undrained_tokens = self.undrained_tokens.min(to_f64(self.unstreamed_tokens));
            None
        }
    }

    /// Uncached prompt tokens sent that have not produced a first token yet, less what the engine has surely
    /// computed of the oldest of them.
    #[must_use]
    pub fn prefill_tokens(&self, rate: f64, now: Millis) -> f64 {
        self.ahead(rate, now).left(rate, now)
    }

    /// Nothing of ours is before the engine.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streamed_tokens == 0 && self.undrained_tokens == 0.0
    }

    /// What the engine has before it of ours.
    #[must_use]
    pub fn ahead(&self, rate: f64, now: Millis) -> Ahead {
        Ahead {
            tokens: to_f64(self.streamed_tokens) + self.undrained(rate, now),
            oldest: self.queue.front().map(|oldest| (oldest.at, oldest.tokens)),
            first_token_at: self.first_token_at,
        }
    }

    /// Open answers whose first token was seen.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.inflight.saturating_sub(self.awaiting_first)
    }

    /// Share of recent requests that failed, 0..=1, smoothed.
    #[must_use]
    pub fn failure(&self, now: Millis) -> f64 {
        halved(
            self.failure,
            now.since(self.failure_at),
            FAILURE_HALF_LIFE_MS,
        )
    }

    /// Cold prompts sent lately, each halved every minute.
    #[must_use]
    pub fn cold_recent(&self, now: Millis) -> f64 {
        halved(self.cold, now.since(self.cold_at), COLD_HALF_LIFE_MS)
    }

    fn drain(&mut self, rate: f64, now: Millis) {
        self.undrained_tokens = self.undrained(rate, now);
        self.drained_at = now;
    }

    fn undrained(&self, rate: f64, now: Millis) -> f64 {
        (self.undrained_tokens - rate * to_f64(now.since(self.drained_at))).max(0.0)
    }
}

/// A value `age_ms` after it was set.
fn halved(value: f64, age_ms: u64, half_life_ms: f64) -> f64 {
    if value > 0.0 {
        value * (-to_f64(age_ms) / half_life_ms).exp2()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 10.0;

    #[test]
    fn a_stream_counts_until_its_first_token_and_its_end() {
        let mut own = Own::new(1);
        let mut ticket = own.send(1000, true, false, RATE, Millis(0));
        assert_eq!((own.inflight, own.awaiting_first, own.streams()), (1, 1, 0));
        assert_eq!(
            own.prefill_tokens(RATE, Millis(40)),
            600.0,
            "the oldest is computed at the rate"
        );
        assert_eq!(
            own.first_token(&mut ticket, Millis(50)),
            Some(Prefilled {
                tokens: 1000,
                took_ms: 50
            })
        );
        assert_eq!(own.first_token(&mut ticket, Millis(60)), None);
        assert_eq!((own.inflight, own.awaiting_first, own.streams()), (1, 0, 1));
        assert_eq!(own.prefill_tokens(RATE, Millis(60)), 0.0);
        own.release(&ticket, Ending::Served, 0.3, RATE, Millis(6000));
        assert_eq!((own.inflight, own.awaiting_first), (0, 0));
    }

    #[test]
    fn only_the_oldest_is_taken_to_be_computed_and_never_more_of_it_than_there_is() {
        let mut own = Own::new(1);
        let mut first = own.send(1000, true, false, RATE, Millis(0));
        let second = own.send(500, true, false, RATE, Millis(0));
        assert_eq!(own.prefill_tokens(RATE, Millis(5000)), 500.0);
        own.first_token(&mut first, Millis(5000));
        assert_eq!(
            own.prefill_tokens(RATE, Millis(5010)),
            400.0,
            "from the first token before it on"
        );
        own.release(&second, Ending::Unknown, 0.3, RATE, Millis(5020));
        assert_eq!(own.prefill_tokens(RATE, Millis(5020)), 0.0);
    }

    #[test]
    fn what_does_not_stream_drains_at_the_rate_and_never_below_what_is_out() {
        let mut own = Own::new(1);
        let first = own.send(1000, false, false, RATE, Millis(0));
        assert_eq!(own.prefill_tokens(RATE, Millis(40)), 600.0);
        let second = own.send(500, false, false, RATE, Millis(40));
        assert_eq!(own.prefill_tokens(RATE, Millis(40)), 1100.0);
        own.release(&first, Ending::Served, 0.3, RATE, Millis(50));
        assert_eq!(
            own.prefill_tokens(RATE, Millis(50)),
            500.0,
            "only the second is left"
        );
        own.release(&second, Ending::Unknown, 0.3, RATE, Millis(51));
        assert_eq!(own.prefill_tokens(RATE, Millis(51)), 0.0);
    }

    #[test]
    fn a_ticket_of_another_generation_changes_nothing() {
        let mut own = Own::new(1);
        let ticket = own.send(1000, true, false, RATE, Millis(0));
        let mut back = Own::new(2);
        let other = back.send(10, true, false, RATE, Millis(1));
        assert!(!back.release(&ticket, Ending::Failed, 0.3, RATE, Millis(2)));
        assert_eq!((back.inflight, back.failure(Millis(2))), (1, 0.0));
        assert!(back.release(&other, Ending::Served, 0.3, RATE, Millis(3)));
        assert_eq!(back.inflight, 0);
    }

    #[test]
    fn failures_and_cold_prompts_fade() {
        let mut own = Own::new(1);
        let first = own.send(1, true, true, RATE, Millis(0));
        let second = own.send(1, true, true, RATE, Millis(0));
        assert_eq!(own.cold_recent(Millis(0)), 2.0);
        assert_eq!(own.cold_recent(Millis(60_000)), 1.0);
        own.release(&first, Ending::Failed, 0.5, RATE, Millis(0));
        assert_eq!(own.failure(Millis(0)), 0.5);
        assert_eq!(own.failure(Millis(10_000)), 0.25);
        own.release(&second, Ending::Unknown, 0.5, RATE, Millis(10_000));
        assert_eq!(own.failure(Millis(10_000)), 0.25, "nothing learned");
    }
}
