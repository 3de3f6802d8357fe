//! Replay: what a way of choosing endpoints is worth, on a trace or on generated traffic.
//!
//! ```text
//! workload -> requests -> simulate (event queue) <-> engine (cache, prefill, decodes)
//!                            |  ^
//!                            v  |  picks and what a gateway gets to see
//!                         Gateway: rules of the field | the built plugin | (oracle: sees all)
//! ```
//!
//! Time is simulated, in milliseconds. A run depends on nothing but its options and its seed.

pub mod block_cache;
pub mod body;
pub mod book;
pub mod engine;
pub mod plugin;
pub mod report;
pub mod rules;
pub mod simulate;
pub mod store;
pub mod workload;

use engine::Metrics;

/// Tokens of a block: the trace's, and the engines'.
pub const BLOCK_TOKENS: u32 = 512;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Arrival.
    pub at_ms: f64,
    /// Prompt tokens.
    pub tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// One id a block of the prompt; equal ids from the start = equal prefix.
    pub blocks: Vec<u64>,
    /// Conversation it belongs to, as a gateway reads it off the prompt.
    pub conversation: u64,
    /// Whether the prompt holds an earlier answer.
    pub later_turn: bool,
    /// Tokens before the newest turn.
    pub head_tokens: u32,
    /// Blocks before each turn, the first number being those of the system prompt; empty = every block is a
    /// message: the system prompt, then user and assistant in turn.
    pub turns: Vec<usize>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer is whole; it told how many prompt tokens were found in the cache.
    Done {
        /// Those.
        cached_tokens: u32,
    },
    /// 5xx or reset.
    Failed,
}

/// One worker of a gateway: told what a proxy is told, and asked for picks.
///
/// Engines are numbers from 0; a request is its place in the workload.
pub trait Gateway {
    /// Picks one of the engines that are `up`.
    fn pick(&mut self, now_ms: f64, request: usize, body: &Request, up: &[bool]) -> usize;
    /// Response headers went by: the engine works on it.
    fn accepted(&mut self, _now_ms: f64, _request: usize) {}
    /// The first body chunk of an answer went by.
    fn first_token(&mut self, now_ms: f64, request: usize);
    /// A request ended.
    fn end(&mut self, now_ms: f64, request: usize, end: End);
    /// The metrics of all engines were read; `None` = the engine is down.
    fn metrics(&mut self, now_ms: f64, metrics: &[Option<Metrics>]);
    /// An engine left, or came back as another process: what was known of it is void.
    fn left(&mut self, _engine: usize) {}
    /// Time passed.
    fn tick(&mut self, _now_ms: f64) {}
    /// What its decisions cost and promised.
    fn figures(&self) -> Figures {
        Figures::default()
    }
}

/// What a worker's decisions cost and promised, over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Prompt tokens that it expected in caches.
    pub predicted_tokens: f64,
    /// Decisions, and requests that it left to the gateway.
    pub decisions: u64,
    /// See [`Self::decisions`].
    pub fallbacks: u64,
    /// Wasm instructions from a request's first callback to its decision, over all decisions.
    pub instructions: u64,
    /// Of the dearest decision.
    pub instructions_max: u64,
    /// Wasm instructions of everything: decisions, responses, ticks.
    pub instructions_all: u64,
}

impl Figures {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            predicted_tokens: self.predicted_tokens + other.predicted_tokens,
            decisions: self.decisions + other.decisions,
            fallbacks: self.fallbacks + other.fallbacks,
            instructions: self.instructions + other.instructions,
            instructions_max: self.instructions_max.max(other.instructions_max),
            instructions_all: self.instructions_all + other.instructions_all,
        }
    }
}
