//! One endpoint: what the gateway and the engine say of it, what we sent it, what was learned of it.
//!
//! Invariants
//! - what of an engine's load counts as ours is the most that the engine can have counted of ours;
//! - tokens of others are never below zero, and none where the engine does not tell.
//!
//! Cost: O(1) each.

use xxhash_rust::xxh3::xxh3_64;

use super::cooldown::Cooldown;
use super::load::{Health, Load};
use super::own::{Ahead, DEFAULT_PREFILL_TOKENS_PER_MS, Own};
use super::role::Role;
use super::scan::last_text::LastText;
use crate::clock::Millis;
use crate::learn::{BacklogMean, PrefillRate, Queueing, SHARE, Trust, Visit};
use crate::number::{bounded, to_f64};
use crate::telemetry::Tally;

/// One endpoint: what the gateway says of it, what its engine says, what we sent it.
#[derive(Debug)]
pub struct Endpoint {
    /// `ip:port` or `[v6]:port`, as the gateway spells it.
    pub address: Box<str>,
    /// Hash of the address: its identity in rendezvous hashing.
    pub name_hash: u64,
    /// How many endpoints' [`Self::name_hash`] are below its own.
    pub order: u32,
    /// The gateway's word on its health.
    pub health: Health,
    /// What it does of a request.
    pub role: Role,
    /// The engine's last words.
    pub load: Load,
    /// When [`Self::load`] was new, all of it or what a response told.
    pub load_at: Option<Millis>,
    /// When all of [`Self::load`] was new.
    pub read_at: Option<Millis>,
    /// The text that [`Self::load`] came from, where the gateway keeps texts.
    pub last_text: LastText,
    /// What of [`Self::load`] was ours when the engine spoke, at most. Taken too low, our own requests would
    /// count twice.
    pub ours: Ours,
    peaks: Peaks,
    /// What the engine, by its own counters, still had to compute of the prompts that it had begun when
    /// [`Self::load`] was read, tokens, whoever sent them.
    begun_tokens: f64,
    /// Uncached tokens that we sent, and others told of, since the last reading, and between the two before: the engine
    /// may have begun with either by now, and they are not unseen.
    sent_tokens: [f64; 2],
    /// Our own counts.
    pub own: Own,
    /// What other workers have in flight here, as they tell.
    pub others: Others,
    /// Consecutive failures.
    pub cooldown: Cooldown,
    /// Learned prefill rate.
    pub rate: PrefillRate,
    /// Learned delay beyond computing.
    pub queueing: Queueing,
    /// How far the index is believed.
    pub trust: Trust,
    /// Learned share of a local miss that an outer KV tier answers, 0..=1.
    pub outer_hit_share: f64,
    /// The work that is usually ahead of a request here.
    pub usual_backlog: BacklogMean,
    /// Counted here and not handed on yet.
    pub tally: Tally,
    /// The listing that named it last, as its table counts.
    pub(super) listing: u32,
}

/// How many figures [`Endpoint::visit`] shows.
pub const LEARNED_FIGURES: usize = 5;

/// This gateway's share of what an engine tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// Requests without a first token.
    pub awaiting_first: u32,
    /// Requests in flight.
    pub inflight: u32,
}

impl Ours {
    fn max(self, other: Self) -> Self {
        Self {
            awaiting_first: self.awaiting_first.max(other.awaiting_first),
            inflight: self.inflight.max(other.inflight),
        }
    }
}

/// The most of ours since some looks at the engine's words.
#[derive(Debug, Default)]
struct Peaks {
    /// Since the last look.
    lately: Ours,
    /// Between the two looks before.
    before: Ours,
    /// From the last look that did not show the present reading yet until the last look.
    reading: u32,
}

impl Peaks {
    /// What of a new reading is ours at most. An engine is asked again only when its last answer is in, so what
    /// it says next it says after the last look that did not show that answer yet, however late we see it: so
    /// far back requests in flight count, lest other senders be made up. Those that wait usually pass sooner
    /// than that; for them the last two looks are nearer the truth.
    fn of_reading(&self) -> Ours {
        let near = self.lately.max(self.before);
        Ours {
            inflight: near.inflight.max(self.reading),
            ..near
        }
    }

    /// The engine's words were looked at, while `now` was ours.
    fn looked(&mut self, is_new: bool, now: Ours) {
        self.before = core::mem::replace(&mut self.lately, now).max(now);
        let inflight = self.before.inflight;
        self.reading = if is_new {
            inflight
        } else {
            inflight.max(self.reading)
        };
    }
}

/// Requests of other workers at an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// In flight.
    pub inflight: u32,
    /// Of these, without a first token.
    pub awaiting_first: u32,
    /// Their work before the engine.
    pub ahead: Ahead,
    /// Cold prompts sent lately, faded.
    pub cold_recent: f64,
}

/// What a new reading of an engine's load said about its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As before.
    Same,
    /// Another cache size: what it holds fits another bound.
    Resized,
    /// Its counters began anew: it restarted, and its cache is empty.
    Restarted,
}

impl Endpoint {
    pub(super) fn new(address: &str, generation: u32) -> Self {
        let name_hash = xxh3_64(address.as_bytes());
        Self {
            address: address.into(),
            name_hash,
            order: 0,
            health: Health::Healthy,
            role: Role {
                decodes: true,
                prefills: false,
            },
            load: Load::default(),
            load_at: None,
            read_at: None,
            last_text: LastText::of_endpoint(name_hash),
            ours: Ours::default(),
            peaks: Peaks::default(),
            begun_tokens: 0.0,
            sent_tokens: [0.0; 2],
            own: Own::new(generation),
            others: Others::default(),
            cooldown: Cooldown::default(),
            rate: PrefillRate::default(),
            queueing: Queueing::default(),
            trust: Trust::default(),
            outer_hit_share: 0.0,
            usual_backlog: BacklogMean::default(),
            tally: Tally::default(),
            listing: 0,
        }
    }

    /// Prefill rate, learned or assumed, tokens per millisecond.
    #[must_use]
    pub fn prefill_rate(&self) -> f64 {
        self.rate
            .tokens_per_ms()
            .unwrap_or(DEFAULT_PREFILL_TOKENS_PER_MS)
    }

    /// Shows all that was learned of it, [`LEARNED_FIGURES`].
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        self.rate.visit(visit);
        self.queueing.visit(visit);
        self.trust.visit(visit);
        visit(&mut self.outer_hit_share, &SHARE);
        self.usual_backlog.visit(visit);
    }

    /// Weight of the engine's last words: 1 new, 0 from `stale_after_ms` on.
    #[must_use]
    pub fn freshness(&self, stale_after_ms: u64, now: Millis) -> f64 {
        let Some(at) = self.load_at else { return 0.0 };
        let age_ms = now.since(at).min(stale_after_ms);
        1.0 - to_f64(age_ms) / to_f64(stale_after_ms.max(1))
    }

    /// Takes in what the engine says now.
    pub fn read(&mut self, mut load: Load, at: Millis) -> Reading {
        self.learn_outer_tier(&load);
        // Some write a counter only once they have counted; what it was tells of a restart all the same.
        let counts = load.prefix_queries.is_some();
        if !counts {
            (load.prefix_queries, load.prefix_hits) =
                (self.load.prefix_queries, self.load.prefix_hits);
        }
        // By half: readings that overtake each other also go back, by little, and would cost all that is known.
        let went_back = |before: Option<f64>, after: Option<f64>| matches!((before, after), (Some(b), Some(a)) if a < b / 2.0);
        let reading = if went_back(self.load.prefix_queries, load.prefix_queries) {
            Reading::Restarted
        } else if load.capacity_tokens.is_some()
            && self.load.capacity_tokens != load.capacity_tokens
        {
            Reading::Resized
        } else {
            Reading::Same
        };
        self.begun_tokens = if reading == Reading::Restarted {
            0.0
        } else {
            self.begun(&load, at)
        };
        if counts {
            let [_, since] = self.sent_tokens;
            self.sent_tokens = [since, 0.0];
        }
        self.load = load;
        self.read_at = Some(at);
        self.is_told(at);
        reading
    }

    /// Takes in what the engine says of its load in a response: that replaces what was known, the rest stays.
    pub fn told(&mut self, told: &Load, at: Millis) {
        let load = &mut self.load;
        load.waiting = told.waiting.or(load.waiting);
        load.running = told.running.or(load.running);
        load.kv_use = told.kv_use.or(load.kv_use);
        self.is_told(at);
    }

    fn is_told(&mut self, at: Millis) {
        self.load_at = Some(at);
        self.ours = self.peaks.of_reading().max(self.ours_now());
    }

    /// What is begun and not computed at a new reading. An engine counts a prompt's tokens, and those of them
    /// that it had cached, when it begins with it; what it began since the last reading bounds what it is at.
    fn begun(&self, load: &Load, at: Millis) -> f64 {
        let computed = |load: &Load| Some(load.prefix_queries? - load.prefix_hits?);
        let (Some(before), Some(after), Some(since)) =
            (computed(&self.load), computed(load), self.read_at)
        else {
            return 0.0;
        };
        let left = self.begun_tokens - to_f64(at.since(since)) * self.prefill_rate();
        let [earlier, lately] = self.sent_tokens;
        let new = after - before - earlier - lately;
        if new > 0.0 {
            bounded(left + new, &(0.0..=new))
        } else {
            left.max(0.0)
        }
    }

    /// What the engine computes beyond what this gateway sent, as far as its counters tell, tokens.
    #[must_use]
    pub fn unseen_tokens(&self, now: Millis) -> f64 {
        if self.begun_tokens == 0.0 {
            return 0.0;
        }
        let since_ms = self.read_at.map_or(0, |at| now.since(at));
        let begun = self.begun_tokens - to_f64(since_ms) * self.prefill_rate();
        (begun - self.prefill_tokens(now)).max(0.0)
    }

    /// Whether, as far as one can tell, nothing of others is before the engine.
    #[must_use]
    pub fn is_ours_alone(&self, now: Millis) -> bool {
        // What it said long ago says nothing of now.
        const TOLD_MS: u64 = 30_000;
        let is_recent = self.load_at.is_some_and(|at| !now.is_over(at, TOLD_MS));
        let waiting = self.load.waiting.filter(|_| is_recent).unwrap_or(0.0);
        self.others.awaiting_first == 0
            && f64::from(waiting) <= f64::from(self.ours.awaiting_first)
            && self.unseen_tokens(now) == 0.0
    }

    /// Requests of this gateway, all workers, without a first token.
    #[must_use]
    pub fn awaiting_first(&self) -> u32 {
        self.own
            .awaiting_first
            .saturating_add(self.others.awaiting_first)
    }

    fn ours_now(&self) -> Ours {
        Ours {
            awaiting_first: self.awaiting_first(),
            inflight: self.own.inflight.saturating_add(self.others.inflight),
        }
    }

    /// Notes that requests were sent, by us or by others who told of it, with the uncached tokens that were not noted yet.
    pub fn sent_more(&mut self, uncached_tokens: f64) {
        let [_, lately] = &mut self.sent_tokens;
        *lately += uncached_tokens;
        self.peaks.lately = self.peaks.lately.max(self.ours_now());
    }

    /// Notes that the engine's words were looked at, new or not.
    pub fn looked_at(&mut self, is_new: bool) {
        let now = self.ours_now();
        self.peaks.looked(is_new, now);
    }

    /// Uncached tokens before the engine, of all workers.
    #[must_use]
    pub fn prefill_tokens(&self, now: Millis) -> f64 {
        if self.own.is_idle() && self.others.ahead.tokens == 0.0 {
            return 0.0;
        }
        let rate = self.prefill_rate();
        self.own
            .ahead(rate, now)
            .and(self.others.ahead)
            .left(rate, now)
    }

    /// The share of external look-ups that hit since the last reading, smoothed; 0 where there are none any more.
    fn learn_outer_tier(&mut self, load: &Load) {
        const ALPHA: f64 = 0.2;
        if load.prefix_queries.is_some() && load.external_prefix_queries.is_none() {
            self.outer_hit_share = 0.0;
        }
        let grown = |before: Option<f64>, after: Option<f64>| Some(after? - before.unwrap_or(0.0));
        let queries = grown(
            self.load.external_prefix_queries,
            load.external_prefix_queries,
        );
        let hits = grown(self.load.external_prefix_hits, load.external_prefix_hits);
        if let (Some(queries), Some(hits)) = (queries, hits)
            && queries > 0.0
            && hits >= 0.0
        {
            let share = (hits / queries).clamp(0.0, 1.0);
            self.outer_hit_share += ALPHA * (share - self.outer_hit_share);
        }
    }
}

#[cfg(test)]
mod tests;
