//! The modelled engine: queue, prefill, batch, cache, counters and the log of requests.
//!
//! Invariants
//! - a request is counted in exactly one of waiting, running, finished, aborted;
//! - a request that is dropped at any await leaves no place, pin or count behind;
//! - no lock is held over an await but the prefill's own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::cache::BlockCache;
use super::metrics::Stats;
use super::prompt::Prompt;
use super::{SimCounts, SimOptions};

/// Where a hanging request stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HangAt {
    /// No response headers.
    Headers,
    /// Response headers, then no body.
    Body,
}

/// What is wrong with the engine on purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Answer this status to paths with this start.
    pub fail: Option<(u16, String)>,
    /// Never answer a model call.
    pub hang: Option<HangAt>,
    /// `/health` answers 503; model calls still work.
    pub draining: bool,
    /// Factor on every modelled duration.
    pub slow: f64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            fail: None,
            hang: None,
            draining: false,
            slow: 1.0,
        }
    }
}

/// One received request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Counts from 0 since the start or the last reset.
    pub seq: u64,
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// Headers in order, names in lower case, bytes outside UTF-8 replaced.
    pub headers: Vec<(String, String)>,
    /// Trailers likewise.
    pub trailers: Vec<(String, String)>,
    /// Length of the body, bytes.
    pub body_bytes: usize,
    /// [`crate::digest`] of the body.
    pub body_digest: String,
    /// Prompt tokens, 0 before its prefill and for other calls.
    pub prompt_tokens: usize,
    /// Those of them found in the cache.
    pub cached_tokens: usize,
}

impl LogEntry {
    /// First value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key == name)?;
        Some(value)
    }
}

struct State {
    cache: BlockCache,
    faults: Faults,
    stats: Stats,
    log: VecDeque<LogEntry>,
    next_seq: u64,
}

/// Shared by all connections of one simulator.
pub(crate) struct Engine {
    pub(crate) options: SimOptions,
    state: Mutex<State>,
    batch: Arc<Semaphore>,
    prefill: tokio::sync::Mutex<()>,
    /// Told when faults change: hanging requests look again.
    pub(crate) changed: tokio::sync::Notify,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(options: SimOptions) -> Self {
        Self {
            state: Mutex::new(State {
                cache: BlockCache::new(options.num_gpu_blocks),
                faults: Faults::default(),
                stats: Stats::default(),
                log: VecDeque::new(),
                next_seq: 0,
            }),
            batch: Arc::new(Semaphore::new(options.max_batch.max(1))),
            prefill: tokio::sync::Mutex::new(()),
            changed: tokio::sync::Notify::new(),
            options,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves counts at worst one off; the simulator goes on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear_cache(&self) {
        self.state().cache.clear();
    }

    pub(crate) fn reset(&self) {
        let mut state = self.state();
        state.cache.clear();
        state.faults = Faults::default();
        state.stats.reset();
        state.log.clear();
        state.next_seq = 0;
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
        self.changed.notify_waiters();
    }

    pub(crate) fn faults(&self) -> Faults {
        self.state().faults.clone()
    }

    pub(crate) fn log(&self) -> Vec<LogEntry> {
        self.state().log.iter().cloned().collect()
    }

    /// Adds an entry and returns its number.
    pub(crate) fn record(&self, mut entry: LogEntry) -> u64 {
        let mut state = self.state();
        let seq = state.next_seq;
        entry.seq = seq;
        state.next_seq += 1;
        state.log.push_back(entry);
        while state.log.len() > self.options.log_entries {
            state.log.pop_front();
        }
        seq
    }

    pub(crate) fn counts(&self) -> SimCounts {
        self.state().stats.counts
    }

    /// Notes a probe or whatever else touches the counters alone.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.state().stats);
    }

    /// The text of `/metrics`.
    pub(crate) fn metrics_text(&self) -> String {
        let state = self.state();
        super::metrics::render(&self.options, &state.stats, state.cache.usage())
    }

    /// `num_requests_waiting` and `kv_cache_usage_perc`, as the ORCA header has them.
    pub(crate) fn orca(&self) -> (usize, f64) {
        let state = self.state();
        (state.stats.counts.waiting, state.cache.usage())
    }

    /// Time to the next token of an answer.
    pub(crate) fn inter_token(&self) -> Duration {
        let factor = self.state().faults.slow;
        Duration::from_secs_f64((self.options.inter_token_ms / 1000.0 * factor).max(0.0))
    }

    /// Waits for a place, computes the prompt and returns at the first token.
    pub(crate) async fn compute(self: &Arc<Self>, seq: u64, prompt: Prompt) -> Running {
        let arrived = Instant::now();
        let waiting = Waiting::new(self);
        // Closed never happens: the semaphore lives as long as the engine.
        let place = Arc::clone(&self.batch).acquire_owned().await.ok();
        let prefill = self.prefill.lock().await;
        let mut running = waiting.start(place, prompt, arrived);
        let (cached, miss_time) = self.look_up(seq, &running.prompt);
        running.cached_tokens = cached;
        tokio::time::sleep(miss_time).await;
        {
            let mut state = self.state();
            running.pinned = state.cache.pin(&running.prompt.blocks);
        }
        drop(prefill);
        running.first_token = Some(Instant::now());
        running
    }

    fn look_up(&self, seq: u64, prompt: &Prompt) -> (usize, Duration) {
        let mut state = self.state();
        let block = self.options.block_tokens.max(1);
        let usable = prompt.tokens.saturating_sub(1) / block;
        let cached = state.cache.matched(&prompt.blocks).min(usable) * block;
        state.stats.counts.query_tokens += prompt.tokens as u64;
        state.stats.counts.hit_tokens += cached as u64;
        if let Some(entry) = state.log.iter_mut().rfind(|entry| entry.seq == seq) {
            entry.prompt_tokens = prompt.tokens;
            entry.cached_tokens = cached;
        }
        let miss = (prompt.tokens - cached) as f64;
        let seconds = miss / self.options.prefill_tokens_per_s.max(1.0) * state.faults.slow;
        (cached, Duration::from_secs_f64(seconds.max(0.0)))
    }
}

/// A request that has no place yet.
struct Waiting {
    engine: Arc<Engine>,
    started: bool,
}

impl Waiting {
    fn new(engine: &Arc<Engine>) -> Self {
        engine.note(|stats| stats.counts.waiting += 1);
        Self {
            engine: Arc::clone(engine),
            started: false,
        }
    }

    fn start(
        mut self,
        place: Option<OwnedSemaphorePermit>,
        prompt: Prompt,
        arrived: Instant,
    ) -> Running {
        self.started = true;
        self.engine.note(|stats| {
            stats.counts.waiting = stats.counts.waiting.saturating_sub(1);
            stats.counts.running += 1;
        });
        Running {
            engine: Arc::clone(&self.engine),
            prompt,
            pinned: 0,
            cached_tokens: 0,
            arrived,
            started: Instant::now(),
            first_token: None,
            finished: None,
            _place: place,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.started {
            self.engine.note(|stats| {
                stats.counts.waiting = stats.counts.waiting.saturating_sub(1);
                stats.counts.aborted += 1;
            });
        }
    }
}

/// A request in prefill or decode; dropping it frees its place.
pub(crate) struct Running {
    engine: Arc<Engine>,
    pub(crate) prompt: Prompt,
    pinned: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) arrived: Instant,
    pub(crate) started: Instant,
    pub(crate) first_token: Option<Instant>,
    finished: Option<usize>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Running {
    /// The answer went out whole, with this many tokens.
    pub(crate) fn finish(&mut self, output_tokens: usize) {
        self.finished = Some(output_tokens);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.engine.state();
        let held = self.prompt.blocks.get(..self.pinned).unwrap_or_default();
        state.cache.unpin(held);
        state.stats.leave(self, self.finished);
    }
}
