//! The cost of an endpoint: the work before this request's first token, in uncached prompt tokens.
//!
//! ```text
//! cost = (backlog + unheard + miss x (1 + scarcity)) x pace + stay + wait + decode + kv + adapter + failure
//! ```
//!
//! - backlog: uncached tokens ahead of us. Our own are counted exactly; others' are what the engine is
//!   computing beyond ours, by its own counters, with what may wait behind it, and their waiting requests times the
//!   usual miss.
//! - unheard: what other replicas may have sent there and not told of yet, at the usual miss; no part of a prediction.
//! - miss: prompt tokens less those matched, cheaper where an outer KV tier answers.
//! - scarcity: while every endpoint has requests waiting, a token computed twice delays all behind
//!   it, so following a cache is worth more than this request's own gain. Greedy choices without
//!   it copy hot prefixes until the pool is overloaded; with one endpoint idle it is nearly 0.
//! - stay: a conversation's later turns go where its first one went, and wait there as requests usually
//!   do. Of a first turn's match only what exceeds that is worth following; so shared prefixes are
//!   copied to where there is room, before queues say so.
//! - pace: how slow the endpoint's prefill is, against the mean.
//! - the rest is small, monotone, and decides only where work does not.
//!
//! Between near ties [`tie`] decides. Whoever counts the tokens that wait spreads a burst, whoever counts requests or
//! normalises one snapshot sends it to one place.

mod terms;
mod tie;

use core::time::Duration;

use super::{Adapter, Ask, Branch, Candidate, Entry, Ranked, larger, sane, smaller};
pub(super) use terms::Terms;
use terms::{Mean, blend, known};
use tie::{Reach, rank};

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
/// What a wait of a later turn counts, against one now: it delays all turns behind it as well.
const STAY: f64 = 4.0;
/// Below this many requests an endpoint counts as idle in the harmonic mean.
const IDLE_REQUESTS: f64 = 0.3;
/// Share of requests by others up to which they are none: engines' words lag behind our counts.
const UNSEEN_NONE: f64 = 0.1;
/// Share of requests by others from which an unknown conversation is surely theirs.
const UNSEEN_SURE: f64 = 0.2;
/// Share of requests by others from which an unknown conversation's home is credited in full.
const UNSEEN_ALL: f64 = 0.8;
/// What an engine began for others, as a factor: more of theirs may wait behind it.
const UNSEEN_BEHIND: f64 = 1.5;
/// A cost that nothing exceeds, for figures that are no numbers.
const WORST: f64 = 1e15;

/// Costs of all candidates into `scores`, and the winner.
pub(super) fn choose(
    ask: &Ask,
    candidates: &[Candidate],
    options: &PickOptions,
    ranked: &mut Ranked,
) -> Option<(usize, Branch)> {
    let Ranked { terms, scores, .. } = ranked;
    let pool = Pool::of(ask, candidates, options, terms);
    ranked.home = Some(pool.home);
    ranked.told = pool.told;
    let mut total = 0.0;
    let mut count = 0.0;
    let mut failures = false;
    for (at, (candidate, terms)) in candidates.iter().zip(terms.iter()).enumerate() {
        let entry = pool.entry(candidate, terms, at == pool.home);
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
    let best = cheapest(scores);
    let predicted = || scores.iter().any(|entry| entry.ttft_ms.is_some());
    let reach = match options.slo_ttft.filter(|_| predicted()) {
        None => pool.reach(ask, options, best),
        Some(aim) => match most_cached_in_time(scores, aim) {
            Some(at) => return Some((at, Branch::Slo)),
            // Where nobody is in time, no tie may make it later still.
            None => Reach::default(),
        },
    };
    pool.winner(ask, candidates, scores, best, reach)
}

/// What the candidates have in common.
struct Pool {
    waiting: f64,
    running: f64,
    kv_use: f64,
    /// Milliseconds a token, where learned.
    pace: f64,
    cold: f64,
    /// Tokens of the whole prompt.
    prompt_tokens: f64,
    /// Uncached tokens of a usual request.
    miss_tokens: f64,
    /// What a computed token costs those behind it.
    scarcity: f64,
    /// Requests that engines told of, and of them ours.
    told: Option<(f64, f64)>,
    /// How sure it is that others send requests, 0 to 1.
    unseen: f64,
    /// Longest match.
    matched_tokens: f64,
    min_match_tokens: f64,
    /// The home's index.
    home: usize,
    /// Waits that a first turn chooses for those after it.
    waits_to_come: f64,
    /// What the home is credited with while nobody is known to hold more.
    credit_tokens: f64,
}

impl Pool {
    /// Before any candidate was looked at.
    fn new(ask: &Ask, options: &PickOptions) -> Self {
        Self {
            waiting: 0.0,
            running: 0.0,
            kv_use: 0.0,
            pace: 0.0,
            cold: 0.0,
            prompt_tokens: sane(ask.prompt_tokens, 0.0),
            miss_tokens: sane(ask.mean_miss_tokens, 0.0),
            matched_tokens: 0.0,
            scarcity: 0.0,
            told: None,
            unseen: ((sane(ask.unseen, 0.0) - UNSEEN_NONE) / (UNSEEN_SURE - UNSEEN_NONE))
                .clamp(0.0, 1.0),
            min_match_tokens: f64::from(options.min_match_tokens),
            home: 0,
            waits_to_come: if ask.later_turn {
                0.0
            } else {
                STAY * sane(ask.turns_to_come, 0.0)
            },
            credit_tokens: 0.0,
        }
    }

    fn of(
        ask: &Ask,
        candidates: &[Candidate],
        options: &PickOptions,
        terms: &mut Vec<Terms>,
    ) -> Self {
        let mut pool = Self::new(ask, options);
        let [mut waiting, mut running, mut kv_use, mut pace] = [Mean::default(); 4];
        let [mut cold, mut idleness] = [Mean::default(); 2];
        let mut highest = None;
        let (mut prefill, mut awaiting, mut all, mut ours) = (0.0, 0.0, 0.0, 0.0);
        terms.clear();
        for (at, candidate) in candidates.iter().enumerate() {
            let signals = &candidate.signals;
            let term = Terms::of(ask, candidate, pool.min_match_tokens);
            terms.push(term);
            let weight = term.fresh;
            let mut queue = f64::from(signals.awaiting_first) + IDLE_REQUESTS;
            if !term.waiting.is_nan() {
                waiting.add(term.waiting, weight);
                queue += weight * term.waiting;
            }
            if !term.running.is_nan() {
                running.add(term.running, weight);
                let waiting = known(signals.waiting).unwrap_or(0.0);
                all += weight * (term.running + waiting);
                ours += weight * f64::from(signals.inflight_own);
            }
            if !term.kv_use.is_nan() {
                kv_use.add(term.kv_use, weight);
            }
            if !term.ms_per_token.is_nan() {
                pace.add(term.ms_per_token, 1.0);
            }
            cold.add(sane(signals.cold_recent, 0.0), 1.0);
            if ask.mean_miss_tokens > 0.0 {
                queue += smaller(term.unseen_tokens / ask.mean_miss_tokens, 1.0);
            }
            idleness.add(1.0 / queue, 1.0);
            prefill += sane(signals.prefill_tokens, 0.0);
            awaiting += f64::from(signals.awaiting_first);
            pool.matched_tokens = larger(pool.matched_tokens, term.matched_tokens);
            let rank = rank(ask, candidate);
            if highest.is_none_or(|highest| rank > highest) {
                highest = Some(rank);
                pool.home = at;
            }
        }
        // The harmonic mean: one idle endpoint is enough for capacity not to be scarce.
        let queue = 1.0 / idleness.mean() - IDLE_REQUESTS;
        pool.scarcity = (SCARCITY * sane(queue, 0.0)).min(SCARCITY_LIMIT);
        if pool.miss_tokens == 0.0 {
            pool.miss_tokens = if awaiting > 0.0 {
                prefill / awaiting
            } else {
                pool.prompt_tokens
            };
        }
        (pool.waiting, pool.running) = (waiting.mean(), running.mean());
        (pool.kv_use, pool.pace, pool.cold) = (kv_use.mean(), pace.mean(), cold.mean());
        pool.told = running.is_known().then_some((all, ours));
        pool.credit_tokens = pool.credit(ask, options);
        pool
    }

    /// What a later turn's home is credited with: what this gateway sent itself the index knows the place
    /// of, the prior is for the rest.
    fn credit(&self, ask: &Ask, options: &PickOptions) -> f64 {
        if !ask.later_turn {
            return 0.0;
        }
        let theirs = smaller(sane(ask.unseen, 0.0) / UNSEEN_ALL, 1.0) * sane(ask.home_worth, 0.0);
        let credit = options.prior * theirs * sane(ask.head_tokens, 0.0);
        if credit > self.matched_tokens {
            credit.min(self.prompt_tokens)
        } else {
            0.0
        }
    }

    #[inline(always)]
    fn entry(&self, candidate: &Candidate, terms: &Terms, is_home: bool) -> Entry {
        let signals = &candidate.signals;
        let fresh = terms.fresh;
        let mut matched = terms.matched_tokens;
        if is_home {
            matched = larger(matched, self.credit_tokens);
        }
        let outer = smaller(sane(signals.outer_hit_share, 0.0), 1.0);
        let miss = larger(self.prompt_tokens - matched, 0.0) * (1.0 - OUTER_SAVES * outer);
        let waiting = blend(self.waiting, terms.waiting, fresh);
        let unseen = UNSEEN_BEHIND * terms.unseen_tokens + waiting * self.miss_tokens;
        let backlog = sane(signals.prefill_tokens, WORST) + unseen;
        let own = backlog + miss;
        // Whoever finds its prompt there comes anyway: only what it has to compute could be computed elsewhere.
        let cold = miss / larger(self.prompt_tokens, 1.0);
        let unheard = sane(candidate.unheard, 0.0) * self.miss_tokens * cold;
        let shared = own + unheard + miss * self.scarcity;
        let wait = f64::from(signals.awaiting_first) * REQUEST_TOKENS;
        let own_streams = f64::from(signals.streams);
        let streams = larger(blend(self.running, terms.running, fresh), own_streams);
        let kv_use = blend(self.kv_use, terms.kv_use, fresh);
        let kv = larger((kv_use - KV_TIGHT) / (1.0 - KV_TIGHT), 0.0) * KV_FULL_TOKENS;
        let waits = self.waits_to_come * sane(signals.usual_backlog_tokens, 0.0);
        let stay = smaller(waits, matched);
        let small = stay + wait + streams * STREAM_TOKENS + kv + adapter_tokens(signals.adapter);
        let ms = terms.ms_per_token;
        let is_learned = !ms.is_nan();
        let pace = if is_learned && self.pace > 0.0 {
            (ms / self.pace).clamp(1.0 / PACE_LIMIT, PACE_LIMIT)
        } else {
            1.0
        };
        Entry {
            slot: candidate.slot,
            cost: smaller(sane(shared * pace + small, WORST), WORST),
            matched_tokens: matched,
            ttft_ms: is_learned.then(|| own * ms + sane(signals.queue_ms, 0.0)),
        }
    }
}

fn cheapest(scores: &[Entry]) -> f64 {
    scores
        .iter()
        .map(|entry| entry.cost)
        .fold(f64::INFINITY, smaller)
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
