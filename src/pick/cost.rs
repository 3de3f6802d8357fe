//! The cost of an endpoint: the work before this request's first token, in uncached prompt tokens.
//!
//! ```text
//! cost = (backlog + miss x (1 + scarcity)) x pace + wait + decode + kv + adapter + failure
//! ```
//!
//! - backlog: uncached tokens ahead of us. Our own are counted exactly; others' are what the engine is
//!   computing beyond ours, by its own counters, and their waiting requests times the usual miss.
//! - miss: prompt tokens less those matched, cheaper where an outer KV tier answers.
//! - scarcity: while every endpoint has requests waiting, a token computed twice delays all behind
//!   it, so following a cache is worth more than this request's own gain. Greedy choices without
//!   it copy hot prefixes until the pool is overloaded; with one endpoint idle it is nearly 0.
//! - pace: how slow the endpoint's prefill is, against the mean.
//! - the rest is small, monotone, and decides only where work does not.
//!
//! Near ties go to the conversation's home, so that workers which know nothing of each other agree;
//! a cold prompt passes over endpoints that got more than their share of cold prompts lately.
//! Whoever counts the tokens that wait spreads a burst, whoever counts requests or normalises one
//! snapshot sends it to one place.

use core::time::Duration;

use super::{Adapter, Ask, Branch, Candidate, Entry, Ranked, rendezvous, sane};
use crate::config::PickOptions;

/// What a request waiting for its first token costs beyond its tokens: scheduling, one decode step.
const REQUEST_TOKENS: f64 = 200.0;
/// What an open output stream costs a prefill beside it.
const STREAM_TOKENS: f64 = 80.0;
/// KV use from which an engine may have to preempt or to hold requests back.
const KV_TIGHT: f64 = 0.9;
/// What a full KV cache costs.
const KV_FULL_TOKENS: f64 = 4_000.0;
/// What loading an adapter costs; a place half way to it costs its share.
const ADAPTER_TOKENS: f64 = 4_000.0;
/// What a failure costs beyond twice the mean work elsewhere.
const FAILURE_TOKENS: f64 = 20_000.0;
/// Share of a recomputation that a hit in an outer tier saves.
const OUTER_SAVES: f64 = 0.75;
/// Learned rates are trusted within this factor of their mean.
const PACE_LIMIT: f64 = 4.0;
/// What a computed token costs those behind it, for each request waiting everywhere.
const SCARCITY: f64 = 0.6;
/// Scarcity beyond which nothing changes any more.
const SCARCITY_LIMIT: f64 = 6.0;
/// Below this many requests an endpoint counts as idle in the harmonic mean.
const IDLE_REQUESTS: f64 = 0.3;
/// Share of requests by others up to which they are none: engines' words lag behind our counts.
const UNSEEN_NONE: f64 = 0.1;
/// Share of requests by others from which an unknown conversation is surely theirs.
const UNSEEN_SURE: f64 = 0.2;
/// By what share of the best cost the home may cost more, where others look for conversations there.
const UNSEEN_TIE_RATIO: f64 = 0.4;
/// How much of a cold prompt the home may cost more then, as long as nothing waits there.
const UNSEEN_TIE_PROMPT: f64 = 0.7;
/// A cost that nothing exceeds, for figures that are no numbers.
const WORST: f64 = 1e15;

/// Costs of all candidates into `scores`, and the winner.
pub(super) fn choose(
    ask: &Ask,
    candidates: &[Candidate],
    options: &PickOptions,
    ranked: &mut Ranked,
) -> Option<(usize, Branch)> {
    let pool = Pool::of(ask, candidates, options);
    ranked.home = Some(pool.home);
    ranked.told = (pool.running.weight > 0.0).then_some((pool.requests, pool.requests_own));
    let scores = &mut ranked.scores;
    let mut total = 0.0;
    let mut count = 0.0;
    let mut failures = false;
    for (at, candidate) in candidates.iter().enumerate() {
        let entry = pool.entry(ask, candidate, at == pool.home);
        if entry.cost < WORST {
            total += entry.cost;
            count += 1.0;
        }
        failures |= candidate.signals.failure != 0.0;
        scores.push(entry);
    }
    if failures {
        let failed = FAILURE_TOKENS + 2.0 * sane(total / count, 0.0);
        for (entry, candidate) in scores.iter_mut().zip(candidates) {
            entry.cost += sane(candidate.signals.failure, 1.0).min(1.0) * failed;
        }
    }
    let predicted = scores.iter().any(|entry| entry.ttft_ms.is_some());
    if let Some(aim) = options.slo_ttft.filter(|_| predicted) {
        // Where nobody is in time, no tie may make it later still.
        return match most_cached_in_time(scores, aim) {
            Some(at) => Some((at, Branch::Slo)),
            None => pool.winner(ask, candidates, scores, Reach::default()),
        };
    }
    let reach = pool.reach(ask, options, scores);
    pool.winner(ask, candidates, scores, reach)
}

/// What the candidates have in common.
struct Pool {
    waiting: Mean,
    running: Mean,
    kv_use: Mean,
    pace: Mean,
    cold: Mean,
    idleness: Mean,
    /// Uncached tokens of a usual request.
    miss_tokens: f64,
    /// What a computed token costs those behind it.
    scarcity: f64,
    /// Requests that engines told of, and of them ours.
    requests: f64,
    requests_own: f64,
    /// How sure it is that others send requests, 0 to 1.
    unseen: f64,
    /// Longest match.
    matched_tokens: f64,
    min_match_tokens: f64,
    /// The home's index.
    home: usize,
    /// What the home is credited with while nobody is known to hold more.
    credit_tokens: f64,
}

impl Pool {
    fn of(ask: &Ask, candidates: &[Candidate], options: &PickOptions) -> Self {
        let mut pool = Self {
            waiting: Mean::default(),
            running: Mean::default(),
            kv_use: Mean::default(),
            pace: Mean::default(),
            cold: Mean::default(),
            idleness: Mean::default(),
            miss_tokens: sane(ask.mean_miss_tokens, 0.0),
            matched_tokens: 0.0,
            scarcity: 0.0,
            requests: 0.0,
            requests_own: 0.0,
            unseen: ((ask.unseen - UNSEEN_NONE) / (UNSEEN_SURE - UNSEEN_NONE)).clamp(0.0, 1.0),
            min_match_tokens: f64::from(options.min_match_tokens),
            home: 0,
            credit_tokens: 0.0,
        };
        let mut highest = None;
        let (mut prefill, mut awaiting) = (0.0, 0.0);
        for (at, candidate) in candidates.iter().enumerate() {
            let signals = &candidate.signals;
            let weight = sane(signals.freshness, 0.0).min(1.0);
            if let Some(waiting) = others(signals.waiting, signals.waiting_own) {
                pool.waiting.add(waiting, weight);
            }
            if let Some(running) = known(signals.running) {
                pool.running.add(running, weight);
                let waiting = known(signals.waiting).unwrap_or(0.0);
                pool.requests += weight * (running + waiting);
                pool.requests_own += weight * f64::from(signals.inflight_own);
            }
            if let Some(kv_use) = known(signals.kv_use) {
                pool.kv_use.add(kv_use.min(1.0), weight);
            }
            if let Some(rate) = signals.prefill_tokens_per_ms.filter(|rate| *rate > 0.0) {
                pool.pace.add(sane(1.0 / rate, 0.0), 1.0);
            }
            pool.cold.add(sane(signals.cold_recent, 0.0), 1.0);
            let mut queue = f64::from(signals.awaiting_first) + IDLE_REQUESTS;
            queue += weight * others(signals.waiting, signals.waiting_own).unwrap_or(0.0);
            if ask.mean_miss_tokens > 0.0 {
                queue += (sane(signals.unseen_tokens, 0.0) / ask.mean_miss_tokens).min(1.0);
            }
            pool.idleness.add(1.0 / queue, 1.0);
            prefill += sane(signals.prefill_tokens, 0.0);
            awaiting += f64::from(signals.awaiting_first);
            pool.matched_tokens = pool.matched_tokens.max(pool.matched(ask, candidate));
            let rank = rank(ask, candidate);
            if highest.is_none_or(|highest| rank > highest) {
                highest = Some(rank);
                pool.home = at;
            }
        }
        // The harmonic mean: one idle endpoint is enough for capacity not to be scarce.
        let queue = 1.0 / pool.idleness.mean() - IDLE_REQUESTS;
        pool.scarcity = (SCARCITY * sane(queue, 0.0)).min(SCARCITY_LIMIT);
        if pool.miss_tokens == 0.0 {
            pool.miss_tokens = if awaiting > 0.0 {
                prefill / awaiting
            } else {
                sane(ask.prompt_tokens, 0.0)
            };
        }
        if ask.later_turn {
            // What this gateway sent itself the index knows the place of; the prior is for the rest.
            let theirs = (ask.unseen / UNSEEN_SURE).clamp(0.0, 1.0) * sane(ask.home_worth, 0.0);
            let credit = options.prior * theirs * sane(ask.head_tokens, 0.0);
            if credit > pool.matched_tokens {
                pool.credit_tokens = credit.min(sane(ask.prompt_tokens, 0.0));
            }
        }
        pool
    }

    /// What of the prompt the candidate holds, where that is worth following.
    fn matched(&self, ask: &Ask, candidate: &Candidate) -> f64 {
        let matched = sane(candidate.matched_tokens, 0.0).min(ask.prompt_tokens);
        if matched >= self.min_match_tokens {
            matched
        } else {
            0.0
        }
    }

    fn entry(&self, ask: &Ask, candidate: &Candidate, is_home: bool) -> Entry {
        let signals = &candidate.signals;
        let fresh = sane(signals.freshness, 0.0).min(1.0);
        let mut matched = self.matched(ask, candidate);
        if is_home {
            matched = matched.max(self.credit_tokens);
        }
        let outer = sane(signals.outer_hit_share, 0.0).min(1.0);
        let miss = (sane(ask.prompt_tokens, 0.0) - matched).max(0.0) * (1.0 - OUTER_SAVES * outer);
        let waiting = self
            .waiting
            .blend(others(signals.waiting, signals.waiting_own), fresh);
        let unseen = sane(signals.unseen_tokens, 0.0) + waiting * self.miss_tokens;
        let backlog = sane(signals.prefill_tokens, WORST) + unseen;
        let own = backlog + miss;
        let shared = own + miss * self.scarcity;
        let wait = f64::from(signals.awaiting_first) * REQUEST_TOKENS;
        let own_streams = f64::from(signals.streams);
        let streams = self
            .running
            .blend(known(signals.running), fresh)
            .max(own_streams);
        let kv_use = self
            .kv_use
            .blend(known(signals.kv_use).map(|x| x.min(1.0)), fresh);
        let kv = ((kv_use - KV_TIGHT) / (1.0 - KV_TIGHT)).max(0.0) * KV_FULL_TOKENS;
        let small = wait + streams * STREAM_TOKENS + kv + adapter_tokens(signals.adapter);
        let ms_per_token = signals
            .prefill_tokens_per_ms
            .filter(|rate| *rate > 0.0)
            .map(|rate| sane(1.0 / rate, 0.0));
        let pace = match (ms_per_token, self.pace.mean()) {
            (Some(ms), mean) if mean > 0.0 => (ms / mean).clamp(1.0 / PACE_LIMIT, PACE_LIMIT),
            _ => 1.0,
        };
        Entry {
            slot: candidate.slot,
            cost: sane(shared * pace + small, WORST).min(WORST),
            matched_tokens: matched,
            ttft_ms: ms_per_token.map(|ms| own * ms + sane(signals.queue_ms, 0.0)),
        }
    }

    /// What counts as a near tie.
    fn reach(&self, ask: &Ask, options: &PickOptions, scores: &[Entry]) -> Reach {
        let ratio = options.tie_ratio + UNSEEN_TIE_RATIO * self.unseen;
        let near = (cheapest(scores) * ratio).max(f64::from(options.tie_tokens));
        // A match that is known outweighs a home that is guessed: an engine's snapshot may still show our own
        // finished requests, which then look like another gateway's.
        let unseen = if self.credit_tokens > self.matched_tokens || self.is_cold(ask) {
            self.unseen
        } else {
            0.0
        };
        let wide = near + UNSEEN_TIE_PROMPT * unseen * sane(ask.prompt_tokens, 0.0);
        Reach { near, wide }
    }

    /// Whether most of the prompt has to be computed wherever it goes.
    fn is_cold(&self, ask: &Ask) -> bool {
        self.matched_tokens.max(self.credit_tokens) * 2.0 < ask.prompt_tokens
    }

    /// The cheapest; among near ties the one whose rendezvous weight is highest.
    fn winner(
        &self,
        ask: &Ask,
        candidates: &[Candidate],
        scores: &[Entry],
        reach: Reach,
    ) -> Option<(usize, Branch)> {
        let best = cheapest(scores);
        let full = if self.is_cold(ask) {
            self.cold.mean() * 1.5 + 1.0
        } else {
            f64::INFINITY
        };
        let mut winner: Option<(usize, Rank)> = None;
        let mut ties = 0_usize;
        for (at, (entry, candidate)) in scores.iter().zip(candidates).enumerate() {
            let is_free = candidate.signals.awaiting_first == 0;
            if entry.cost > best + if is_free { reach.wide } else { reach.near } {
                continue;
            }
            ties = ties.saturating_add(1);
            let has_room = sane(candidate.signals.cold_recent, f64::INFINITY) <= full;
            let rank = (has_room, rank(ask, candidate));
            if winner.is_none_or(|(_, highest)| rank > highest) {
                winner = Some((at, rank));
            }
        }
        let (at, _) = winner?;
        let matched = scores.get(at)?.matched_tokens;
        let branch = if at == self.home && matched > 0.0 && matched == self.credit_tokens {
            Branch::Home
        } else if matched > 0.0 {
            Branch::Prefix
        } else if ties > 1 {
            Branch::Tie
        } else {
            Branch::Load
        };
        Some((at, branch))
    }
}

/// How far from the cheapest a candidate is as good: anywhere, and where hardly anything waits.
#[derive(Clone, Copy, Default)]
struct Reach {
    near: f64,
    wide: f64,
}

fn cheapest(scores: &[Entry]) -> f64 {
    scores
        .iter()
        .map(|entry| entry.cost)
        .fold(f64::INFINITY, f64::min)
}

/// Among those predicted to meet the aim, the most cached, then the cheapest.
fn most_cached_in_time(scores: &[Entry], aim: Duration) -> Option<usize> {
    let aim_ms = aim.as_secs_f64() * 1e3;
    let mut best: Option<(usize, &Entry)> = None;
    for (at, entry) in scores.iter().enumerate() {
        if entry.ttft_ms.is_none_or(|ttft| ttft > aim_ms) {
            continue;
        }
        let better = best.is_none_or(|(_, best)| {
            (entry.matched_tokens, -entry.cost) > (best.matched_tokens, -best.cost)
        });
        if better {
            best = Some((at, entry));
        }
    }
    best.map(|(at, _)| at)
}

fn adapter_tokens(adapter: Adapter) -> f64 {
    let fit = match adapter {
        Adapter::Active => 1.0,
        Adapter::Unknown | Adapter::Room => 0.8,
        Adapter::Waiting => 0.6,
        Adapter::Full => 0.0,
    };
    (1.0 - fit) * ADAPTER_TOKENS
}

/// Room for cold prompts first, then the rendezvous weight and the name.
type Rank = (bool, (u64, u64));

/// The rendezvous rank; the name decides between equal weights.
fn rank(ask: &Ask, candidate: &Candidate) -> (u64, u64) {
    (
        rendezvous::weight(ask.conversation, candidate.name_hash),
        candidate.name_hash,
    )
}

fn known(x: Option<f64>) -> Option<f64> {
    x.filter(|x| *x >= 0.0 && *x < f64::INFINITY)
}

/// Waiting requests that are not ours.
fn others(waiting: Option<f64>, own: u32) -> Option<f64> {
    known(waiting).map(|waiting| (waiting - f64::from(own)).max(0.0))
}

/// A weighted mean, built up value by value.
#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, x: f64, weight: f64) {
        self.sum += x * weight;
        self.weight += weight;
    }

    /// The mean; 0 without values.
    fn mean(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }

    /// `x` as far as it is fresh, the mean for the rest.
    fn blend(&self, x: Option<f64>, fresh: f64) -> f64 {
        let mean = self.mean();
        x.map_or(mean, |x| mean + (x - mean) * fresh)
    }
}
