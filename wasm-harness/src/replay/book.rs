//! What one worker knows of the engines: its own counts, a prefix index, the last metrics.
//!
//! All rules choose from the same book, each with exact own counts: they differ in nothing but
//! their rule.

use std::collections::{HashMap, VecDeque};

use super::block_cache::BlockCache;
use super::engine::Metrics;
use super::{BLOCK_TOKENS, End, Request};

/// Half-life of the count of cold prompts.
const COLD_HALF_LIFE_MS: f64 = 60_000.0;
/// Smoothing of learned rates.
const RATE_ALPHA: f64 = 0.2;
/// Smoothing of failures, and the time in which they are half forgotten.
const FAILURE_ALPHA: f64 = 0.3;
const FAILURE_HALF_LIFE_MS: f64 = 10_000.0;

/// A request sent without a first token yet.
#[derive(Clone, Copy, Debug)]
struct Sent {
    request: usize,
    miss_tokens: f64,
    at_ms: f64,
}

/// One engine's page.
#[derive(Clone, Debug)]
pub struct Page {
    index: BlockCache,
    queue: VecDeque<Sent>,
    /// Requests past their first token.
    pub streams: u32,
    /// Prompt tokens of all requests in flight.
    pub active_tokens: f64,
    /// Metrics, when they were read, and what was on its way without a first token then.
    pub metrics: Option<(Metrics, f64, u32)>,
    failure: f64,
    failure_ms: f64,
    last_first_ms: f64,
    rate: Option<f64>,
    cold: f64,
    cold_ms: f64,
}

impl Page {
    fn new(index_blocks: usize) -> Self {
        Self {
            index: BlockCache::new(index_blocks),
            queue: VecDeque::new(),
            streams: 0,
            active_tokens: 0.0,
            metrics: None,
            failure: 0.0,
            failure_ms: 0.0,
            last_first_ms: 0.0,
            rate: None,
            cold: 0.0,
            cold_ms: 0.0,
        }
    }

    /// Requests sent without a first token.
    #[must_use]
    pub fn awaiting(&self) -> u32 {
        self.queue.len() as u32
    }

    /// Requests in flight.
    #[must_use]
    pub fn inflight(&self) -> u32 {
        self.awaiting() + self.streams
    }

    /// Uncached tokens sent without a first token.
    #[must_use]
    pub fn backlog_tokens(&self) -> f64 {
        self.queue.iter().map(|sent| sent.miss_tokens).sum()
    }

    /// [`Self::backlog_tokens`], less what the engine has surely computed of the oldest by now.
    #[must_use]
    pub fn remaining_tokens(&self, now_ms: f64) -> f64 {
        let (Some(oldest), Some(rate)) = (self.queue.front(), self.rate) else {
            return self.backlog_tokens();
        };
        let since = now_ms - oldest.at_ms.max(self.last_first_ms);
        self.backlog_tokens() - (since.max(0.0) * rate).min(oldest.miss_tokens)
    }

    /// Learned prefill rate, tokens a millisecond.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Recent share of failures.
    #[must_use]
    pub fn failure(&self, now_ms: f64) -> f64 {
        self.failure * 0.5_f64.powf((now_ms - self.failure_ms) / FAILURE_HALF_LIFE_MS)
    }

    /// Decayed count of cold prompts.
    #[must_use]
    pub fn cold_recent(&self, now_ms: f64) -> f64 {
        self.cold * 0.5_f64.powf((now_ms - self.cold_ms) / COLD_HALF_LIFE_MS)
    }

    /// Tokens of `body` that the engine probably holds.
    #[must_use]
    pub fn matched_tokens(&self, body: &Request) -> f64 {
        let matched = self.index.matched(&body.blocks) as u32;
        f64::from((matched * BLOCK_TOKENS).min(body.tokens))
    }

    /// Blocks in the index.
    #[must_use]
    pub fn indexed_blocks(&self) -> usize {
        self.index.len()
    }
}

/// One worker's book.
#[derive(Clone, Debug)]
pub struct Book {
    index_blocks: usize,
    pages: Vec<Page>,
    placed: HashMap<usize, (usize, f64)>,
    /// Predicted hit tokens, over all requests.
    pub predicted_tokens: f64,
}

impl Book {
    /// An empty book whose index holds as many blocks an engine as the engine's cache.
    #[must_use]
    pub fn new(index_blocks: usize) -> Self {
        Self {
            index_blocks,
            pages: Vec::new(),
            placed: HashMap::new(),
            predicted_tokens: 0.0,
        }
    }

    /// Makes room for `engines`.
    pub fn grow(&mut self, engines: usize) {
        while self.pages.len() < engines {
            self.pages.push(Page::new(self.index_blocks));
        }
    }

    /// One engine's page.
    #[must_use]
    pub fn page(&self, engine: usize) -> &Page {
        &self.pages[engine]
    }

    /// A request was sent.
    pub fn sent(&mut self, now_ms: f64, request: usize, body: &Request, engine: usize) {
        let page = &mut self.pages[engine];
        let matched = page.matched_tokens(body);
        let tokens = f64::from(body.tokens);
        self.predicted_tokens += matched;
        let miss_tokens = (tokens - matched).max(1.0);
        page.queue.push_back(Sent {
            request,
            miss_tokens,
            at_ms: now_ms,
        });
        page.active_tokens += tokens;
        if matched * 2.0 < tokens {
            page.cold = page.cold_recent(now_ms) + 1.0;
            page.cold_ms = now_ms;
        }
        let whole = (body.tokens / BLOCK_TOKENS) as usize;
        page.index
            .record(&body.blocks[..whole.min(body.blocks.len())]);
        self.placed.insert(request, (engine, tokens));
    }

    /// A first token went by.
    pub fn first_token(&mut self, now_ms: f64, request: usize) {
        let Some((engine, _)) = self.placed.get(&request) else {
            return;
        };
        let page = &mut self.pages[*engine];
        let Some(at) = page.queue.iter().position(|sent| sent.request == request) else {
            return;
        };
        if let Some(sent) = page.queue.remove(at) {
            let took = now_ms - sent.at_ms.max(page.last_first_ms);
            // Short ones say more about the engine's step than about its rate.
            if took > 20.0 && sent.miss_tokens > 256.0 {
                let seen = sent.miss_tokens / took;
                page.rate = Some(
                    page.rate
                        .map_or(seen, |rate| rate + RATE_ALPHA * (seen - rate)),
                );
            }
            page.last_first_ms = now_ms;
            page.streams += 1;
        }
    }

    /// A request ended.
    pub fn end(&mut self, now_ms: f64, request: usize, end: End) {
        let Some((engine, tokens)) = self.placed.remove(&request) else {
            return;
        };
        let page = &mut self.pages[engine];
        page.active_tokens -= tokens;
        if let Some(at) = page.queue.iter().position(|sent| sent.request == request) {
            page.queue.remove(at);
        } else {
            page.streams -= 1;
        }
        let sample = if end == End::Failed { 1.0 } else { 0.0 };
        let failure = page.failure(now_ms);
        page.failure = failure + FAILURE_ALPHA * (sample - failure);
        page.failure_ms = now_ms;
    }

    /// Metrics were read.
    pub fn metrics(&mut self, now_ms: f64, metrics: &[Option<Metrics>]) {
        self.grow(metrics.len());
        for (page, metrics) in self.pages.iter_mut().zip(metrics) {
            let own = page.awaiting();
            page.metrics = metrics.map(|metrics| (metrics, now_ms, own));
        }
    }

    /// An engine's process is another one now.
    pub fn left(&mut self, engine: usize) {
        self.grow(engine + 1);
        let page = &mut self.pages[engine];
        page.index.clear();
        page.metrics = None;
    }
}
