//! The choice among endpoints: pure, from what is known at this moment.
//!
//! ```text
//! Standing  -> filter  who may be picked at all
//! Candidate -> cost | weighted  one figure each
//!           -> winner (near ties by rendezvous) and fallbacks -> Ranked, Branch
//! ```
//!
//! Identifiers
//! - candidate: an endpoint that passed the filter, with what is known of it;
//! - cost: uncached prompt tokens that the endpoint has to compute before this request's first token,
//!   with everything else that delays it converted to such tokens; lower is better;
//! - home: the endpoint with the highest rendezvous hash of the conversation: the same for all
//!   workers and replicas.
//!
//! Invariants
//! - the order of candidates does not matter (except for exact ties of the weighted profile);
//! - a signal that is unknown, stale or no number counts as the mean of the others, never as idle;
//! - nothing here allocates once a [`Ranked`] has seen as many candidates.
//!
//! Cost: O(candidates), four passes of plain arithmetic.

mod cost;
pub mod filter;
pub mod rendezvous;
mod weighted;

use crate::config::{PickOptions, Profile};
use crate::endpoints::Slot;

/// Endpoints in a ranking at most: the pick and 8 fallbacks.
pub const MAX_RANKED: usize = 9;

/// What the request brings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ask {
    /// Tokens of the whole prompt, estimated.
    pub prompt_tokens: f64,
    /// Tokens before the newest turn: what an earlier request of the conversation may have left in a cache.
    pub head_tokens: f64,
    /// Conversation or session key.
    pub conversation: u64,
    /// An earlier request of the conversation (or session) was served somewhere.
    pub later_turn: bool,
    /// The endpoint that a strict session is bound to.
    pub sticky: Option<Slot>,
    /// Uncached tokens of a usual request of this pool; 0 = not learned yet.
    pub mean_miss_tokens: f64,
    /// Turns that usually follow one.
    pub turns_to_come: f64,
    /// How far the homes of conversations that nobody here knows are worth following (0..=1).
    pub home_worth: f64,
    /// Share of the pool's requests that others send (0..=1), as seen so far.
    pub unseen: f64,
}

/// An eligible endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its place in the pool's tables.
    pub slot: Slot,
    /// Hash of its address: its identity in rendezvous hashing, the same in every worker.
    pub name_hash: u64,
    /// Prompt tokens that its cache probably holds, contiguous from the head.
    pub matched_tokens: f64,
    /// Requests that other replicas have probably sent there and not told of yet.
    pub unheard: f64,
    /// How it feels.
    pub signals: Signals,
}

/// What is known of an endpoint's load. Engines' figures are `None` where the engine told none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Requests waiting in the engine, of everybody, in the snapshot.
    pub waiting: Option<f64>,
    /// Requests that the engine computes, of everybody, in the snapshot.
    pub running: Option<f64>,
    /// KV cache in use (0..=1), in the snapshot.
    pub kv_use: Option<f64>,
    /// Weight of the snapshot: 1 just taken, 0 too old to count.
    pub freshness: f64,
    /// Of [`Self::waiting`], what this gateway had sent without a first token when the snapshot was taken.
    pub waiting_own: u32,
    /// Of [`Self::running`] and [`Self::waiting`], what this gateway had in flight then.
    pub inflight_own: u32,
    /// Requests of this gateway in flight (all workers, as far as known).
    pub inflight: u32,
    /// Uncached tokens this gateway sent that gave no first token yet, less what is surely computed.
    pub prefill_tokens: f64,
    /// Tokens that the engine computes for others, beyond [`Self::prefill_tokens`], by its own counters.
    pub unseen_tokens: f64,
    /// Tokens ahead at a usual decision.
    pub usual_backlog_tokens: f64,
    /// Requests behind [`Self::prefill_tokens`].
    pub awaiting_first: u32,
    /// Requests of this gateway past their first token.
    pub streams: u32,
    /// Recent share of failures (0..=1).
    pub failure: f64,
    /// The request's adapter there.
    pub adapter: Adapter,
    /// Learned share of a local miss that an outer KV tier answers (0..=1).
    pub outer_hit_share: f64,
    /// Decaying count of cold prompts sent there.
    pub cold_recent: f64,
    /// Learned prefill rate, tokens per millisecond.
    pub prefill_tokens_per_ms: Option<f64>,
    /// Learned delay beyond computing, milliseconds.
    pub queue_ms: f64,
}

/// Where the request's LoRA adapter stands at an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adapter {
    /// No adapter asked for, or the engine does not tell.
    #[default]
    Unknown,
    /// Loaded and running.
    Active,
    /// Not loaded; there is a free place.
    Room,
    /// Others wait for it there already.
    Waiting,
    /// Not loaded, no free place.
    Full,
}

/// Why the winner won. The name is the label of the decisions metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Branch {
    /// The only candidate.
    Only,
    /// A strict session's endpoint.
    Session,
    /// Follows a cached prefix.
    Prefix,
    /// The conversation's home, on the prior alone.
    Home,
    /// The home among near ties.
    Tie,
    /// The least work ahead.
    Load,
    /// The most cache among those that meet the aim for the first token.
    Slo,
    /// The weighted sum.
    Weighted,
}

impl Branch {
    /// All branches, in the order of their counters.
    pub const ALL: [Self; 8] = [
        Self::Only,
        Self::Session,
        Self::Prefix,
        Self::Home,
        Self::Tie,
        Self::Load,
        Self::Slo,
        Self::Weighted,
    ];

    /// The branch as metrics, logs and the documentation spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Session => "session",
            Self::Prefix => "prefix",
            Self::Home => "home",
            Self::Tie => "tie",
            Self::Load => "load",
            Self::Slo => "slo",
            Self::Weighted => "weighted",
        }
    }
}

/// One endpoint of a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Who.
    pub slot: Slot,
    /// Cost in tokens; of the weighted profile: minus the score.
    pub cost: f64,
    /// Prompt tokens that its cache is believed to hold (the prior's credit is in).
    pub matched_tokens: f64,
    /// Predicted time to the first token; `None` while the endpoint's rate is unknown.
    pub ttft_ms: Option<f64>,
}

impl Entry {
    const EMPTY: Self = Self {
        slot: Slot(0),
        cost: 0.0,
        matched_tokens: 0.0,
        ttft_ms: None,
    };
}

/// The ranking of one pick; kept and reused.
#[derive(Clone, Debug)]
pub struct Ranked {
    entries: [Entry; MAX_RANKED],
    len: usize,
    limit: usize,
    cold: bool,
    home: Option<usize>,
    told: Option<(f64, f64)>,
    /// One entry a candidate, in the candidates' order.
    scores: Vec<Entry>,
    terms: Vec<cost::Terms>,
}

impl Ranked {
    /// A ranking of the winner and up to `fallbacks` others (8 at most).
    #[must_use]
    pub fn new(fallbacks: u8) -> Self {
        let limit = usize::from(fallbacks).saturating_add(1).min(MAX_RANKED);
        Self {
            entries: [Entry::EMPTY; MAX_RANKED],
            len: 0,
            limit,
            cold: false,
            home: None,
            told: None,
            scores: Vec::new(),
            terms: Vec::new(),
        }
    }

    /// The winner, then the fallbacks, cheapest first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        self.entries.get(..self.len).unwrap_or_default()
    }

    /// The winner.
    #[must_use]
    pub fn winner(&self) -> Option<&Entry> {
        self.entries().first()
    }

    /// Whether the winner has to compute more than half of the prompt: such prompts count in
    /// [`Signals::cold_recent`].
    #[must_use]
    pub fn cold(&self) -> bool {
        self.cold
    }

    /// The home's index among the candidates; profile `cost` only.
    #[must_use]
    pub fn home(&self) -> Option<usize> {
        self.home
    }

    /// Requests that engines told of, and those of them that were ours; profile `cost` only.
    #[must_use]
    pub fn told(&self) -> Option<(f64, f64)> {
        self.told
    }

    fn clear(&mut self) {
        self.len = 0;
        self.cold = false;
        self.home = None;
        self.told = None;
        self.scores.clear();
    }

    /// Ranks `scores`: the one at `winner` first, the others by cost, then slot.
    fn fill(&mut self, winner: usize, prompt_tokens: f64) {
        let Some(first) = self.scores.get(winner).copied() else {
            return;
        };
        self.cold = first.matched_tokens * 2.0 < prompt_tokens;
        if let Some(place) = self.entries.first_mut() {
            *place = first;
        }
        self.len = 1;
        if self.limit == 1 {
            return;
        }
        for (at, entry) in self.scores.iter().enumerate() {
            if at != winner {
                insert(&mut self.entries, &mut self.len, self.limit, entry);
            }
        }
    }
}

impl Default for Ranked {
    fn default() -> Self {
        Self::new(0)
    }
}

/// Puts `entry` in its place after the winner; drops the last when the list is full.
#[inline(always)]
fn insert(entries: &mut [Entry; MAX_RANKED], len: &mut usize, limit: usize, entry: &Entry) {
    let before = |a: &Entry, b: &Entry| a.cost < b.cost || (a.cost == b.cost && a.slot < b.slot);
    let Some(others) = entries.get_mut(1..limit) else {
        return;
    };
    let used = len.saturating_sub(1).min(others.len());
    let is_full = used == others.len();
    if is_full && others.last().is_none_or(|last| !before(entry, last)) {
        return;
    }
    let at = others
        .iter()
        .take(used)
        .position(|e| before(entry, e))
        .unwrap_or(used);
    if let Some(tail) = others.get_mut(at..(used.saturating_add(1)).min(limit.saturating_sub(1))) {
        tail.rotate_right(1);
        if let Some(place) = tail.first_mut() {
            *place = *entry;
        }
    }
    if !is_full {
        *len = len.saturating_add(1);
    }
}

/// Picks among `candidates` and leaves the ranking in `ranked`. `None`: nobody to pick, or the
/// weighted profile has not one signal to go by.
pub fn pick(
    ask: &Ask,
    candidates: &[Candidate],
    options: &PickOptions,
    rng: &mut fastrand::Rng,
    ranked: &mut Ranked,
) -> Option<Branch> {
    ranked.clear();
    let (winner, branch) = match &options.profile {
        Profile::Cost => cost::choose(ask, candidates, options, ranked)?,
        Profile::Weighted(weights) => {
            weighted::choose(ask, candidates, weights, rng, &mut ranked.scores)?
        }
    };
    let sticky = ask
        .sticky
        .and_then(|slot| candidates.iter().position(|c| c.slot == slot));
    let (winner, branch) = match sticky {
        Some(at) => (at, Branch::Session),
        None if candidates.len() == 1 => (0, Branch::Only),
        None => (winner, branch),
    };
    ranked.fill(winner, ask.prompt_tokens);
    Some(branch)
}

/// The smaller of two numbers: cheaper in wasm than `f64::min`, which has a rule for what is no number.
fn smaller(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// The larger of two numbers.
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// Whether `x` is a finite number of at least 0. Two comparisons: asked against infinity the compiler takes the number
/// apart, at thirty instructions in wasm.
fn is_sane(x: f64) -> bool {
    (0.0..=f64::MAX).contains(&x)
}

/// `x` where it is a finite number of at least 0, else `otherwise`.
fn sane(x: f64, otherwise: f64) -> f64 {
    if is_sane(x) { x } else { otherwise }
}
