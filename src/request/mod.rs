//! Request bodies: which call, and its prompt as hashed blocks.
//!
//! ```text
//! path -> api      which call
//! body -> json     strict tokens, as the pieces of the body come     (scan, utf8, escape, number)
//!      -> slot     what a value means, by call and place
//!      -> walk     puts values in canonical order into three sections (place, text, message, output)
//!      -> stream   tools | system | messages, each as hashed blocks   (hash, block_hash, ignore, frame)
//!      -> reader   seed, chain, facts: the Prompt
//! ```
//!
//! Invariants
//! - how a body is cut into pieces has no effect on anything;
//! - a longer prompt keeps every block of what it extends; one changed character changes its block
//!   and all after it;
//! - whitespace, escapes, the order of keys and sampling parameters have no effect on the blocks;
//! - no two structures are spelled by the same bytes ([`frame`]);
//! - a budget never makes a body malformed: what was read until then is a sound prefix.
//!
//! Cost: each byte is looked at once and hashed once; memory is O(blocks), 12 bytes a block, plus one
//! message whose content came before its role. No allocation a message.

mod api;
mod block_hash;
mod escape;
mod facts;
mod frame;
mod hash;
mod ignore;
mod json;
mod message;
mod name;
mod number;
mod output;
mod place;
mod reader;
mod scan;
mod slot;
mod stream;
mod text;
mod utf8;
mod walk;

pub use api::Api;
pub use ignore::PromptPlan;
pub use reader::{BodyEnd, Feed, PromptReader, Seed, Unreadable};

/// Hash of one block of a prompt, chained over all blocks before it: equal hash = equal prefix.
pub type BlockHash = u64;

/// What a request asks an engine to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Model name as the body spells it (a hash of it when it is longer than 512 bytes); empty when the
    /// body names none.
    pub model: String,
    /// Chained hashes of the prompt's whole blocks, head first, seeded by model, cache salt and isolation.
    pub blocks: Vec<BlockHash>,
    /// Bytes of prompt up to the end of each block; as many as `blocks`.
    pub ends: Vec<u32>,
    /// Bytes of prompt that the engine will read: texts, not frames; a token id counts as 4; media count as
    /// none; what was skipped counts too, what came after the end of a cut body does not.
    pub bytes: u64,
    /// Bytes of prompt before the newest turn (the last run of messages that an assistant did not write).
    pub head_bytes: u64,
    /// Chain value at the end of the first user message: the same over all turns of a conversation. Of a
    /// call without messages, at the end of its prompt.
    pub conversation: u64,
    /// Whether an assistant has answered before: this is not the conversation's first request.
    pub later_turn: bool,
    /// Hash of `prompt_cache_key`, SGLang's `session_params.id`, or else `previous_response_id`.
    pub session: Option<u64>,
    /// The answer will be streamed.
    pub stream: bool,
    /// What cut the reading short; the blocks are still a sound prefix.
    pub cut: Option<Cut>,
}

impl Prompt {
    /// Bytes of prompt that the first `blocks` blocks stand for: monotone, at most `bytes`.
    #[must_use]
    pub fn matched_bytes(&self, blocks: usize) -> u64 {
        let last = blocks.min(self.ends.len()).checked_sub(1);
        let end = last
            .and_then(|last| self.ends.get(last))
            .copied()
            .unwrap_or(0);
        u64::from(end).min(self.bytes)
    }
}

/// A budget that ended the reading of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// More body than may be read.
    BodyBytes,
    /// More blocks than are hashed.
    Blocks,
    /// Deeper than JSON may nest here.
    Depth,
    /// More values than are looked at.
    Nodes,
    /// A message that cannot be put in order without holding it (a key repeated after its text).
    Irregular,
}

impl Cut {
    /// All budgets, in the order of their counters.
    pub const ALL: [Self; 5] = [
        Self::BodyBytes,
        Self::Blocks,
        Self::Depth,
        Self::Nodes,
        Self::Irregular,
    ];

    /// The budget as metrics, logs and the documentation spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BodyBytes => "body_bytes",
            Self::Blocks => "blocks",
            Self::Depth => "depth",
            Self::Nodes => "nodes",
            Self::Irregular => "irregular",
        }
    }
}
