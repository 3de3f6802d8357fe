//! What becomes of texts, names, keys and numbers.

use xxhash_rust::xxh3::xxh3_64;

use super::Api;
use super::frame::Mark;
use super::ignore::Piece;
use super::json::Halt;
use super::message::{remove_field, set_field};
use super::slot::Slot;
use super::walk::{Mode, Walk};

/// Longest key that is looked up.
const MAX_KEY: usize = 64;

impl Walk {
    pub(super) fn begin_text(&mut self) -> Mode {
        self.out.mark(Mark::Text);
        self.filter.reset(&self.plan.patterns);
        Mode::Text
    }

    pub(super) fn end_kind(&mut self) {
        let base = self.base();
        let key = self.next_key;
        if self
            .levels
            .last()
            .is_some_and(|level| level.slot == Slot::Message)
        {
            self.message.set_kind(&self.name.bytes);
        }
        if matches!(
            self.name.bytes.as_slice(),
            b"text" | b"input_text" | b"output_text" | b"message"
        ) {
            remove_field(&mut self.fields, base, key);
        } else {
            set_field(&mut self.fields, base, key, xxh3_64(&self.name.bytes), 0);
        }
    }

    /// A string stands where a message list may: it is a user's message.
    pub(super) fn begin_input(&mut self) -> Result<Mode, Halt> {
        if self.api != Api::Responses {
            return Err(Halt::Malformed);
        }
        self.message.begin(&mut self.out);
        self.message.set_role(b"user")?;
        self.message.begin_content(true, &mut self.out);
        Ok(self.begin_text())
    }

    pub(super) fn add_text(&mut self, mut run: &[u8]) {
        if self.plan.patterns.is_empty() {
            self.out.put(run, true);
            return;
        }
        while let Some(piece) = self.filter.next(&self.plan.patterns, &mut run) {
            match piece {
                Piece::Keep(kept) => self.out.put(kept, true),
                Piece::Drop(bytes) => self.out.count(u64::try_from(bytes).unwrap_or(u64::MAX)),
            }
        }
    }

    /// Token ids, four bytes each, when they belong to the first prompt.
    pub(super) fn add_ids(&mut self, ids: &[u8], is_first: bool) {
        if is_first {
            self.begin_tokens();
            self.out.put(ids, true);
        } else {
            self.out.count(u64::try_from(ids.len()).unwrap_or(u64::MAX));
        }
    }

    fn begin_tokens(&mut self) {
        if !self.in_tokens {
            self.out.mark(Mark::Tokens);
            self.in_tokens = true;
        }
    }

    /// Four bytes that stand for a token id, when it belongs to the first prompt; a number that is none is
    /// spelled out.
    pub(super) fn add_token(&mut self, text: &[u8], is_first: bool) {
        if !is_first {
            self.out.count(4);
            return;
        }
        let digit = |value: Option<u32>, &b: &u8| {
            let digit = u32::from(b.wrapping_sub(b'0'));
            value
                .filter(|_| digit < 10)?
                .checked_mul(10)?
                .checked_add(digit)
        };
        match text.iter().fold(Some(0), digit) {
            Some(id) if id < 0xF800_0000 => self.add_ids(&id.to_be_bytes(), true),
            _ => {
                self.begin_tokens();
                self.out.mark(Mark::Number);
                self.out.put(text, false);
                self.out.count(4);
                self.in_tokens = false;
            }
        }
    }

    /// A number or literal.
    pub(super) fn scalar(&mut self, slot: Slot, mark: Mark, text: &[u8]) -> Result<(), Halt> {
        match slot {
            Slot::Counted | Slot::ToolsCounted => self
                .out
                .count(u64::try_from(text.len()).unwrap_or(u64::MAX)),
            _ if slot.is_generic() => {
                self.enter(slot)?;
                self.out.mark(mark);
                self.out.put(text, self.counts);
                self.leave(slot);
            }
            Slot::Skip | Slot::Stream | Slot::SessionObject | Slot::Kind => {}
            Slot::ToolSet | Slot::Tool | Slot::ToolFunction | Slot::Token => {}
            _ => return Err(Halt::Malformed),
        }
        Ok(())
    }

    /// A key longer than any that is known is told by its first bytes, or written on as it comes.
    pub(super) fn add_key(&mut self, run: &[u8]) {
        let room = MAX_KEY
            .saturating_add(1)
            .saturating_sub(self.name.bytes.len());
        let (head, tail) = run.split_at_checked(room).unwrap_or((run, &[]));
        self.name.bytes.extend_from_slice(head);
        if self.name.bytes.len() > MAX_KEY
            && self
                .levels
                .last()
                .is_some_and(|level| level.slot.is_generic())
        {
            self.out.mark(Mark::Key);
            self.out.put(&self.name.bytes, self.counts);
            self.mode = Mode::LongKey;
            self.out.put(tail, self.counts);
        }
    }
}
