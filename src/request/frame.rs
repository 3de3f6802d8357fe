//! The bytes between texts.
//!
//! A mark is 0xFF and a kind. Text is UTF-8 (with WTF-8's surrogates), which never holds 0xFF; so a
//! text ends where the next mark begins and needs no length in front, which a stream could not know.
//! What follows a mark is text, nothing, or a payload whose length the kind fixes; token ids are four
//! bytes each, big-endian and below 0xF800_0000, so that none begins with 0xFF. Read from its start,
//! a stream therefore splits into marks and payloads in one way only, and the kinds nest like the
//! structure that they stand for: two structures never spell the same bytes.

/// What a mark says.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Mark {
    /// One section or another (payload: text, its name).
    Section = 1,
    /// A message begins (payload: text, its role).
    Message,
    MessageEnd,
    /// A text of a message or prompt.
    Text,
    /// A part's own parts begin.
    Nest,
    NestEnd,
    /// A part that is more than text ends (payload: one byte, whether text came before).
    PartEnd,
    /// A value by its hash (payload: 8 bytes of its key's hash, 8 of its own).
    Field,
    /// A tool by its identity.
    Tool,
    ToolEnd,
    /// Token ids.
    Tokens,
    Object,
    ObjectEnd,
    Array,
    ArrayEnd,
    Key,
    String,
    Number,
    True,
    False,
    Null,
}

impl Mark {
    pub(super) fn bytes(self) -> [u8; 2] {
        [0xFF, self as u8]
    }
}
