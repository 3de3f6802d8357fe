//! Request bodies: which call, and its prompt as hashed blocks.

/// Hash of one block of a prompt, chained over all blocks before it: equal hash = equal prefix.
pub type BlockHash = u64;

/// What a request asks an engine to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Model name as the body spells it; empty when the body names none.
    pub model: String,
    /// Chained hashes of the prompt's whole blocks, head first, seeded by model, cache salt and isolation.
    pub blocks: Vec<BlockHash>,
    /// Bytes of prompt that the engine will read: texts, not frames; what was skipped counts too.
    pub bytes: u64,
    /// Bytes of prompt before the newest turn (the last run of messages that an assistant did not write).
    pub head_bytes: u64,
    /// Chain value at the end of the first user message: the same over all turns of a conversation.
    pub conversation: u64,
    /// Whether an assistant has answered before: this is not the conversation's first request.
    pub later_turn: bool,
    /// Hash of `prompt_cache_key` or `previous_response_id`.
    pub session: Option<u64>,
    /// The answer will be streamed.
    pub stream: bool,
    /// What cut the reading short; the blocks are still a sound prefix.
    pub cut: Option<Cut>,
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
