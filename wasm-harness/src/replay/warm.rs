//! warmroute itself as a [`Gateway`]: the plugin's own choice, on a worker's book.

use warmroute::clock::Millis;
use warmroute::config::PickOptions;
use warmroute::endpoints::Slot;
use warmroute::endpoints::cooldown::Cooldown;
use warmroute::pick::{Ask, Candidate, Ranked, Signals, pick, rendezvous};

use super::book::{Book, Page};
use super::engine::Metrics;
use super::{End, Gateway, Request};

/// Age at which metrics count for nothing.
const STALE_MS: f64 = 30_000.0;
/// Smoothing of the usual miss.
const MISS_ALPHA: f64 = 0.02;

/// One worker.
pub struct Warm {
    book: Book,
    options: PickOptions,
    cooldowns: Vec<Cooldown>,
    engine_of: std::collections::HashMap<usize, usize>,
    rng: fastrand::Rng,
    ranked: Ranked,
    candidates: Vec<Candidate>,
    miss_tokens: f64,
}

impl Warm {
    /// A worker that chooses by `options`.
    #[must_use]
    pub fn new(options: PickOptions, index_blocks: usize, seed: u64) -> Self {
        Self {
            book: Book::new(index_blocks),
            options,
            cooldowns: Vec::new(),
            engine_of: std::collections::HashMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            ranked: Ranked::new(0),
            candidates: Vec::new(),
            miss_tokens: 0.0,
        }
    }
}

fn candidate(engine: usize, page: &Page, now_ms: f64, body: &Request) -> Candidate {
    let (metrics, at_ms, waiting_own) = match page.metrics {
        Some((metrics, at_ms, own)) => (Some(metrics), at_ms, own),
        None => (None, now_ms, 0),
    };
    Candidate {
        slot: Slot(engine as u16),
        name_hash: rendezvous::weight(engine as u64 + 1, 0x6a09_e667_f3bc_c908),
        matched_tokens: page.matched_tokens(body),
        signals: Signals {
            waiting: metrics.map(|m| m.waiting as f64),
            running: metrics.map(|m| m.running as f64),
            kv_use: metrics.map(|m| m.kv_use),
            freshness: (1.0 - (now_ms - at_ms) / STALE_MS).max(0.0),
            waiting_own,
            inflight: page.inflight(),
            prefill_tokens: page.remaining_tokens(now_ms),
            awaiting_first: page.awaiting(),
            streams: page.streams,
            failure: page.failure(now_ms),
            cold_recent: page.cold_recent(now_ms),
            prefill_tokens_per_ms: page.rate(),
            ..Signals::default()
        },
    }
}

impl Gateway for Warm {
    fn pick(&mut self, now_ms: f64, request: usize, body: &Request, up: &[bool]) -> usize {
        self.book.grow(up.len());
        self.cooldowns.resize(up.len(), Cooldown::default());
        let now = Millis(now_ms as u64);
        let ask = Ask {
            prompt_tokens: f64::from(body.tokens),
            head_tokens: f64::from(body.head_tokens),
            conversation: body.conversation,
            later_turn: body.later_turn,
            sticky: None,
            mean_miss_tokens: self.miss_tokens,
        };
        self.candidates.clear();
        for engine in (0..up.len()).filter(|engine| up[*engine]) {
            if self.cooldowns[engine]
                .until()
                .is_none_or(|until| now >= until)
            {
                self.candidates
                    .push(candidate(engine, self.book.page(engine), now_ms, body));
            }
        }
        let branch = pick(
            &ask,
            &self.candidates,
            &self.options,
            &mut self.rng,
            &mut self.ranked,
        );
        let picked = branch.and_then(|_| self.ranked.winner());
        let engine = picked.map_or_else(
            || up.iter().position(|up| *up).unwrap_or(0),
            |entry| usize::from(entry.slot.0),
        );
        self.cooldowns[engine].picked(now, &self.options);
        let miss = f64::from(body.tokens) - self.book.page(engine).matched_tokens(body);
        self.miss_tokens += if self.miss_tokens == 0.0 {
            1.0
        } else {
            MISS_ALPHA
        } * (miss - self.miss_tokens);
        self.engine_of.insert(request, engine);
        self.book.sent(now_ms, request, body, engine);
        engine
    }

    fn first_token(&mut self, now_ms: f64, request: usize) {
        self.book.first_token(now_ms, request);
    }

    fn end(&mut self, now_ms: f64, request: usize, end: End) {
        self.book.end(now_ms, request, end);
        if let Some(engine) = self.engine_of.remove(&request) {
            let cooldown = &mut self.cooldowns[engine];
            match end {
                End::Done => cooldown.succeeded(),
                End::Failed => cooldown.failed(Millis(now_ms as u64), &self.options),
            }
        }
    }

    fn metrics(&mut self, now_ms: f64, metrics: &[Option<Metrics>]) {
        self.book.metrics(now_ms, metrics);
    }

    fn left(&mut self, engine: usize) {
        self.book.left(engine);
    }
}
