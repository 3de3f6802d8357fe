//! What an engine says about itself: the figures of one metrics text, and health as the gateway sees it.
//!
//! Every figure is optional. Absent means unknown and is never read as 0: an engine that does not
//! publish its queue is not an idle one.

use xxhash_rust::xxh3::xxh3_64;

/// Names kept of one adapter list; an engine with more keeps its first ones.
pub const MAX_ADAPTERS: usize = 64;

/// The program behind an endpoint, told by the names of its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Engine {
    /// vLLM, all versions.
    Vllm = 1,
    /// SGLang.
    Sglang = 2,
    /// TensorRT-LLM's own server.
    TrtllmServe = 3,
    /// TensorRT-LLM behind Triton.
    TritonTrtllm = 4,
    /// Text Generation Inference.
    Tgi = 5,
    /// LMDeploy.
    Lmdeploy = 6,
    /// llama.cpp's server.
    LlamaCpp = 7,
}

impl Engine {
    /// All engines.
    pub const ALL: [Self; 7] = [
        Self::Vllm,
        Self::Sglang,
        Self::TrtllmServe,
        Self::TritonTrtllm,
        Self::Tgi,
        Self::Lmdeploy,
        Self::LlamaCpp,
    ];
}

/// An endpoint's health as the gateway's own checks or discovery tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Health {
    /// Passes its checks, or nothing speaks against it.
    Healthy = 1,
    /// Serves, but asks to be used less.
    Degraded = 2,
    /// Must get no requests.
    Unhealthy = 3,
    /// Finishes what it has and must get no new requests.
    Draining = 4,
}

impl Health {
    /// All states.
    pub const ALL: [Self; 4] = [
        Self::Healthy,
        Self::Degraded,
        Self::Unhealthy,
        Self::Draining,
    ];
}

/// LoRA adapters of an engine, each by [`adapter_hash`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    /// Loaded and at work.
    pub running: Vec<u64>,
    /// Asked for and waiting for a place.
    pub waiting: Vec<u64>,
    /// Places for adapters in one batch; 0 = no adapters at all.
    pub max: Option<u32>,
}

/// An adapter's name as [`Adapters`] keeps it.
#[must_use]
pub fn adapter_hash(name: &[u8]) -> u64 {
    xxh3_64(name)
}

/// One engine's figures at one moment, summed over its data-parallel ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Who speaks; `None` = nothing of the text was understood.
    pub engine: Option<Engine>,
    /// Requests that wait for a place in a batch.
    pub waiting: Option<f32>,
    /// Requests in batches.
    pub running: Option<f32>,
    /// Share of the KV cache in use, 0 to 1, mean over ranks.
    pub kv_use: Option<f32>,
    /// Tokens that the KV cache holds.
    pub capacity_tokens: Option<u64>,
    /// Tokens of one KV block (page).
    pub block_tokens: Option<u32>,
    /// Counter: tokens looked up in the prefix cache.
    pub prefix_queries: Option<f64>,
    /// Counter: tokens found there.
    pub prefix_hits: Option<f64>,
    /// Counter: tokens looked up in an outer KV store.
    pub external_prefix_queries: Option<f64>,
    /// Counter: tokens found there.
    pub external_prefix_hits: Option<f64>,
    /// Recent share of prompt tokens served from the cache, 0 to 1.
    pub cache_hit_rate: Option<f32>,
    /// LoRA adapters, where the engine lists them.
    pub adapters: Option<Adapters>,
}

impl Load {
    /// Nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// A gauge as we keep it.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "f32 holds a gauge's first seven digits, and no more are used"
)]
pub(crate) fn gauge(value: f64) -> f32 {
    value as f32
}

/// A count that was written as a decimal number; `None` when it is negative, not finite, or past 2^53.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked; a fraction of a token is dropped"
)]
pub(crate) fn count(value: f64) -> Option<u64> {
    (0.0..=9_007_199_254_740_992.0)
        .contains(&value)
        .then_some(value as u64)
}
