//! One message in canonical order, whatever order its keys have.
//!
//! ```text
//! Message role | content: texts and parts | fields by their hashes, ordered by key | MessageEnd
//! ```
//!
//! Content streams into the section as soon as the role is known; content that comes first waits in
//! the stash. All other values (tool calls, names, ids, reasoning) enter by their hash at the end, so
//! their order and number cost no memory. A part does the same with its own values.
//!
//! Repeated keys: the last one wins. Content that streamed is taken back to its start. Where that is
//! not possible (a role after its content, a text twice in one part) reading ends before the message.
//!
//! Where the body is cut before the role of content that came first, the content only counts in bytes: the
//! role stands before it in its blocks, and is not known. All messages before it keep their blocks.

use super::Cut;
use super::frame::Mark;
use super::hash::mix;
use super::json::Halt;
use super::output::{Output, Target};
use super::stream::Checkpoint;

/// A value by its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Hash of its key.
    pub(super) key: u64,
    value: u64,
    bytes: u64,
}

/// The message that is read.
#[derive(Debug, Default)]
pub(super) struct Message {
    role: Vec<u8>,
    has_role: bool,
    /// The item's `type`, unless it is a message.
    kind: Vec<u8>,
    /// The role is written; content may stream.
    started: bool,
    stashed: bool,
    /// Where content began.
    content: Checkpoint,
    start_blocks: usize,
    start_bytes: u64,
}

/// What the messages so far tell about the conversation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conversation {
    /// Whole blocks up to the end of the first user message, and the hash of what follows them.
    pub(super) first_user: Option<(usize, u64)>,
    pub(super) later_turn: bool,
    /// Bytes before the last run of messages that an assistant did not write.
    pub(super) head_bytes: u64,
    after_other: bool,
    pub(super) messages: u32,
}

impl Message {
    pub(super) fn begin(&mut self, out: &mut Output) {
        self.role.clear();
        self.has_role = false;
        self.kind.clear();
        self.started = false;
        self.stashed = false;
        self.start_blocks = out.current().contents.len();
        self.start_bytes = out.current().bytes;
    }

    /// Whole blocks before the message.
    pub(super) fn start_blocks(&self) -> usize {
        self.start_blocks
    }

    pub(super) fn set_role(&mut self, role: &[u8]) -> Result<(), Halt> {
        if self.started {
            return Err(Halt::Cut(Cut::Irregular));
        }
        self.role.clear();
        self.role.extend_from_slice(role);
        self.has_role = true;
        Ok(())
    }

    pub(super) fn set_kind(&mut self, kind: &[u8]) {
        self.kind.clear();
        if kind != b"message" {
            self.kind.extend_from_slice(kind);
        }
    }

    /// Content begins; an item without a role does not wait for one.
    pub(super) fn begin_content(&mut self, waits: bool, out: &mut Output) {
        if self.started {
            out.current().restore(&self.content);
        } else if self.has_role || !waits {
            self.start(out);
            self.stashed = false;
            out.current().save(&mut self.content);
        } else {
            out.clear_stash();
            self.stashed = true;
            out.target = Target::Stash;
        }
    }

    /// The body is cut here.
    pub(super) fn cut(&self, out: &mut Output) {
        if self.stashed && !self.started {
            out.count_stash();
        }
    }

    fn start(&mut self, out: &mut Output) {
        out.mark(Mark::Message);
        out.put(&self.role, false);
        self.started = true;
    }

    pub(super) fn end(
        &mut self,
        fields: &mut [Field],
        out: &mut Output,
        conversation: &mut Conversation,
    ) {
        if !self.started {
            self.start(out);
            if self.stashed {
                out.flush_stash();
            }
        }
        write_fields(fields, out);
        out.mark(Mark::MessageEnd);
        let stream = out.current();
        conversation.note(self, stream.contents.len(), || stream.tail());
    }

    fn is_output(&self) -> bool {
        self.kind.ends_with(b"_output")
            || matches!(self.role.as_slice(), b"tool" | b"function")
            || self.role == b"ipython"
    }

    fn is_assistant(&self) -> bool {
        matches!(self.role.as_slice(), b"assistant" | b"model")
            || (!self.has_role && !self.kind.is_empty() && !self.is_output())
    }
}

impl Conversation {
    fn note(&mut self, message: &Message, blocks: usize, tail: impl FnOnce() -> u64) {
        let assistant = message.is_assistant();
        self.later_turn |= assistant || message.is_output();
        if !assistant && !self.after_other {
            self.head_bytes = message.start_bytes;
        }
        self.after_other = !assistant;
        self.messages = self.messages.saturating_add(1);
        if self.first_user.is_none() && message.role == b"user" {
            self.first_user = Some((blocks, tail()));
        }
    }
}

/// Keeps a value; one of the same key from `base` on is replaced.
pub(super) fn set_field(fields: &mut Vec<Field>, base: usize, key: u64, value: u64, bytes: u64) {
    remove_field(fields, base, key);
    fields.push(Field { key, value, bytes });
}

/// Forgets the value of a key.
pub(super) fn remove_field(fields: &mut Vec<Field>, base: usize, key: u64) {
    let place = fields.iter().skip(base).position(|f| f.key == key);
    if let Some(place) = place {
        fields.swap_remove(base.saturating_add(place));
    }
}

/// Writes the values, ordered by key.
pub(super) fn write_fields(fields: &mut [Field], out: &mut Output) {
    if fields.len() > 1 {
        fields.sort_unstable_by_key(|f| f.key);
    }
    for field in fields {
        let mut bytes = [0; 18];
        let mark = Mark::Field.bytes();
        let payload = mark
            .iter()
            .copied()
            .chain(field.key.to_be_bytes())
            .chain(mix(field.key, field.value).to_be_bytes());
        for (place, b) in bytes.iter_mut().zip(payload) {
            *place = b;
        }
        out.count(field.bytes);
        out.put(&bytes, false);
    }
}
