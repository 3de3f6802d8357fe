//! One pass over an engine's metrics text for the few families that a pick needs.
//!
//! Input is the Prometheus text format (0.0.4, and what OpenMetrics shares with it), either as it is
//! or still as the inside of a JSON string. Lines end at a newline. A line is looked at only when its
//! first bytes can begin a wanted name; comments and histograms cost their newline search.
//!
//! Rules
//! - names are exact; the first engine that a valid sample tells is the engine of the whole text;
//! - a line that is not a sample, or whose value is NaN, infinite or negative, spoils only itself;
//! - nothing understood = everything unknown: an error page, a JSON list, names without prefix;
//! - gateways cut a stored text at 64 KiB, at any byte. So the last line counts without a newline
//!   behind it only when the text is shorter than that ([`CUT_BYTES`]); there nobody has cut it.
//!
//! Cost: in wasm with SIMD some 3.5 instructions a byte for a full vLLM text of 50 KB in its escaped
//! form; two thirds of it are the newline search, a quarter the reading of the wanted lines. No
//! allocation but for adapters, rank copies and lines with more than their quotes escaped.

pub mod last_text;
mod sample;
mod tally;

use crate::byte_mask::{BLOCK, block_at, eq_mask, nearby, pair_mask};
use crate::endpoints::dialect::{
    DIALECTS, Dialect, Family, PREFIX_LETTERS, Prefix, key_byte, letter_bit,
};
use crate::endpoints::load::Load;
use crate::raw_json::{RawJsonStr, is_escaped};
use last_text::Notes;
use tally::{Added, Tally};

/// From this length on a text may have been cut by the gateway that stored it: 64 KiB less the
/// rest of a character that a tidy cut leaves out.
pub const CUT_BYTES: usize = 65_533;

/// A wanted line longer than this is left out: no engine writes one.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Reads a metrics text.
#[must_use]
pub fn scan(text: &[u8]) -> Load {
    Scanner::<false>::new(text).run()
}

/// Reads a metrics text from the inside of a JSON string, without undoing its escapes first.
/// A newline must be spelled `\n` there, as every JSON writer does.
#[must_use]
pub fn scan_escaped(text: RawJsonStr<'_>) -> Load {
    Scanner::<true>::new(text.0).run()
}

/// What begins the names of the engine that the text turned out to be of.
#[derive(Clone, Copy, Debug)]
struct Known {
    dialect: &'static Dialect,
    prefix: &'static Prefix,
}

/// `ESCAPED`: the text is the inside of a JSON string.
struct Scanner<'a, const ESCAPED: bool> {
    text: &'a [u8],
    /// Where the current line begins.
    start: usize,
    known: Option<Known>,
    tally: Tally,
    /// A line with its JSON escapes undone.
    line: Vec<u8>,
    /// The lines that count, where they are wanted.
    notes: Option<Notes>,
}

impl<'a, const ESCAPED: bool> Scanner<'a, ESCAPED> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            start: 0,
            known: None,
            tally: Tally::default(),
            line: Vec::new(),
            notes: None,
        }
    }

    fn run(mut self) -> Load {
        self.scan();
        self.load()
    }

    fn load(self) -> Load {
        self.tally
            .load(self.known.map(|known| known.dialect.engine))
    }

    fn scan(&mut self) {
        let text = self.text;
        let mut at = 0;
        while let Some(block) = block_at(text, at) {
            let mask = if ESCAPED {
                let Some(next) = block_at(text, at.wrapping_add(1)) else {
                    break;
                };
                pair_mask(block, b'\\', next, b'n')
            } else {
                eq_mask(block, b'\n')
            };
            self.newlines(at, mask);
            at = at.wrapping_add(BLOCK);
        }
        let mut last = [0; BLOCK + 1];
        let rest = text.get(at..).unwrap_or_default();
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let mask = match (block_at(&last, 0), block_at(&last, 1)) {
            (Some(block), Some(next)) if ESCAPED => pair_mask(block, b'\\', next, b'n'),
            (Some(block), _) => eq_mask(block, b'\n'),
            _ => 0,
        };
        self.newlines(at, mask);
        if text.len() < CUT_BYTES && self.may_matter() {
            self.take(text.len());
        }
    }

    /// Ends the current line at each newline of the block at `at`.
    #[inline(always)]
    fn newlines(&mut self, at: usize, mut mask: u64) {
        while mask != 0 {
            let end = at.wrapping_add(mask.trailing_zeros() as usize);
            mask &= mask.wrapping_sub(1);
            if self.may_matter() {
                // A line that does not matter may as well be taken for two.
                if ESCAPED && is_escaped(self.text, end) {
                    continue;
                }
                self.take(end);
            }
            self.start = end.wrapping_add(if ESCAPED { 2 } else { 1 });
        }
    }

    /// Whether the line at `start` may be a wanted one, by its first bytes.
    #[inline(always)]
    fn may_matter(&self) -> bool {
        let Some(line) = self.text.get(self.start..) else {
            return false;
        };
        let Some(head) = line.first_chunk() else {
            return false;
        };
        let head = u64::from_le_bytes(*head);
        match self.known {
            None => PREFIX_LETTERS & letter_bit(key_byte(head)) != 0,
            Some(Known { dialect, prefix }) => {
                let name = line.get(prefix.text.len()..).and_then(<[u8]>::first_chunk);
                let [first, fifth] = dialect.letters;
                head & prefix.mask == prefix.key
                    && name.is_some_and(|[a, _, _, _, e]| {
                        first & letter_bit(*a) != 0 && fifth & letter_bit(*e) != 0
                    })
            }
        }
    }

    /// Reads the line from `start` to `end`, when one begins there: an escaped backslash and an `n` look like a newline.
    #[inline(never)]
    fn take(&mut self, end: usize) {
        let newline = self.start.checked_sub(2).filter(|_| ESCAPED);
        let Some(line) = self.text.get(self.start..end) else {
            return;
        };
        if line.len() > MAX_LINE_BYTES || newline.is_some_and(|at| is_escaped(self.text, at)) {
            return;
        }
        if let Some(Known { dialect, prefix }) = self.known {
            self.try_dialect(line, dialect, prefix);
            return;
        }
        for dialect in &DIALECTS {
            for prefix in dialect.prefixes {
                if self.try_dialect(line, dialect, prefix) {
                    self.known = Some(Known { dialect, prefix });
                    return;
                }
            }
        }
    }

    /// Reads the line as this dialect's. True when it was a valid sample of a wanted family.
    #[inline(always)]
    fn try_dialect(&mut self, line: &[u8], dialect: &Dialect, prefix: &Prefix) -> bool {
        let Some((begin, name)) = line.split_at_checked(prefix.text.len()) else {
            return false;
        };
        let Some(head) = name.first_chunk() else {
            return false;
        };
        let key = u64::from_le_bytes(*head);
        let mut families = dialect.families;
        while let Some((family, others)) = families.split_first() {
            if family.key == key
                && begin == prefix.text.as_bytes()
                && let Some(rest) = behind_name::<ESCAPED>(name, family)
            {
                return self.sample(line, rest, families, family.name);
            }
            families = others;
        }
        false
    }

    /// A line with more than its quotes escaped.
    #[cold]
    #[inline(never)]
    fn unescaped<'f>(&mut self, rest: &[u8], families: impl Iterator<Item = &'f Family>) -> Added {
        self.line.clear();
        if unescape_json(rest, &mut self.line) {
            self.tally.add(&self.line, b"\"", families)
        } else {
            Added::Invalid
        }
    }

    /// Reads labels and value. Families of one name stand together in the table; `families` begins
    /// with the first of them.
    fn sample(&mut self, line: &[u8], rest: &[u8], families: &[Family], name: &str) -> bool {
        let same_name = families.iter().take_while(|family| family.name == name);
        let added = if !ESCAPED {
            self.tally.add(rest, b"\"", same_name)
        } else {
            // Mostly quotes alone are escaped.
            match self.tally.add(rest, b"\\\"", same_name.clone()) {
                Added::Invalid => self.unescaped(rest, same_name),
                added => added,
            }
        };
        if let Some(notes) = &mut self.notes {
            match added {
                Added::Invalid => notes.invalid(),
                Added::Copy => {}
                Added::Counted(counted, value, behind) => {
                    notes.counted(self.start, line, behind, counted, value);
                }
            }
        }
        !matches!(added, Added::Invalid)
    }
}

/// What follows the family's name, when `text` begins with exactly that name.
#[inline(always)]
fn behind_name<'t, const ESCAPED: bool>(text: &'t [u8], family: &Family) -> Option<&'t [u8]> {
    // What follows tells most longer names apart, at less than a comparison of names.
    let (name, rest) = text.split_at_checked(family.name.len())?;
    let ends = match rest.first()? {
        b'{' | b' ' | b'\t' => true,
        b'\\' => ESCAPED,
        _ => false,
    };
    (ends && name == family.name.as_bytes()).then_some(rest)
}

/// Undoes the escapes of a JSON string's inside. False when it is no such thing.
fn unescape_json(mut raw: &[u8], out: &mut Vec<u8>) -> bool {
    loop {
        let Some((head, rest)) = raw.split_at_checked(nearby(raw, [b'\\', b'"'])) else {
            return false;
        };
        out.extend_from_slice(head);
        let rest = match rest.split_first() {
            None => return true,
            Some((b'\\', rest)) => rest,
            Some(_) => return false,
        };
        let Some((&escape, rest)) = rest.split_first() else {
            return false;
        };
        raw = rest;
        match escape {
            b'"' | b'\\' | b'/' => out.push(escape),
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'u' => match unicode(raw) {
                Some((character, rest)) => {
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    raw = rest;
                }
                None => return false,
            },
            _ => return false,
        }
    }
}

/// The character of a `\u` escape behind its `u`, a surrogate pair included, and what follows.
fn unicode(raw: &[u8]) -> Option<(char, &[u8])> {
    let (first, rest) = hex4(raw)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, rest));
    }
    let (second, rest) = hex4(rest.strip_prefix(b"\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    let high = first.checked_sub(0xd800)?;
    let code = 0x1_0000_u32.checked_add(high << 10)?.checked_add(low)?;
    Some((char::from_u32(code)?, rest))
}

fn hex4(raw: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = raw.split_first_chunk::<4>()?;
    let mut code = 0;
    for &digit in digits {
        code = (code << 4) | char::from(digit).to_digit(16)?;
    }
    Some((code, rest))
}
