//! What this gateway itself knows of an endpoint: the requests it sent and how they fare.
//!
//! Invariants
//! - every [`Ticket`] that was issued is released exactly once: it is consumed by value, and a ticket
//!   of an endpoint that left (or left and came back) finds another generation and changes nothing;
//! - counts never go below zero: every subtraction saturates.
//!
//! Cost: O(1) an event, no allocation.

use crate::clock::Millis;
use crate::number::to_f64;

/// Half-life of the count of cold prompts sent: about one metrics interval of a slow gateway.
const COLD_HALF_LIFE_MS: f64 = 5_000.0;
/// Prefill rate assumed until one was seen, tokens per millisecond (10,000 tokens/s).
pub const DEFAULT_PREFILL_TOKENS_PER_MS: f64 = 10.0;

/// One request on its way to an endpoint; its release is owed.
#[derive(Debug, PartialEq)]
pub struct Ticket {
    generation: u32,
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

/// Our own counts for one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Own {
    generation: u32,
    /// Requests sent and not ended.
    pub inflight: u32,
    /// Of these, requests without a first token yet.
    pub awaiting_first: u32,
    /// Uncached tokens of streaming requests without a first token.
    streamed_tokens: u64,
    /// Uncached tokens of requests that will not stream, undrained.
    unstreamed_tokens: u64,
    /// What is left of `unstreamed_tokens` after draining at the prefill rate.
    undrained_tokens: f64,
    drained_at: Millis,
    cold: f64,
    cold_at: Millis,
    failure: f64,
}

impl Own {
    /// Fresh counts of an endpoint's `generation`: tickets of earlier generations no longer count.
    #[must_use]
    pub fn new(generation: u32) -> Self {
        Self { generation, ..Self::default() }
    }

    /// Counts a request that is about to be sent.
    pub fn send(&mut self, uncached_tokens: u32, streams: bool, cold: bool, rate: f64, now: Millis) -> Ticket {
        self.drain(rate, now);
        self.inflight = self.inflight.saturating_add(1);
        self.awaiting_first = self.awaiting_first.saturating_add(1);
        if streams {
            self.streamed_tokens = self.streamed_tokens.saturating_add(u64::from(uncached_tokens));
        } else {
            self.unstreamed_tokens = self.unstreamed_tokens.saturating_add(u64::from(uncached_tokens));
            self.undrained_tokens += f64::from(uncached_tokens);
        }
        if cold {
            self.cold = self.cold_recent(now) + 1.0;
            self.cold_at = now;
        }
        Ticket { generation: self.generation, uncached_tokens, streams, first_token_seen: false }
    }

    /// The first token of a streaming answer arrived: its prefill is done. `true` when this is news.
    pub fn first_token(&mut self, ticket: &mut Ticket) -> bool {
        if ticket.generation != self.generation || ticket.first_token_seen || !ticket.streams {
            return false;
        }
        ticket.first_token_seen = true;
        self.prefill_done(ticket);
        true
    }

    /// The request is over. `false` when the ticket is of another generation.
    pub fn release(&mut self, ticket: Ticket, ending: Ending, alpha: f64, rate: f64, now: Millis) -> bool {
        if ticket.generation != self.generation {
            return false;
        }
        self.drain(rate, now);
        self.inflight = self.inflight.saturating_sub(1);
        if !ticket.first_token_seen {
            self.prefill_done(&ticket);
        }
        match ending {
            Ending::Served => self.failure *= 1.0 - alpha,
            Ending::Failed => self.failure += alpha * (1.0 - self.failure),
            Ending::Unknown => {}
        }
        true
    }

    fn prefill_done(&mut self, ticket: &Ticket) {
        let tokens = u64::from(ticket.uncached_tokens);
        self.awaiting_first = self.awaiting_first.saturating_sub(1);
        if ticket.streams {
            self.streamed_tokens = self.streamed_tokens.saturating_sub(tokens);
        } else {
            self.unstreamed_tokens = self.unstreamed_tokens.saturating_sub(tokens);
            self.undrained_tokens = self.undrained_tokens.min(to_f64(self.unstreamed_tokens));
        }
    }

    /// Uncached prompt tokens sent that have not produced a first token yet.
    #[must_use]
    pub fn prefill_tokens(&self, rate: f64, now: Millis) -> f64 {
        to_f64(self.streamed_tokens) + self.undrained(rate, now)
    }

    /// Open answers whose first token was seen.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.inflight.saturating_sub(self.awaiting_first)
    }

    /// Share of recent requests that failed, 0..=1, smoothed.
    #[must_use]
    pub fn failure(&self) -> f64 {
        self.failure
    }

    /// Cold prompts sent lately, each halved every five seconds.
    #[must_use]
    pub fn cold_recent(&self, now: Millis) -> f64 {
        if self.cold <= 0.0 {
            return 0.0;
        }
        let age_ms = to_f64(now.since(self.cold_at));
        self.cold * (-age_ms / COLD_HALF_LIFE_MS).exp2()
    }

    fn drain(&mut self, rate: f64, now: Millis) {
        self.undrained_tokens = self.undrained(rate, now);
        self.drained_at = now;
    }

    fn undrained(&self, rate: f64, now: Millis) -> f64 {
        (self.undrained_tokens - rate * to_f64(now.since(self.drained_at))).max(0.0)
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
        assert_eq!(own.prefill_tokens(RATE, Millis(5000)), 1000.0, "a stream does not drain by itself");
        own.first_token(&mut ticket);
        own.first_token(&mut ticket);
        assert_eq!((own.inflight, own.awaiting_first, own.streams()), (1, 0, 1));
        assert_eq!(own.prefill_tokens(RATE, Millis(5000)), 0.0);
        own.release(ticket, Ending::Served, 0.3, RATE, Millis(6000));
        assert_eq!((own.inflight, own.awaiting_first), (0, 0));
    }

    #[test]
    fn what_does_not_stream_drains_at_the_rate_and_never_below_what_is_out() {
        let mut own = Own::new(1);
        let first = own.send(1000, false, false, RATE, Millis(0));
        assert_eq!(own.prefill_tokens(RATE, Millis(40)), 600.0);
        let second = own.send(500, false, false, RATE, Millis(40));
        assert_eq!(own.prefill_tokens(RATE, Millis(40)), 1100.0);
        own.release(first, Ending::Served, 0.3, RATE, Millis(50));
        assert_eq!(own.prefill_tokens(RATE, Millis(50)), 500.0, "only the second is left");
        own.release(second, Ending::Unknown, 0.3, RATE, Millis(51));
        assert_eq!(own.prefill_tokens(RATE, Millis(51)), 0.0);
    }

    #[test]
    fn a_ticket_of_another_generation_changes_nothing() {
        let mut own = Own::new(1);
        let ticket = own.send(1000, true, false, RATE, Millis(0));
        let mut back = Own::new(2);
        let other = back.send(10, true, false, RATE, Millis(1));
        back.release(ticket, Ending::Failed, 0.3, RATE, Millis(2));
        assert_eq!((back.inflight, back.failure()), (1, 0.0));
        back.release(other, Ending::Served, 0.3, RATE, Millis(3));
        assert_eq!(back.inflight, 0);
    }

    #[test]
    fn cold_prompts_fade() {
        let mut own = Own::new(1);
        drop(own.send(1, true, true, RATE, Millis(0)));
        drop(own.send(1, true, true, RATE, Millis(0)));
        assert_eq!(own.cold_recent(Millis(0)), 2.0);
        assert_eq!(own.cold_recent(Millis(5000)), 1.0);
    }
}
