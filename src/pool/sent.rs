//! What a request asks, and what is owed for one that was sent.

use xxhash_rust::xxh3::xxh3_64;

use super::Pool;
use crate::clock::Millis;
use crate::config::{OverloadOptions, PickOptions};
use crate::endpoints::Slot;
use crate::endpoints::own::Ticket;
use crate::fallback::Fallback;
use crate::pick::{Ask, Branch, Entry};
use crate::request::{BlockHash, Prompt};

/// What a request asks of a pool.
pub struct Question<'a> {
    /// Its prompt.
    pub prompt: &'a Prompt,
    /// Hash of the session that it names, by header or body.
    pub session: Option<u64>,
    /// Only these addresses may be picked.
    pub subset: Option<&'a [&'a str]>,
    /// How endpoints are compared.
    pub pick: &'a PickOptions,
    /// With every endpoint past these the request is turned away; `None` = it never is.
    pub limits: Option<&'a OverloadOptions>,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// It is left to the gateway.
    Left(Fallback),
    /// No endpoint can be picked.
    Nobody,
    /// Every endpoint is past its limits.
    Overloaded,
}

impl From<Fallback> for Unsent {
    fn from(reason: Fallback) -> Self {
        Self::Left(reason)
    }
}

/// A request that was sent to an endpoint: what is still to settle about it.
#[derive(Debug)]
pub struct Sent {
    /// Where to.
    pub slot: Slot,
    /// Why there.
    pub branch: Branch,
    /// Predicted cached prompt tokens.
    pub matched_tokens: f64,
    /// Estimated prompt tokens.
    pub prompt_tokens: f64,
    /// Predicted time to the first token; of it, computing.
    pub ttft_ms: Option<f64>,
    pub(super) computing_ms: Option<f64>,
    /// Moment of the decision.
    pub at: Millis,
    /// Hash of the model's name.
    pub model: u64,
    /// Blocks matched at the endpoint.
    pub matched_blocks: u32,
    pub(super) streams: bool,
    pub(super) prompt_bytes: u64,
    pub(super) blocks: Vec<BlockHash>,
    pub(super) ticket: Option<Ticket>,
    pub(super) tentative: bool,
    /// No other worker's request was before it, so that its first token tells the endpoint's rate.
    pub(super) is_alone: bool,
    /// Blocks before this one were not told to other workers: they know them.
    pub(super) told_from: usize,
    /// Another endpoint computes the prompt.
    pub(super) is_prefilled: bool,
    /// The same request there, until its prompt is computed.
    pub(super) prefill: Option<Box<Sent>>,
}

impl Sent {
    /// Whole blocks of the prompt.
    #[must_use]
    pub fn total_blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl Pool {
    /// What is about to be sent to an endpoint.
    pub(super) fn sent(
        &self,
        to: &Entry,
        branch: Branch,
        ask: &Ask,
        prompt: &Prompt,
        blocks: Vec<BlockHash>,
        now: Millis,
    ) -> Sent {
        let model = xxh3_64(prompt.model.as_bytes());
        Sent {
            slot: to.slot,
            branch,
            matched_tokens: self.matched_tokens(to.slot, prompt, self.bytes_per_token.of(model)),
            prompt_tokens: ask.prompt_tokens,
            ttft_ms: to.ttft_ms,
            computing_ms: None,
            at: now,
            model,
            matched_blocks: self.depths.of(to.slot),
            streams: prompt.stream,
            prompt_bytes: prompt.bytes,
            blocks,
            ticket: None,
            tentative: false,
            is_alone: true,
            told_from: 0,
            is_prefilled: false,
            prefill: None,
        }
    }
}
