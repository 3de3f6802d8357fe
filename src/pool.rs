//! One cluster: its endpoints, what their caches hold, and the choice among them.
//!
//! Invariants
//! - an endpoint that left takes its index entries and counts with it;
//! - what [`Pool::decide`] counted and recorded is given back or confirmed through the [`Sent`] it returns.
//!
//! Cost: a decision O(blocks + endpoints), without allocation but for its record; a listing O(endpoints).

use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Millis;
use crate::config::{Config, SessionMode};
use crate::endpoints::Slot;
use crate::endpoints::load::{Health, Load, adapter_hash};
use crate::endpoints::own::{Ahead, Ending, Ticket};
use crate::endpoints::table::{Endpoint, Reading, Table};
use crate::exchange::{Count, Exchange, Member, What};
use crate::fallback::Fallback;
use crate::learn::{BytesPerToken, Verdict};
use crate::number::{millis, to_f64, to_u32};
use crate::pick::filter::{self, Standing};
use crate::pick::{Adapter, Ask, Branch, Candidate, Ranked, Signals};
use crate::prefix::{Depths, Index, RecordState};
use crate::raw_json::RawJsonStr;
use crate::request::{BlockHash, Prompt};
use crate::telemetry::{Counter, Histogram, Telemetry};

/// Smoothing of the usual miss of a request.
const MISS_ALPHA: f64 = 0.02;

/// One cluster's state in this worker.
pub struct Pool {
    table: Table,
    index: Index,
    bytes_per_token: BytesPerToken,
    mean_miss_tokens: f64,
    exchange: Exchange,
    /// When the endpoints were last listed.
    pub listed_at: Option<Millis>,
    /// Endpoints that the present request named, where requests name them.
    named: Vec<Slot>,
    named_at: Option<Millis>,
    depths: Depths,
    candidates: Vec<Candidate>,
    ranked: Ranked,
}

/// What a request asks of a pool.
pub struct Question<'a> {
    /// Its prompt.
    pub prompt: &'a Prompt,
    /// Hash of the session that it names, by header or body.
    pub session: Option<u64>,
    /// Only these addresses may be picked.
    pub subset: Option<&'a [&'a str]>,
}

/// A request that was sent to an endpoint: what is still to settle about it.
#[derive(Debug)]
pub struct Sent {
    /// Where to.
    pub slot: Slot,
    /// Why there.
    pub branch: Branch,
    /// Predicted cached prompt tokens.
    pub matched_tokens: f64,
    /// Estimated prompt tokens.
    pub prompt_tokens: f64,
    /// Predicted time to the first token; of it, computing.
    pub ttft_ms: Option<f64>,
    computing_ms: Option<f64>,
    /// Moment of the decision.
    pub at: Millis,
    /// Hash of the model's name.
    pub model: u64,
    /// Blocks matched at the endpoint.
    pub matched_blocks: u32,
    streams: bool,
    prompt_bytes: u64,
    blocks: Vec<BlockHash>,
    ticket: Option<Ticket>,
    tentative: bool,
    /// No other worker's request was before it, so that its first token tells the endpoint's rate.
    is_alone: bool,
    /// Blocks before this one were not told to other workers: they know them.
    told_from: usize,
}

impl Sent {
    /// Whole blocks of the prompt.
    #[must_use]
    pub fn total_blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            table: Table::default(),
            index: Index::new(&config.index),
            bytes_per_token: BytesPerToken::default(),
            mean_miss_tokens: 0.0,
            exchange: Exchange::new(config.exchange),
            listed_at: None,
            named: Vec::new(),
            named_at: None,
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

    /// Takes in a whole listing: `entries` yields each endpoint with its health and what its engine said.
    pub fn list<'a, S: Said>(
        &mut self,
        entries: impl Iterator<Item = Listed<'a, S>>,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        self.table.begin_listing();
        for entry in entries {
            let Some((slot, is_new)) = self.table.list(entry.address, entry.health) else {
                continue;
            };
            if is_new {
                self.fit(slot, config);
            }
            let figures = match (entry.said, self.table.get_mut(slot)) {
                (Some(said), Some(endpoint)) => said.figures(endpoint, telemetry, now),
                _ => None,
            };
            if let Some((load, at)) = figures {
                self.read(slot, load, at, config, telemetry);
            }
            if let Some(endpoint) = self.table.get_mut(slot) {
                endpoint.looked_at();
            }
        }
        let index = &mut self.index;
        self.table.end_listing(|slot| index.remove(slot));
        self.listed_at = Some(now);
    }

    /// Takes in the endpoints that a request names; only these are candidates for it. One that no request
    /// named for a while has left.
    pub fn name(&mut self, addresses: &[&str], config: &Config, now: Millis) {
        const FORGOTTEN_MS: u64 = 60_000;
        if self.named_at.is_none_or(|at| now.since(at) >= FORGOTTEN_MS) {
            let index = &mut self.index;
            self.table.end_listing(|slot| index.remove(slot));
            self.table.begin_listing();
            self.named_at = Some(now);
        }
        self.named.clear();
        for address in addresses {
            let Some((slot, is_new)) = self.table.list(address, Health::Healthy) else {
                continue;
            };
            self.named.push(slot);
            if is_new {
                self.fit(slot, config);
            }
        }
    }

    /// When the engine's words that count for an address were new.
    #[must_use]
    pub fn load_at(&self, address: &str) -> Option<Millis> {
        self.table.get(self.table.slot_of(address)?)?.load_at
    }

    /// Reads an engine's text; `None` when it is the last one.
    fn read(
        &mut self,
        slot: Slot,
        load: Load,
        at: Millis,
        config: &Config,
        telemetry: &mut Telemetry,
    ) {
        let Some(endpoint) = self.table.get_mut(slot) else {
            return;
        };
        match endpoint.read(load, at) {
            Reading::Same => {}
            Reading::Resized => self.fit(slot, config),
            Reading::Restarted => {
                telemetry.add(Counter::Restarts, 1);
                self.index.clear(slot);
                self.fit(slot, config);
            }
        }
    }

    /// Sets the index's bound for an endpoint from its cache size and our trust.
    fn fit(&mut self, slot: Slot, config: &Config) {
        let Some(endpoint) = self.table.get(slot) else {
            return;
        };
        let believed = u64::from(endpoint.load.block_tokens.unwrap_or(1))
            .saturating_mul(config.index.max_engine_blocks);
        let tokens = match endpoint.load.capacity_tokens {
            Some(tokens) => tokens.min(believed),
            None => config.index.default_capacity_tokens,
        };
        let bytes = to_f64(tokens) * endpoint.trust.factor() * self.bytes_per_token.overall();
        let blocks = bytes / f64::from(config.prompt.block_bytes.max(1));
        self.index.set_capacity_blocks(slot, to_u32(blocks).max(1));
    }

    /// Picks an endpoint for a request, counts the request there and records its prefix, tentatively.
    ///
    /// # Errors
    /// The reason to leave the request to the gateway.
    pub fn decide(
        &mut self,
        question: &Question<'_>,
        blocks: Vec<BlockHash>,
        config: &Config,
        rng: &mut fastrand::Rng,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> Result<Sent, Fallback> {
        if self.table.is_empty() {
            return Err(Fallback::NoEndpoints);
        }
        let prompt = question.prompt;
        let model = xxh3_64(prompt.model.as_bytes());
        let per_token = self.bytes_per_token.of(model);
        self.index.matches(&blocks, now, &mut self.depths);
        self.gather(question, per_token, config, now);
        if self.candidates.is_empty() {
            return Err(Fallback::NoneEligible);
        }
        let ask = self.ask(question, per_token, config);
        let branch = crate::pick::pick(&ask, &self.candidates, &config.pick, rng, &mut self.ranked)
            .ok_or(Fallback::NoneEligible)?;
        let winner = *self.ranked.winner().ok_or(Fallback::NoneEligible)?;
        let miss = (ask.prompt_tokens - winner.matched_tokens).max(0.0);
        let weight = if self.mean_miss_tokens > 0.0 {
            MISS_ALPHA
        } else {
            1.0
        };
        self.mean_miss_tokens += weight * (miss - self.mean_miss_tokens);
        let mut sent = Sent {
            slot: winner.slot,
            branch,
            matched_tokens: self.matched_tokens(winner.slot, prompt, per_token),
            prompt_tokens: ask.prompt_tokens,
            ttft_ms: winner.ttft_ms,
            computing_ms: None,
            at: now,
            model,
            matched_blocks: self.depths.of(winner.slot),
            streams: prompt.stream,
            prompt_bytes: prompt.bytes,
            blocks,
            ticket: None,
            tentative: false,
            is_alone: true,
            told_from: 0,
        };
        self.send(
            &mut sent,
            winner.slot,
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
            mean_miss_tokens: self.mean_miss_tokens,
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

    /// Fills the candidates: who is eligible, with what is known of each.
    fn gather(&mut self, question: &Question<'_>, per_token: f64, config: &Config, now: Millis) {
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
                cooling_until: endpoint.cooldown.until(),
            };
            if filter::eligible(&standing, now).is_ok() {
                self.candidates.push(Candidate {
                    slot,
                    name_hash: endpoint.name_hash,
                    matched_tokens: self.matched_tokens(slot, question.prompt, per_token),
                    signals: signals(endpoint, adapter, stale_after_ms, now),
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
        let miss = (sent.prompt_tokens - sent.matched_tokens).max(1.0);
        sent.slot = slot;
        sent.computing_ms = sent.ttft_ms.map(|ttft_ms| ttft_ms - endpoint.queueing.ms());
        endpoint.cooldown.picked(now, &config.pick);
        sent.is_alone = endpoint.is_ours_alone(now);
        sent.ticket =
            Some(
                endpoint
                    .own
                    .send(to_u32(miss), sent.streams, self.ranked.cold(), rate, now),
            );
        endpoint.sent_more(miss);
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

/// What a listing says of one endpoint.
pub struct Listed<'a, S> {
    /// `ip:port`.
    pub address: &'a str,
    /// The gateway's word.
    pub health: Health,
    /// What its engine said.
    pub said: Option<S>,
}

/// An engine's words, in the form in which a gateway has them: each gateway builds in its own only.
pub trait Said {
    /// New figures and when they were read; `None` when they are as before.
    fn figures(
        self,
        endpoint: &mut Endpoint,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> Option<(Load, Millis)>;
}

/// New figures and when they were read.
pub struct Figures(pub Load, pub Millis);

impl Said for Figures {
    fn figures(self, _: &mut Endpoint, _: &mut Telemetry, _: Millis) -> Option<(Load, Millis)> {
        Some((self.0, self.1))
    }
}

impl Said for RawJsonStr<'_> {
    /// Its metrics text as the gateway keeps it, new or not.
    fn figures(
        self,
        endpoint: &mut Endpoint,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> Option<(Load, Millis)> {
        let load = endpoint.last_text.read(self)?;
        let counter = if load.is_unknown() {
            Counter::ScrapeFailures
        } else {
            Counter::Scrapes
        };
        telemetry.add(counter, 1);
        Some((load, now))
    }
}

/// How a request fared, from its response headers.
pub struct Served<'a> {
    /// HTTP status.
    pub status: u16,
    /// Who answered, where the gateway tells.
    pub by: Option<&'a str>,
    /// How many endpoints the gateway tried.
    pub attempts: Option<u32>,
}

impl Pool {
    /// Settles the record of a request by its response headers.
    pub fn served(
        &mut self,
        sent: &mut Sent,
        served: &Served<'_>,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let picked = self.table.get(sent.slot).map(|endpoint| &*endpoint.address);
        let elsewhere = match served.by {
            Some(by) => picked.is_some_and(|picked| picked != by),
            None => false,
        };
        let is_answer = (200..300).contains(&served.status);
        if elsewhere {
            telemetry.add(Counter::ServedElsewhere, 1);
            let tried_first = served.attempts.is_some_and(|attempts| attempts > 1);
            let ending = if tried_first {
                Ending::Failed
            } else {
                Ending::Unknown
            };
            self.withdraw(sent, telemetry);
            self.release(sent, ending, config, telemetry, now);
            if let Some(slot) = served.by.and_then(|by| self.table.slot_of(by)) {
                sent.matched_tokens = 0.0;
                sent.ttft_ms = None;
                let state = if is_answer {
                    RecordState::Confirmed
                } else {
                    RecordState::Tentative
                };
                self.send(sent, slot, state, config, telemetry, now);
            }
        }
        if !is_answer {
            self.withdraw(sent, telemetry);
        } else if sent.tentative {
            sent.tentative = false;
            self.index.confirm(&sent.blocks, sent.slot, now);
        }
    }

    /// An engine told its load in a response: what it says replaces what was known, the rest stays.
    pub fn told_load(&mut self, sent: &Sent, told: &Load, now: Millis) {
        let Some(endpoint) = self.table.get_mut(sent.slot) else {
            return;
        };
        let mut load = endpoint.load.clone();
        load.waiting = told.waiting.or(load.waiting);
        load.running = told.running.or(load.running);
        load.kv_use = told.kv_use.or(load.kv_use);
        endpoint.read(load, now);
    }

    /// The first chunk of a streamed answer.
    pub fn first_token(&mut self, sent: &mut Sent, telemetry: &mut Telemetry, now: Millis) {
        let Some(endpoint) = self.table.get_mut(sent.slot) else {
            return;
        };
        let Some(ticket) = &mut sent.ticket else {
            return;
        };
        let Some(prefilled) = endpoint.own.first_token(ticket, now) else {
            return;
        };
        self.exchange.touch();
        let ttft_ms = now.since(sent.at);
        if sent.is_alone {
            endpoint.rate.observe(prefilled.tokens, prefilled.took_ms);
        }
        telemetry.observe(Histogram::TtftMs, ttft_ms);
        if let Some(computing_ms) = sent.computing_ms {
            endpoint.queueing.observe(ttft_ms, computing_ms);
        }
        if let Some(predicted) = sent.ttft_ms {
            telemetry.observe(Histogram::PredictedTtftMs, u64::from(to_u32(predicted)));
        }
    }

    /// An engine told the prompt's tokens, and how many of them it had cached.
    pub fn usage(
        &mut self,
        sent: &Sent,
        prompt_tokens: Option<u32>,
        cached_tokens: Option<u32>,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let Some(prompt_tokens) = prompt_tokens else {
            return;
        };
        self.bytes_per_token
            .observe(sent.model, sent.prompt_bytes, prompt_tokens);
        let Some(cached_tokens) = cached_tokens else {
            return;
        };
        telemetry.add(Counter::ReportedPromptTokens, u64::from(prompt_tokens));
        telemetry.add(
            Counter::DeliveredHitTokens,
            u64::from(cached_tokens.min(prompt_tokens)),
        );
        let Some(endpoint) = self.table.get_mut(sent.slot) else {
            return;
        };
        let share = |tokens: f64, of: f64| if of > 0.0 { tokens / of } else { 0.0 };
        let predicted = share(sent.matched_tokens, sent.prompt_tokens) * f64::from(prompt_tokens);
        let block_tokens = endpoint.load.block_tokens.map_or(64.0, f64::from);
        match endpoint
            .trust
            .compare(predicted, f64::from(cached_tokens), block_tokens)
        {
            Verdict::Fits => {}
            Verdict::Short => telemetry.add(Counter::Shortfalls, 1),
            Verdict::Emptied => {
                // This answer's own prefix is there again: its record is made anew after the others went.
                telemetry.add(Counter::EmptiedCaches, 1);
                self.exchange.tell(What::Emptied, endpoint.name_hash, &[]);
                self.index.clear(sent.slot);
                self.fit(sent.slot, config);
                self.index
                    .record(&sent.blocks, sent.slot, RecordState::Confirmed, now);
                return;
            }
        }
        self.fit(sent.slot, config);
    }

    /// The request is over.
    pub fn finish(
        &mut self,
        mut sent: Sent,
        ending: Ending,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        if sent.tentative {
            self.withdraw(&mut sent, telemetry);
        }
        self.release(&mut sent, ending, config, telemetry, now);
    }

    fn withdraw(&mut self, sent: &mut Sent, telemetry: &mut Telemetry) {
        if core::mem::take(&mut sent.tentative) {
            self.index.withdraw(&sent.blocks, sent.slot);
            telemetry.add(Counter::Withdrawn, 1);
            if let (Some(endpoint), Some(told)) =
                (self.table.get(sent.slot), sent.blocks.get(sent.told_from..))
            {
                self.exchange
                    .tell(What::Withdrawn, endpoint.name_hash, told);
            }
        }
    }

    fn release(
        &mut self,
        sent: &mut Sent,
        ending: Ending,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        const FAILURE_ALPHA: f64 = 0.3;
        let Some(ticket) = sent.ticket.take() else {
            return;
        };
        let Some(endpoint) = self.table.get_mut(sent.slot) else {
            return;
        };
        let rate = endpoint.prefill_rate();
        let alpha = match &config.pick.profile {
            crate::config::Profile::Weighted(weights) => weights.failure_ewma_alpha,
            crate::config::Profile::Cost => FAILURE_ALPHA,
        };
        if !endpoint.own.release(&ticket, ending, alpha, rate, now) {
            return;
        }
        self.exchange.touch();
        match ending {
            Ending::Served => endpoint.cooldown.succeeded(),
            Ending::Failed => {
                telemetry.add(Counter::EndpointFailures, 1);
                endpoint.cooldown.failed(now, &config.pick);
            }
            Ending::Unknown => {}
        }
    }
}

impl Pool {
    /// This worker's side of the exchange.
    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// This worker's head for the others.
    #[must_use]
    pub fn head(&self, vm: u64, now: Millis) -> Vec<u8> {
        /// Fewer cold prompts than this are not worth telling.
        const COLD_MILLI: u32 = 100;
        let counts = self.table.iter().filter_map(|(_, endpoint)| {
            let ahead = endpoint.own.ahead(endpoint.prefill_rate(), now);
            let (oldest_at, oldest_tokens) = ahead.oldest.unwrap_or_default();
            let count = Count {
                name_hash: endpoint.name_hash,
                inflight: endpoint.own.inflight,
                awaiting_first: endpoint.own.awaiting_first,
                prefill_tokens: to_u32(ahead.tokens),
                oldest_tokens,
                oldest_at,
                first_token_at: ahead.first_token_at,
                cold_milli: to_u32(endpoint.own.cold_recent(now) * 1000.0),
            };
            (count.inflight > 0 || count.cold_milli > COLD_MILLI).then_some(count)
        });
        self.exchange.outbox.head(vm, counts, now)
    }

    /// Takes in another worker's head, unless it is the one seen last; `false` when it says nothing.
    pub fn hear_head(&mut self, vm: u64, version: u32, bytes: &[u8]) -> bool {
        let Some(member) = self.exchange.member(vm) else {
            return false;
        };
        if member.version == Some(version) {
            return true;
        }
        member.version = Some(version);
        member.read_head(bytes)
    }

    /// Folds in a segment of another worker's log, up to `budget` blocks. `false` when there is no more to
    /// read for now.
    pub fn hear_segment(
        &mut self,
        vm: u64,
        bytes: &[u8],
        budget: &mut usize,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> bool {
        let (table, index) = (&mut self.table, &mut self.index);
        let Some(member) = self.exchange.member(vm) else {
            return false;
        };
        let heard = member.read_segment(bytes, budget, |told| {
            let Some(slot) = table.slot_of_name(told.name_hash) else {
                return;
            };
            match told.what {
                What::Recorded => {
                    let recorded = index.record(&told.blocks, slot, RecordState::Confirmed, now);
                    telemetry.add(Counter::Evictions, u64::from(recorded.evicted));
                }
                What::Withdrawn => index.trim(&told.blocks, slot, 0),
                What::Emptied => index.clear(slot),
            }
        });
        telemetry.add(Counter::ExchangeGaps, u64::from(heard.unwrap_or(0)));
        heard.is_some() && *budget > 0 && member.wanted().is_some()
    }

    /// Sums up what the workers that are not silent have in flight.
    pub fn sum_others(&mut self, now: Millis) {
        self.table.clear_others();
        for member in self
            .exchange
            .members
            .iter()
            .filter(|member| member.is_alive(now))
        {
            add(&mut self.table, member);
        }
    }
}

/// Adds what another worker has in flight to the endpoints'.
fn add(table: &mut Table, member: &Member) {
    for count in &member.counts {
        let Some(slot) = table.slot_of_name(count.name_hash) else {
            continue;
        };
        let Some(endpoint) = table.get_mut(slot) else {
            continue;
        };
        let others = &mut endpoint.others;
        others.inflight = others.inflight.saturating_add(count.inflight);
        others.awaiting_first = others.awaiting_first.saturating_add(count.awaiting_first);
        others.cold_recent += f64::from(count.cold_milli) / 1000.0;
        others.ahead = others.ahead.and(Ahead {
            tokens: f64::from(count.prefill_tokens),
            oldest: (count.oldest_at != Millis(0))
                .then_some((count.oldest_at, count.oldest_tokens)),
            first_token_at: count.first_token_at,
        });
        endpoint.sent_more(0.0);
    }
}

/// The candidate with the highest rendezvous hash of a conversation.
fn home(conversation: u64, candidates: &[Candidate]) -> Option<Slot> {
    let best = candidates
        .iter()
        .max_by_key(|c| crate::pick::rendezvous::weight(conversation, c.name_hash))?;
    Some(best.slot)
}

/// Where an adapter stands at an endpoint.
fn place(adapter: Option<u64>, load: &Load) -> Adapter {
    let (Some(hash), Some(adapters)) = (adapter, &load.adapters) else {
        return Adapter::Unknown;
    };
    if adapters.running.contains(&hash) {
        return Adapter::Active;
    }
    if adapters.waiting.contains(&hash) {
        return Adapter::Waiting;
    }
    match adapters.max.map(usize::try_from) {
        Some(Ok(max)) if adapters.running.len() >= max => Adapter::Full,
        Some(_) => Adapter::Room,
        None => Adapter::Unknown,
    }
}

/// Inlined, so that each figure goes to its place at once: copies of the struct cost more than the figures.
#[inline(always)]
fn signals(endpoint: &Endpoint, adapter: Option<u64>, stale_after_ms: u64, now: Millis) -> Signals {
    let load = &endpoint.load;
    let own = &endpoint.own;
    let others = &endpoint.others;
    Signals {
        waiting: load.waiting.map(f64::from),
        running: load.running.map(f64::from),
        kv_use: load.kv_use.map(f64::from),
        freshness: endpoint.freshness(stale_after_ms, now),
        waiting_own: endpoint.ours.awaiting_first,
        inflight_own: endpoint.ours.inflight,
        inflight: own.inflight.saturating_add(others.inflight),
        prefill_tokens: endpoint.prefill_tokens(now),
        unseen_tokens: endpoint.unseen_tokens(now),
        awaiting_first: endpoint.awaiting_first(),
        streams: own
            .streams()
            .saturating_add(others.inflight.saturating_sub(others.awaiting_first)),
        failure: own.failure(now),
        adapter: place(adapter, load),
        outer_hit_share: endpoint.outer_hit_share,
        cold_recent: own.cold_recent(now) + others.cold_recent,
        prefill_tokens_per_ms: endpoint.rate.tokens_per_ms(),
        queue_ms: endpoint.queueing.ms(),
    }
}
