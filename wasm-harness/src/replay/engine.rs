//! One modelled engine: a block cache, one prefill at a time, decodes beside it.
//!
//! A request waits for the prefill before it and for a place in the batch. What it finds in the
//! cache is decided when its prefill starts; what it leaves there counts from its end. Decodes slow
//! a prefill by a set factor. The first token comes at the prefill's end.

use std::collections::{HashSet, VecDeque};

use super::block_cache::BlockCache;
use super::{BLOCK_TOKENS, Request};

/// How engines are built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineOptions {
    /// Blocks the cache holds.
    pub cache_blocks: usize,
    /// Prefill rate of an engine that decodes nothing, tokens a millisecond.
    pub prefill_tokens_per_ms: f64,
    /// Requests computed at once, the one in prefill included.
    pub batch: usize,
    /// How much longer a prefill takes beside [`Self::slow_at`] decodes or more (1 = twice as long).
    pub decode_slows: f64,
    /// Decodes that slow in full.
    pub slow_at: usize,
    /// Time of one output token.
    pub ms_per_output_token: f64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cache_blocks: 1500,
            prefill_tokens_per_ms: 10.0,
            batch: 64,
            decode_slows: 0.0,
            slow_at: 16,
            ms_per_output_token: 25.0,
        }
    }
}

/// What an engine tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Requests that wait for their prefill.
    pub waiting: usize,
    /// Requests in prefill or decode.
    pub running: usize,
    /// Share of the cache that running requests hold.
    pub kv_use: f64,
    /// Blocks that the cache holds at most.
    pub cache_blocks: usize,
    /// Prompt tokens looked up in the cache since the process began.
    pub queried_tokens: u64,
    /// Of those, found.
    pub hit_tokens: u64,
}

/// A prefill that goes on.
#[derive(Clone, Copy, Debug)]
struct Prefill {
    request: usize,
    ends_ms: f64,
}

/// A prefill that just began: when it ends, and how many prompt tokens were found in the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Started {
    /// Which request.
    pub request: usize,
    /// Its first token.
    pub ends_ms: f64,
    /// Found in the cache.
    pub hit_tokens: u32,
}

/// One engine.
#[derive(Clone, Debug)]
pub struct Engine {
    options: EngineOptions,
    cache: BlockCache,
    waiting: VecDeque<usize>,
    prefill: Option<Prefill>,
    decoding: HashSet<usize>,
    held_blocks: usize,
    queried_tokens: u64,
    hit_tokens: u64,
}

impl Engine {
    /// An idle, empty engine.
    #[must_use]
    pub fn new(options: EngineOptions) -> Self {
        Self {
            options,
            cache: BlockCache::new(options.cache_blocks),
            waiting: VecDeque::new(),
            prefill: None,
            decoding: HashSet::new(),
            held_blocks: 0,
            queried_tokens: 0,
            hit_tokens: 0,
        }
    }

    /// A request arrives.
    pub fn push(&mut self, request: usize) {
        self.waiting.push_back(request);
    }

    /// Starts the next prefill if there is one and it may.
    pub fn start(&mut self, now_ms: f64, requests: &[Request]) -> Option<Started> {
        if self.prefill.is_some() || self.decoding.len() + 1 > self.options.batch {
            return None;
        }
        let request = self.waiting.pop_front()?;
        let body = &requests[request];
        let miss = self.miss_tokens(body, &HashSet::new());
        let ends_ms = now_ms + f64::from(miss) / self.rate();
        self.prefill = Some(Prefill { request, ends_ms });
        self.held_blocks += body.blocks.len();
        self.queried_tokens += u64::from(body.tokens);
        self.hit_tokens += u64::from(body.tokens - miss);
        Some(Started {
            request,
            ends_ms,
            hit_tokens: body.tokens - miss,
        })
    }

    /// The prefill ended: its request decodes now.
    pub fn prefilled(&mut self, requests: &[Request]) {
        if let Some(prefill) = self.prefill.take() {
            let body = &requests[prefill.request];
            self.cache.record(whole_blocks(body));
            self.decoding.insert(prefill.request);
        }
    }

    /// An answer is whole.
    pub fn decoded(&mut self, request: usize, requests: &[Request]) {
        if self.decoding.remove(&request) {
            self.held_blocks -= requests[request].blocks.len();
        }
    }

    /// The process dies; returns what it was working on, in a fixed order.
    pub fn restart(&mut self) -> Vec<usize> {
        let mut lost: Vec<usize> = self.waiting.drain(..).collect();
        lost.extend(self.prefill.take().map(|prefill| prefill.request));
        lost.extend(self.decoding.drain());
        lost.sort_unstable();
        self.cache.clear();
        self.held_blocks = 0;
        self.queried_tokens = 0;
        self.hit_tokens = 0;
        lost
    }

    /// The cache is cleared, and nobody is told.
    pub fn clear_cache(&mut self) {
        self.cache.clear();
    }

    /// What the engine tells.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            waiting: self.waiting.len(),
            running: self.decoding.len() + usize::from(self.prefill.is_some()),
            kv_use: (self.held_blocks as f64 / self.options.cache_blocks as f64).min(1.0),
            cache_blocks: self.options.cache_blocks,
            queried_tokens: self.queried_tokens,
            hit_tokens: self.hit_tokens,
        }
    }

    /// Time until `body` would have its first token, if nothing else came: the truth, save for
    /// what the queue before it may evict.
    #[must_use]
    pub fn ttft_ms(&self, now_ms: f64, body: &Request, requests: &[Request]) -> f64 {
        let mut left_ms = 0.0;
        let mut tokens = 0;
        let mut coming = HashSet::new();
        if let Some(prefill) = &self.prefill {
            left_ms = (prefill.ends_ms - now_ms).max(0.0);
            coming.extend(whole_blocks(&requests[prefill.request]));
        }
        for request in &self.waiting {
            let before = &requests[*request];
            tokens += self.miss_tokens(before, &coming);
            coming.extend(whole_blocks(before));
        }
        tokens += self.miss_tokens(body, &coming);
        left_ms + f64::from(tokens) / self.rate()
    }

    /// Tokens to compute; at least one, as the last token is never taken from a cache.
    fn miss_tokens(&self, body: &Request, coming: &HashSet<u64>) -> u32 {
        let held = |block: &&u64| self.cache.holds(**block) || coming.contains(*block);
        let matched = whole_blocks(body).iter().take_while(held).count();
        (body.tokens - matched as u32 * BLOCK_TOKENS).max(1)
    }

    fn rate(&self) -> f64 {
        let share = (self.decoding.len() as f64 / self.options.slow_at as f64).min(1.0);
        self.options.prefill_tokens_per_ms / (1.0 + self.options.decode_slows * share)
    }
}

/// Blocks that the prompt fills: only these are cached.
fn whole_blocks(body: &Request) -> &[u64] {
    let whole = (body.tokens / BLOCK_TOKENS) as usize;
    &body.blocks[..whole.min(body.blocks.len())]
}
