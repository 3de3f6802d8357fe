//! An engine simulator: an HTTP server that looks like a vLLM 0.32 process to a router.
//!
//! Cost model
//! - A request waits until one of `max_batch` places is free and no other prompt is in prefill.
//!   Both queues are first come, first served.
//! - Its prefill takes (prompt tokens - cached tokens) / `prefill_tokens_per_s`. Cached tokens are
//!   the full blocks held from the head of the prompt; the last token is always computed.
//! - Then comes the first token, and one more each `inter_token_ms` until `max_tokens`.
//! - `slow` multiplies both times. What a request generates takes no blocks.
//! - At most `num_gpu_blocks` blocks of `block_tokens` tokens are held; blocks of running requests
//!   stay, the rest leaves least recently used first.
//!
//! Calls: chat completions and completions (streamed or not), `/v1/models`, `/health`, `/metrics`,
//! websocket upgrades (accepted, then silent) and, under `/sim/`, the admin calls of [`server`].
//! A stream's response headers go out at once, its first body chunk with the first token.
//! A body with `content-encoding` is read as opaque bytes.
//!
//! Invariants: all state belongs to one [`EngineSim`]; dropping it closes every socket.

mod answer;
mod cache;
mod engine;
mod families;
mod histogram;
mod metrics;
mod prompt;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};

pub use engine::{Faults, HangAt, LogEntry};

/// Size and speed of one simulated engine.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct SimOptions {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value_t = SimOptions::default().listen)]
    pub listen: SocketAddr,
    /// Name of the served model.
    #[arg(long, default_value_t = SimOptions::default().model)]
    pub model: String,
    /// Tokens a block.
    #[arg(long, default_value_t = SimOptions::default().block_tokens)]
    pub block_tokens: usize,
    /// Blocks in the cache.
    #[arg(long, default_value_t = SimOptions::default().num_gpu_blocks)]
    pub num_gpu_blocks: usize,
    /// Prefill speed, tokens per second.
    #[arg(long, default_value_t = SimOptions::default().prefill_tokens_per_s)]
    pub prefill_tokens_per_s: f64,
    /// Time between two tokens of one answer, milliseconds.
    #[arg(long, default_value_t = SimOptions::default().inter_token_ms)]
    pub inter_token_ms: f64,
    /// Requests in prefill or decode at one time; more of them wait.
    #[arg(long, default_value_t = SimOptions::default().max_batch)]
    pub max_batch: usize,
    /// Length of an answer when the request names none, tokens.
    #[arg(long, default_value_t = SimOptions::default().default_output_tokens)]
    pub default_output_tokens: usize,
    /// Leave `prompt_tokens_details` out of `usage`, as vLLM does without
    /// `--enable-prompt-tokens-details`.
    #[arg(long)]
    pub hide_cached_tokens: bool,
    /// Requests that the log keeps; the oldest leave.
    #[arg(long, default_value_t = SimOptions::default().log_entries)]
    pub log_entries: usize,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            model: "sim".into(),
            block_tokens: 16,
            num_gpu_blocks: 4096,
            prefill_tokens_per_s: 8000.0,
            inter_token_ms: 20.0,
            max_batch: 64,
            default_output_tokens: 16,
            hide_cached_tokens: false,
            log_entries: 20_000,
        }
    }
}

/// Counts of one engine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SimCounts {
    /// Requests in prefill or decode.
    pub running: usize,
    /// Requests that wait for a place or for the prefill before them.
    pub waiting: usize,
    /// Prompt tokens looked up in the cache.
    pub query_tokens: u64,
    /// Prompt tokens found there.
    pub hit_tokens: u64,
    /// Answers given to the end.
    pub finished: u64,
    /// Requests whose client went away first.
    pub aborted: u64,
    /// Reads of `/metrics`.
    pub scrapes: u64,
    /// Reads of `/health`.
    pub health_checks: u64,
}

/// A running simulator.
#[derive(Debug)]
pub struct EngineSim {
    /// Where it listens.
    pub addr: SocketAddr,
    engine: Arc<engine::Engine>,
    accept: tokio::task::JoinHandle<()>,
}

impl EngineSim {
    /// Binds and serves until dropped.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(options: SimOptions) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("engine-sim cannot listen on {}", options.listen))?;
        let addr = listener.local_addr()?;
        let engine = Arc::new(engine::Engine::new(options));
        let accept = tokio::spawn(server::accept(listener, Arc::clone(&engine)));
        Ok(Self {
            addr,
            engine,
            accept,
        })
    }

    /// Forgets all cached blocks.
    pub fn clear_cache(&self) {
        self.engine.clear_cache();
    }

    /// Everything as after the start: cache, counters, log, faults.
    pub fn reset(&self) {
        self.engine.reset();
    }

    /// Replaces the faults in force.
    pub fn set_faults(&self, faults: Faults) {
        self.engine.set_faults(faults);
    }

    /// The requests received so far, oldest first. Probes (`/metrics`, `/health`, `/sim/`) are
    /// not among them.
    pub fn log(&self) -> Vec<LogEntry> {
        self.engine.log()
    }

    /// What the engine counts.
    pub fn counts(&self) -> SimCounts {
        self.engine.counts()
    }

    /// Waits until somebody stops it; it does not stop by itself.
    pub async fn run(mut self) {
        // A cancelled accept loop is the end as well.
        let _ = (&mut self.accept).await;
    }
}

impl Drop for EngineSim {
    fn drop(&mut self) {
        // Connections are tasks of the accept loop's set and end with it.
        self.accept.abort();
    }
}
