//! Strings: runs of text, escapes, and where a piece cuts either.
//!
//! Text without escapes leaves from where it stands. From the first escape on, text is copied by blocks
//! of 16 bytes into a run, escapes being replaced as they come, until a stretch has none.
//!
//! Cost: some 25 wasm instructions a block copied, and some 40 an escape.

use super::{Events, Halt, Json, State};
use crate::request::escape::{
    MOST, add_digit, ends_high, hex_unit, padded_block, plain, put, put_point, put_unit,
};
use crate::request::scan::{block_run, string_run};

/// Blocks of text without an escape after which text is hashed where it stands again.
const PLAIN_BLOCKS: u32 = 32;

/// What one filling of the run took.
struct Step {
    /// Bytes of the text.
    used: usize,
    /// All of them were ASCII.
    ascii: bool,
    /// The run had no room for more.
    is_full: bool,
}

impl Json {
    pub(super) fn string<'a, E: Events>(
        &mut self,
        piece: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        let run = string_run(piece);
        let Some((text, rest)) = piece.split_at_checked(run.len) else {
            return Err(Halt::Malformed);
        };
        if !text.is_empty() {
            self.flush_high(events);
            let plain = run.ascii && self.utf8.is_whole();
            if !plain && !self.utf8.check(text) {
                return Err(Halt::Malformed);
            }
            events.text(text);
        }
        let tail = rest;
        let Some((&b, rest)) = tail.split_first() else {
            return Ok(tail);
        };
        if !self.utf8.is_whole() {
            return Err(Halt::Malformed);
        }
        match b {
            b'"' => {
                self.flush_high(events);
                if self.in_key {
                    self.state = State::Colon;
                    events.end_key()?;
                } else {
                    self.state = State::AfterValue;
                    events.end_string()?;
                }
            }
            b'\\' => return self.escapes(tail, events),
            _ => return Err(Halt::Malformed),
        }
        Ok(rest)
    }

    /// Text with escapes in it, the first one at the start of `piece`. It is decoded into the run, which
    /// leaves whenever it is full.
    fn escapes<'a, E: Events>(
        &mut self,
        piece: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        let mut rest = piece;
        loop {
            self.run.prepare();
            let step = self.decode(rest)?;
            let (raw, after) = rest.split_at_checked(step.used).ok_or(Halt::Malformed)?;
            // The text as it came is what must be UTF-8: decoded surrogates are not.
            if !(step.ascii && self.utf8.is_whole()) && !self.utf8.check(raw) {
                return Err(Halt::Malformed);
            }
            self.flush(events);
            rest = after;
            if !step.is_full {
                return Ok(rest);
            }
            self.run.grow();
        }
    }

    /// Fills the run from the start of `text`.
    fn decode(&mut self, text: &[u8]) -> Result<Step, Halt> {
        let room = self.run.room();
        let most = room.len().saturating_sub(MOST);
        let (mut used, mut len, mut seen) = (0_usize, 0_usize, 0_u32);
        let mut plain_blocks = 0;
        let mut high = self.high.take();
        while len <= most && plain_blocks < PLAIN_BLOCKS {
            let left = text.get(used..).unwrap_or_default();
            if let Some(before) = high.filter(|_| ends_high(left)) {
                len = put_point(room, len, u32::from(before));
                high = None;
            }
            let padded;
            let block = match left.first_chunk() {
                Some(block) => block,
                None => {
                    padded = padded_block(left);
                    &padded
                }
            };
            let found = block_run(block);
            seen |= found.high;
            put(room, len, block);
            used = used.wrapping_add(found.len);
            len = len.wrapping_add(found.len);
            if found.len == block.len() {
                plain_blocks += 1;
                continue;
            }
            plain_blocks = 0;
            match text.get(used..).unwrap_or_default() {
                [b'\\', b'u', a, b, c, d, ..] => {
                    let unit = hex_unit([*a, *b, *c, *d]).ok_or(Halt::Malformed)?;
                    len = put_unit(room, len, &mut high, unit);
                    used = used.wrapping_add(6);
                }
                [b'\\', b'u', ..] => {
                    self.state = State::Unicode;
                    self.hex = (0, 0);
                    used = used.wrapping_add(2);
                    break;
                }
                [b'\\', b, ..] => {
                    put(room, len, &[plain(*b).ok_or(Halt::Malformed)?]);
                    len = len.wrapping_add(1);
                    used = used.wrapping_add(2);
                }
                [b'\\'] => {
                    self.state = State::Escape;
                    used = used.wrapping_add(1);
                    break;
                }
                _ => break,
            }
        }
        self.high = high;
        self.run.set_len(len);
        Ok(Step {
            used,
            ascii: seen == 0,
            is_full: len > most,
        })
    }

    fn flush<E: Events>(&mut self, events: &mut E) {
        events.text(self.run.bytes());
        self.run.clear();
    }

    /// An escape whose backslash ended the last piece.
    pub(super) fn escape<'a, E: Events>(
        &mut self,
        piece: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        let Some((&b, rest)) = piece.split_first() else {
            return Ok(piece);
        };
        if b == b'u' {
            self.state = State::Unicode;
            self.hex = (0, 0);
            return Ok(rest);
        }
        let decoded = plain(b).ok_or(Halt::Malformed)?;
        self.run.prepare();
        self.close_high();
        self.run.push(decoded);
        self.state = State::String;
        self.flush(events);
        Ok(rest)
    }

    /// Inside the digits of `\u`.
    pub(super) fn unicode<'a, E: Events>(
        &mut self,
        piece: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        let mut rest = piece;
        while let Some((&b, after)) = rest.split_first() {
            let (count, value) = self.hex;
            let value = add_digit(value, b).ok_or(Halt::Malformed)?;
            self.hex = (count.saturating_add(1), value);
            rest = after;
            if count == 3 {
                self.run.prepare();
                self.run.push_unit(&mut self.high, value);
                self.state = State::String;
                self.flush(events);
                break;
            }
        }
        Ok(rest)
    }

    /// A high surrogate that no low one follows is a character of its own.
    fn close_high(&mut self) {
        if let Some(high) = self.high.take() {
            self.run.push_point(u32::from(high));
        }
    }

    #[inline]
    fn flush_high<E: Events>(&mut self, events: &mut E) {
        if self.high.is_some() {
            self.run.prepare();
            self.close_high();
            self.flush(events);
        }
    }
}
