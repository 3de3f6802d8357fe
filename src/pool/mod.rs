//! One cluster: its endpoints, what their caches hold, and the choice among them.
//!
//! Invariants
//! - an endpoint that left takes its index entries and counts with it;
//! - what [`Pool::decide`] counted and recorded is given back or confirmed through the [`Sent`] it returns.
//!
//! Cost: a decision O(blocks + endpoints), without allocation but for its record; a listing O(endpoints).

pub mod handover;
mod listing;
mod prefill;
mod report;
mod sent;
mod settle;
mod signals;
mod split;
mod workers;

pub use listing::{Figures, Listed, Said};
pub use sent::{Question, Sent, Unsent};
pub use settle::Served;

use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Millis;
use crate::config::{Config, SessionMode};
use crate::endpoints::Slot;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::load::{Health, adapter_hash};
use crate::endpoints::role::Part;
use crate::endpoints::table::Table;
use crate::exchange::handover::Handover;
use crate::exchange::{Exchange, What};
use crate::fallback::Fallback;
use crate::learn::{BytesPerToken, Traffic};
use crate::number::{millis, to_f64, to_u32};
use crate::overload;
use crate::pick::filter::{self, Standing};
use crate::pick::{self, Ask, Candidate, Ranked};
use crate::prefix::{Depths, Index, RecordState};
use crate::request::{BlockHash, Prompt};
use crate::telemetry::{Counter, Histogram, Tally, Telemetry};
use split::Split;

/// One cluster's state in this worker.
pub struct Pool {
    table: Table,
    index: Index,
    bytes_per_token: BytesPerToken,
    traffic: Traffic,
    exchange: Exchange,
    split: Split,
    /// What the VM before left and is not folded in yet.
    handover: Option<Handover>,
    /// Whether what the VM before left was looked for.
    pub has_begun: bool,
    /// When the endpoints were last listed.
    pub listed_at: Option<Millis>,
    /// When endpoints were first listed.
    known_since: Option<Millis>,
    /// Endpoints that the present request named, where requests name them.
    named: Vec<Slot>,
    named_at: Option<Millis>,
    /// Endpoints that left, with what was counted there and not handed on yet.
    left: Vec<(Box<str>, u64, Tally)>,
    depths: Depths,
    candidates: Vec<Candidate>,
    ranked: Ranked,
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            table: Table::default(),
            index: Index::new(&config.index),
            bytes_per_token: BytesPerToken::default(),
            traffic: Traffic::default(),
            exchange: Exchange::new(config.exchange),
            split: Split::new(
                config
                    .replicas
                    .as_ref()
                    .map_or(0, |replicas| millis(replicas.interval)),
            ),
            handover: None,
            has_begun: false,
            listed_at: None,
            known_since: None,
            named: Vec::new(),
            named_at: None,
            left: Vec::new(),
            depths: Depths::new(),
            candidates: Vec::new(),
            ranked: Ranked::new(config.fallback_endpoints),
        }
    }

    /// The pool's endpoints.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The pool's prefix index.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Picks an endpoint for a request, counts the request there and records its prefix, tentatively.
    ///
    /// # Errors
    /// The reason not to send it.
    pub fn decide(
        &mut self,
        question: &Question<'_>,
        blocks: Vec<BlockHash>,
        config: &Config,
        rng: &mut fastrand::Rng,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> Result<Sent, Unsent> {
        if self.table.is_empty() {
            return Err(Fallback::NoEndpoints.into());
        }
        let prompt = question.prompt;
        let model = xxh3_64(prompt.model.as_bytes());
        let per_token = self.bytes_per_token.of(model);
        self.index.matches(&blocks, now, &mut self.depths);
        self.gather(question, Part::Decode, per_token, config, now);
        if self.candidates.is_empty() {
            return Err(Unsent::Nobody);
        }
        if let Some(limits) = question.limits
            && self
                .candidates
                .iter()
                .all(|candidate| overload::is_full(&candidate.signals, limits))
        {
            return Err(Unsent::Overloaded);
        }
        let ask = self.ask(question, per_token, config);
        let branch = pick::pick(&ask, &self.candidates, question.pick, rng, &mut self.ranked)
            .ok_or(Fallback::NoneEligible)?;
        let winner = *self.ranked.winner().ok_or(Fallback::NoneEligible)?;
        let miss = (ask.prompt_tokens - winner.matched_tokens).max(0.0);
        self.learn(&ask, miss);
        let mut sent = self.sent(&winner, branch, &ask, prompt, blocks, now);
        sent.guessed = self.guess(&ask, winner.slot);
        if let Some(options) = &config.disaggregation
            && miss >= f64::from(options.min_uncached_tokens)
        {
            self.pick_prefill(&mut sent, question, &ask, config, rng, telemetry, now);
        }
        let slot = winner.slot;
        self.send(
            &mut sent,
            slot,
            RecordState::Tentative,
            config,
            telemetry,
            now,
        );
        if let Some(at) = self
            .table
            .get(sent.slot)
            .and_then(|endpoint| endpoint.load_at)
        {
            telemetry.observe(Histogram::SnapshotAgeMs, now.since(at));
        }
        Ok(sent)
    }

    /// Whether the word on its endpoints can be held against a request: while a gateway starts, all of them
    /// are down until their first health check.
    #[must_use]
    pub fn is_settled(&self, now: Millis) -> bool {
        const SETTLED_MS: u64 = 5_000;
        self.known_since
            .is_none_or(|since| now.since(since) >= SETTLED_MS)
    }

    fn ask(&self, question: &Question<'_>, per_token: f64, config: &Config) -> Ask {
        let prompt = question.prompt;
        let conversation = question.session.unwrap_or(prompt.conversation);
        let strict = question.session.is_some() && config.session.mode == SessionMode::Strict;
        Ask {
            prompt_tokens: to_f64(prompt.bytes) / per_token,
            head_tokens: to_f64(prompt.head_bytes) / per_token,
            conversation,
            later_turn: prompt.later_turn || question.session.is_some(),
            sticky: if strict {
                home(conversation, &self.candidates)
            } else {
                None
            },
            mean_miss_tokens: self.traffic.miss_tokens(),
            turns_to_come: self.traffic.turns_to_come(),
            home_worth: self.traffic.home_worth(),
            unseen: self.traffic.unseen(),
        }
    }

    fn matched_tokens(&self, slot: Slot, prompt: &Prompt, per_token: f64) -> f64 {
        match self.depths.of(slot) {
            0 => 0.0,
            depth => {
                to_f64(prompt.matched_bytes(usize::try_from(depth).unwrap_or(usize::MAX)))
                    / per_token
            }
        }
    }

    /// Fills the candidates: who is eligible in a role, with what is known of each.
    fn gather(
        &mut self,
        question: &Question<'_>,
        part: Part,
        per_token: f64,
        config: &Config,
        now: Millis,
    ) {
        self.candidates.clear();
        let adapter = self.adapter(&question.prompt.model);
        let stale_after_ms = millis(config.metrics.stale_after);
        for (slot, endpoint) in self.table.iter() {
            let standing = Standing {
                healthy: endpoint.health != Health::Unhealthy,
                draining: endpoint.health == Health::Draining,
                in_subset: question
                    .subset
                    .is_none_or(|subset| subset.contains(&&*endpoint.address))
                    && (self.named_at.is_none() || self.named.contains(&slot)),
                serves_model: None,
                cooling_until: endpoint.cooldown.until(now),
            };
            if endpoint.role.plays(part) && filter::eligible(&standing, now).is_ok() {
                self.candidates.push(Candidate {
                    slot,
                    name_hash: endpoint.name_hash,
                    matched_tokens: self.matched_tokens(slot, question.prompt, per_token),
                    unheard: self.split.unheard(endpoint.order, self.table.len()),
                    signals: signals::signals(endpoint, adapter, stale_after_ms, now),
                });
            }
        }
    }

    /// The hash of a model that some engine knows as an adapter.
    fn adapter(&self, model: &str) -> Option<u64> {
        let hash = adapter_hash(model.as_bytes());
        let names = |endpoint: &Endpoint| {
            let adapters = endpoint.load.adapters.as_ref();
            adapters.is_some_and(|adapters| {
                adapters.running.contains(&hash) || adapters.waiting.contains(&hash)
            })
        };
        self.table
            .iter()
            .any(|(_, endpoint)| names(endpoint))
            .then_some(hash)
    }

    /// Counts and records a request at an endpoint.
    fn send(
        &mut self,
        sent: &mut Sent,
        slot: Slot,
        state: RecordState,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let Some(endpoint) = self.table.get_mut(slot) else {
            return;
        };
        let rate = endpoint.prefill_rate();
        let miss = if sent.is_prefilled {
            1.0
        } else {
            (sent.prompt_tokens - sent.matched_tokens).max(1.0)
        };
        let cold = self.ranked.cold() && !sent.is_prefilled;
        sent.slot = slot;
        sent.computing_ms = sent.ttft_ms.map(|ttft_ms| ttft_ms - endpoint.queueing.ms());
        endpoint.cooldown.picked(now, &config.pick);
        sent.is_alone = !sent.is_prefilled && endpoint.is_ours_alone(now);
        sent.ticket = Some(
            endpoint
                .own
                .send(to_u32(miss), sent.streams, cold, rate, now),
        );
        endpoint.sent_more(miss);
        endpoint.tally.requests += 1;
        endpoint.tally.hit_tokens += u64::from(to_u32(sent.matched_tokens));
        sent.tentative = state == RecordState::Tentative;
        let recorded = self.index.record(&sent.blocks, slot, state, now);
        telemetry.add(Counter::Evictions, u64::from(recorded.evicted));
        sent.told_from = usize::try_from(recorded.lately_used).unwrap_or(0);
        // From the last block that the others know: it is touched there, and the new ones go behind it.
        let from = sent.told_from.saturating_sub(1);
        if sent.told_from < sent.blocks.len() {
            self.exchange.tell(
                What::Recorded,
                endpoint.name_hash,
                to_u32(miss),
                sent.blocks.get(from..).unwrap_or_default(),
            );
        } else {
            self.exchange.touch();
        }
    }

    /// The addresses of the last decision, the winner first, as a comma list.
    #[must_use]
    pub fn ranking(&self) -> String {
        let mut list = String::new();
        for entry in self.ranked.entries() {
            let Some(endpoint) = self.table.get(entry.slot) else {
                continue;
            };
            if !list.is_empty() {
                list.push(',');
            }
            list.push_str(&endpoint.address);
        }
        list
    }

    /// Costs of the best three of the last decision, for people.
    #[must_use]
    pub fn costs(&self) -> Vec<(&str, f64)> {
        let best = self.ranked.entries().iter().take(3);
        best.filter_map(|entry| Some((&*self.table.get(entry.slot)?.address, entry.cost)))
            .collect()
    }
}

/// The candidate with the highest rendezvous hash of a conversation.
fn home(conversation: u64, candidates: &[Candidate]) -> Option<Slot> {
    let best = candidates
        .iter()
        .max_by_key(|c| pick::rendezvous::weight(conversation, c.name_hash))?;
    Some(best.slot)
}
