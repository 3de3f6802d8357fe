//! What is remembered of an endpoint's last text, so that the next one is not read whole.
//!
//! From one reading to the next an engine writes the same series in the same order; only values, and
//! with them lengths, change. So a full scan notes where each line that counted stood. The next text
//! is read at these places, each a little off by what came before it; a line is the noted one when
//! its name and labels are the same, byte for byte (by hash), so labels are not read again. Whatever
//! does not fit is a full scan, and so is every [`FULL_EVERY`]th reading: a series that is new is
//! seen then at the latest. Endpoints take turns in it, so that no listing scans all of them.
//!
//! Texts with adapters (each change is a new series), with a wanted line that is no valid sample, or
//! with more than [`MAX_LINES`] lines that count are scanned in full every time.
//!
//! A text is new when its length or a value that counts differs. Where both are the same, the whole
//! text's hash tells: an idle engine still counts its own scrapes and processor time somewhere, a text
//! that nobody writes any more stays the same for ever. That hash is taken only then, so the first
//! text that looks the same counts as old: an idle engine can look one reading older than it is, an
//! engine that is gone never younger.
//!
//! Cost: some hundred bytes of memory and some thousand instructions a line that counts, a hash of
//! the text where an engine idles.

use xxhash_rust::xxh3::xxh3_64;

use super::sample;
use super::tally::{Counted, Tally};
use super::{Known, Scanner};
use crate::byte_mask::{BLOCK, block_at, pair_mask};
use crate::endpoints::dialect::Signal;
use crate::endpoints::load::Load;
use crate::raw_json::{RawJsonStr, is_escaped};

/// Every so many readings one is a full scan; a power of two, as the count of readings wraps.
const FULL_EVERY: u8 = 64;

/// Lines noted of one text at most.
const MAX_LINES: usize = 64;

/// How far a line may have moved against the one before it, bytes.
const WINDOW_BYTES: usize = 256;

/// A value and its timestamp are no longer than this.
const MAX_VALUE_BYTES: usize = 96;

const HEAD_BYTES: usize = 16;

/// A newline as JSON spells it.
const NEWLINE: &[u8] = b"\\n";

/// An endpoint's last text.
#[derive(Debug, Default)]
pub struct LastText {
    known: Option<Known>,
    lines: Vec<Line>,
    /// Hash of the length and of the values that counted.
    sign: Option<u64>,
    /// Hash of the whole text, when it was needed.
    print: Option<u64>,
    /// Readings so far, from a start of its own.
    readings: u8,
}

/// A line that counted.
#[derive(Debug)]
struct Line {
    at: usize,
    /// Its first bytes, to tell most others apart without a hash.
    head: [u8; HEAD_BYTES],
    /// Name and labels: length and hash.
    key_bytes: usize,
    key_hash: u64,
    counted: Counted,
}

impl LastText {
    /// The text of an endpoint whose name has this hash: its turn follows from it.
    #[must_use]
    pub fn of_endpoint(name_hash: u64) -> Self {
        let [turn, ..] = name_hash.to_le_bytes();
        Self {
            readings: turn,
            ..Self::default()
        }
    }

    /// Reads the endpoint's text of now, the inside of a JSON string. `None` when it is the last one.
    pub fn read(&mut self, text: RawJsonStr<'_>) -> Option<Load> {
        self.readings = self.readings.wrapping_add(1);
        let noted = if self.readings.is_multiple_of(FULL_EVERY) {
            None
        } else {
            self.read_noted(text.0)
        };
        let (load, sign) = noted.unwrap_or_else(|| self.read_all(text.0));
        let differs = self.sign.replace(sign) != Some(sign);
        if differs && !self.lines.is_empty() {
            self.print = None;
            return Some(load);
        }
        let print = xxh3_64(text.0);
        let is_new = match self.print.replace(print) {
            Some(before) => before != print,
            None => differs,
        };
        is_new.then_some(load)
    }

    /// Scans the whole text and notes the lines that count.
    fn read_all(&mut self, text: &[u8]) -> (Load, u64) {
        let mut scanner = Scanner::<true>::new(text);
        scanner.notes = Some(Notes::default());
        scanner.scan();
        let notes = scanner.notes.take().unwrap_or_default();
        self.known = scanner.known;
        let (lines, sign) = notes.finish(text.len());
        self.lines = lines;
        (scanner.load(), sign)
    }

    /// Reads only the noted lines; `None` when one of them is not where it may be.
    fn read_noted(&mut self, text: &[u8]) -> Option<(Load, u64)> {
        if self.lines.is_empty() {
            return None;
        }
        let mut tally = Tally::default();
        let mut sign = first_sign(text.len());
        let mut drift = 0_isize;
        let mut from = 0;
        for line in &mut self.lines {
            let expected = line.at.checked_add_signed(drift)?;
            let at = line.find(text, from, expected)?;
            drift = at.checked_signed_diff(line.at)?;
            line.at = at;
            from = at.checked_add(line.key_bytes)?;
            let value = value_at(text, from)?;
            tally.record(line.counted, value);
            sign = next_sign(sign, value);
        }
        let engine = self.known.map(|known| known.dialect.engine);
        Some((tally.load(engine), sign))
    }
}

impl Line {
    /// Where the line begins now: at `expected` or near it, not before `from`.
    fn find(&self, text: &[u8], from: usize, expected: usize) -> Option<usize> {
        if expected >= from && begins_line(text, expected) && self.is_at(text, expected) {
            return Some(expected);
        }
        let mut at = expected.saturating_sub(WINDOW_BYTES).max(from);
        let end = expected.saturating_add(WINDOW_BYTES);
        while at < end {
            let next = block_at(text, at.wrapping_add(1))?;
            let mut mask = pair_mask(block_at(text, at)?, b'\\', next, b'n');
            while mask != 0 {
                let newline = at.wrapping_add(mask.trailing_zeros() as usize);
                mask &= mask.wrapping_sub(1);
                let start = newline.wrapping_add(NEWLINE.len());
                if !is_escaped(text, newline) && self.is_at(text, start) {
                    return Some(start);
                }
            }
            at = at.wrapping_add(BLOCK);
        }
        None
    }

    fn is_at(&self, text: &[u8], at: usize) -> bool {
        let Some(line) = text.get(at..) else {
            return false;
        };
        line.starts_with(&self.head)
            && line
                .get(..self.key_bytes)
                .is_some_and(|key| xxh3_64(key) == self.key_hash)
    }
}

fn begins_line(text: &[u8], at: usize) -> bool {
    let Some(newline) = at.checked_sub(NEWLINE.len()) else {
        return at == 0;
    };
    text.get(newline..at) == Some(NEWLINE) && !is_escaped(text, newline)
}

/// The value between `at` and the end of its line.
fn value_at(text: &[u8], at: usize) -> Option<f64> {
    let rest = text.get(at..)?;
    // Else the name may go on.
    if !matches!(rest.first()?, b' ' | b'\t') {
        return None;
    }
    let mut bytes = rest.iter().take(MAX_VALUE_BYTES);
    let (value, behind) = rest.split_at_checked(bytes.position(|&b| b == b'\\')?)?;
    behind.starts_with(NEWLINE).then(|| sample::value(value))?
}

/// The lines of one full scan.
#[derive(Debug, Default)]
pub struct Notes {
    lines: Vec<Line>,
    values: Vec<f64>,
    /// Something in the text keeps it from being read by notes.
    unfit: bool,
}

impl Notes {
    /// Notes that the wanted line at `at` counted; `behind`: bytes behind its name and labels.
    pub fn counted(&mut self, at: usize, line: &[u8], behind: usize, counted: Counted, value: f64) {
        let key_bytes = line.len().saturating_sub(behind);
        let (key, value_bytes) = line.split_at_checked(key_bytes).unwrap_or_default();
        let fits = counted.signal != Signal::Adapters
            && self.lines.len() < MAX_LINES
            // Where the value has escapes, what is behind the labels is longer than it looked; an exemplar is no
            // part of what is read.
            && !value_bytes.iter().any(|b| matches!(b, b'#' | b'\\'));
        let Some(head) = line.first_chunk().filter(|_| fits) else {
            self.unfit = true;
            return;
        };
        self.lines.push(Line {
            at,
            head: *head,
            key_bytes,
            key_hash: xxh3_64(key),
            counted,
        });
        self.values.push(value);
    }

    /// Notes that a wanted line was no valid sample.
    pub fn invalid(&mut self) {
        self.unfit = true;
    }

    fn finish(self, text_bytes: usize) -> (Vec<Line>, u64) {
        if self.unfit {
            return (Vec::new(), first_sign(text_bytes));
        }
        let sign = self
            .values
            .into_iter()
            .fold(first_sign(text_bytes), next_sign);
        (self.lines, sign)
    }
}

fn first_sign(text_bytes: usize) -> u64 {
    text_bytes as u64
}

fn next_sign(sign: u64, value: f64) -> u64 {
    (sign.rotate_left(21) ^ value.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
