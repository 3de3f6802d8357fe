//! Token counts that an answer tells, read as its bytes pass.
//!
//! Shapes: chat and text completions (`usage.prompt_tokens`, `prompt_tokens_details.cached_tokens`),
//! Responses (`usage.input_tokens`, `input_tokens_details.cached_tokens`), Anthropic messages
//! (`usage.input_tokens` without what was read from or written to the cache, `cache_read_input_tokens`,
//! `cache_creation_input_tokens`, split over `message_start` and `message_delta`), SGLang's `/generate`
//! (`meta_info.prompt_tokens`, `cached_tokens`).
//!
//! Only a key counts: in a text that the model wrote every quote has a backslash before it, so
//! `"usage"` cannot occur there. A whole body's last such object is its answer; a stream's objects are
//! laid over each other.
//!
//! Cost: a search for the key, about half an instruction a byte; at most [`MAX_OBJECT_BYTES`] are kept;
//! a stream that repeats the counts in every event pays the reading of the first few and of the last.

use crate::byte_mask::{BLOCK, any_pair, block_at, pair_mask};
use crate::raw_json::string;

/// Bytes kept of one object; counts behind them are not seen.
pub const MAX_OBJECT_BYTES: usize = 2048;

/// Objects of a stream that are read as they come; of later ones only the last.
const EAGER_OBJECTS: u32 = 8;

/// Longest key with its quotes, and one byte before it.
const CARRY: usize = 12;

/// Which object holds an answer's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `usage`: all calls but the next.
    Usage,
    /// `meta_info`: SGLang's own `/generate`.
    MetaInfo,
}

/// What an answer tells of its tokens. `None` is unknown, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: Option<u32>,
    /// Of these, tokens that the engine found in its cache.
    pub cached_tokens: Option<u32>,
    /// Tokens of the answer.
    pub completion_tokens: Option<u32>,
}

/// A key to look for: its text with quotes, and two bytes of it that seldom stand so.
#[derive(Clone, Copy, Debug)]
struct Key {
    text: &'static [u8],
    gap: usize,
    byte: u8,
}

const USAGE: Key = Key {
    text: b"\"usage\"",
    gap: 4,
    byte: b'g',
};
const META_INFO: Key = Key {
    text: b"\"meta_info\"",
    gap: 5,
    byte: b'_',
};

/// Looks at a body chunk by chunk.
#[derive(Clone, Debug)]
pub struct UsageScan {
    key: Key,
    is_stream: bool,
    /// The last bytes of the chunk before, for a key cut in two.
    carry: [u8; CARRY],
    carry_len: usize,
    /// A key was seen; `Some(true)` = its colon too.
    expecting: Option<bool>,
    /// The newest object, from its brace on, not read yet.
    object: Vec<u8>,
    objects: u32,
    counts: Counts,
}

impl UsageScan {
    /// `is_stream`: the body is a stream of server-sent events, see [`super::is_event_stream`].
    #[must_use]
    pub fn new(shape: Shape, is_stream: bool) -> Self {
        Self {
            key: match shape {
                Shape::Usage => USAGE,
                Shape::MetaInfo => META_INFO,
            },
            is_stream,
            carry: [0; CARRY],
            carry_len: 0,
            expecting: None,
            object: Vec::new(),
            objects: 0,
            counts: Counts::default(),
        }
    }

    /// Looks at the next bytes of the body.
    pub fn push(&mut self, chunk: &[u8]) {
        let mut from = 0;
        if let Some(end) = self.key_across(chunk) {
            self.key_at(chunk, &mut from, end);
        }
        let key = self.key;
        let len = chunk.len();
        let mut at = 0_usize;
        let mut fresh = u64::MAX;
        while let (Some(a), Some(b)) = (
            block_at(chunk, at),
            block_at(chunk, at.wrapping_add(key.gap)),
        ) {
            if any_pair(a, b'"', b, key.byte) {
                let mask = pair_mask(a, b'"', b, key.byte) & fresh;
                self.keys_in(chunk, &mut from, at, mask);
            }
            let next = at.wrapping_add(BLOCK);
            // The last step looks back, so that no rest is left: its first places were seen.
            let last = len.wrapping_sub(BLOCK).wrapping_sub(key.gap);
            if next <= last || at == last {
                at = next;
                continue;
            }
            fresh = u64::MAX
                .checked_shl(u32::try_from(next.wrapping_sub(last)).unwrap_or(u32::MAX))
                .unwrap_or_default();
            at = last;
        }
        if at == 0 {
            let mut short = [0; 2 * BLOCK];
            if let Some(place) = short.get_mut(..len) {
                place.copy_from_slice(chunk);
            }
            if let (Some(a), Some(b)) = (block_at(&short, 0), block_at(&short, key.gap)) {
                let mask = pair_mask(a, b'"', b, key.byte);
                self.keys_in(chunk, &mut from, 0, mask);
            }
        }
        self.feed(chunk.get(from..).unwrap_or_default());
        self.keep_carry(chunk);
    }

    /// What the body told so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut counts = self.counts;
        counts.add(Counts::read(&self.object), self.is_stream);
        counts.usage()
    }

    /// Takes up the keys among the places of `mask`, bit 0 = `at`.
    #[inline(never)]
    fn keys_in(&mut self, chunk: &[u8], from: &mut usize, at: usize, mut mask: u64) {
        while mask != 0 {
            let place = at.wrapping_add(mask.trailing_zeros() as usize);
            mask &= mask.wrapping_sub(1);
            let is_key = chunk
                .get(place..)
                .is_some_and(|text| text.starts_with(self.key.text));
            let before = match place.checked_sub(1) {
                Some(before) => chunk.get(before),
                None => self.carry.get(..self.carry_len).and_then(<[u8]>::last),
            };
            if is_key && before != Some(&b'\\') {
                self.key_at(chunk, from, place.wrapping_add(self.key.text.len()));
            }
        }
    }

    /// A key ends at `end`; bytes before `from` are done with.
    fn key_at(&mut self, chunk: &[u8], from: &mut usize, end: usize) {
        self.feed(chunk.get(*from..end).unwrap_or_default());
        self.expecting = Some(false);
        *from = end;
    }

    /// Where in `chunk` a key ends that began in the chunk before.
    fn key_across(&self, chunk: &[u8]) -> Option<usize> {
        let before = self.carry.get(..self.carry_len)?;
        let opening = before.iter().rposition(|&b| b == b'"')?;
        let (outside, head) = before.split_at_checked(opening)?;
        let rest = self.key.text.strip_prefix(head)?;
        let is_key = !rest.is_empty() && chunk.starts_with(rest) && outside.last() != Some(&b'\\');
        is_key.then_some(rest.len())
    }

    /// Passes bytes that hold no key on to the object that is kept, and to what a key waits for.
    fn feed(&mut self, bytes: &[u8]) {
        let mut kept = bytes;
        if let Some(mut colon) = self.expecting {
            for (i, &byte) in bytes.iter().enumerate() {
                match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => {}
                    b':' if !colon => colon = true,
                    b'{' if colon => {
                        self.begin_object();
                        self.expecting = None;
                        kept = bytes.get(i..).unwrap_or_default();
                        self.object.push(b'{');
                        kept = kept.get(1..).unwrap_or_default();
                        break;
                    }
                    _ => {
                        self.expecting = None;
                        break;
                    }
                }
            }
            if self.expecting.is_some() {
                self.expecting = Some(colon);
            }
        }
        if !self.object.is_empty() {
            let room = MAX_OBJECT_BYTES.saturating_sub(self.object.len());
            self.object
                .extend_from_slice(kept.get(..room).unwrap_or(kept));
        }
    }

    /// Makes room for a new object: the one kept is read, or dropped where there were many.
    fn begin_object(&mut self) {
        if !self.object.is_empty() {
            if !self.is_stream || self.objects < EAGER_OBJECTS {
                self.counts.add(Counts::read(&self.object), self.is_stream);
            }
            self.objects = self.objects.saturating_add(1);
            self.object.clear();
        }
    }

    fn keep_carry(&mut self, chunk: &[u8]) {
        if let Some(last) = chunk.last_chunk() {
            self.carry = *last;
            self.carry_len = CARRY;
            return;
        }
        for &byte in chunk {
            if self.carry_len == CARRY {
                self.carry.rotate_left(1);
                self.carry_len = CARRY.saturating_sub(1);
            }
            if let Some(place) = self.carry.get_mut(self.carry_len) {
                *place = byte;
                self.carry_len = self.carry_len.saturating_add(1);
            }
        }
    }
}

/// The counts of an object, by the names that it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    prompt: Option<u32>,
    input: Option<u32>,
    completion: Option<u32>,
    cached: Option<u32>,
    cache_read: Option<u32>,
    cache_creation: Option<u32>,
}

impl Counts {
    /// Reads an object that may be cut and may have anything behind it.
    fn read(object: &[u8]) -> Self {
        let mut counts = Self::default();
        let mut rest = object;
        let mut depth = 0_u32;
        let mut in_details = false;
        let mut key: &[u8] = b"";
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'{' | b'[' => {
                    depth = depth.saturating_add(1);
                    in_details = depth == 2
                        && matches!(key, b"prompt_tokens_details" | b"input_tokens_details");
                    key = b"";
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    in_details = false;
                    if depth == 0 {
                        break;
                    }
                }
                b'"' => {
                    let Some((text, behind)) = string_behind_quote(object, rest) else {
                        break;
                    };
                    let value = behind.trim_ascii_start().strip_prefix(b":");
                    key = if value.is_some() { text } else { b"" };
                    rest = value.unwrap_or(behind);
                }
                b'-' | b'0'..=b'9' => {
                    let Some((count, behind)) = number(byte, rest) else {
                        break;
                    };
                    counts.set(depth, in_details, key, count);
                    rest = behind;
                    key = b"";
                }
                b',' => key = b"",
                _ => {}
            }
        }
        counts
    }

    fn set(&mut self, depth: u32, in_details: bool, key: &[u8], count: Option<u32>) {
        let place = match (depth, key) {
            (1, b"prompt_tokens") => &mut self.prompt,
            (1, b"input_tokens") => &mut self.input,
            (1, b"completion_tokens" | b"output_tokens") => &mut self.completion,
            (1, b"cache_read_input_tokens") => &mut self.cache_read,
            (1, b"cache_creation_input_tokens") => &mut self.cache_creation,
            (1, b"cached_tokens") => &mut self.cached,
            (2, b"cached_tokens") if in_details => &mut self.cached,
            _ => return,
        };
        *place = count;
    }

    /// Takes a later object in. In a stream it is laid over this one, where a 0 does not replace a
    /// count; in a whole body it replaces this one.
    fn add(&mut self, later: Self, is_stream: bool) {
        if later == Self::default() {
            return;
        }
        if !is_stream {
            *self = later;
            return;
        }
        let over = |old: &mut Option<u32>, new: Option<u32>| {
            *old = new.filter(|count| *count > 0).or(*old).or(new);
        };
        over(&mut self.prompt, later.prompt);
        over(&mut self.input, later.input);
        over(&mut self.completion, later.completion);
        over(&mut self.cached, later.cached);
        over(&mut self.cache_read, later.cache_read);
        over(&mut self.cache_creation, later.cache_creation);
    }

    fn usage(self) -> Usage {
        // Anthropic's input leaves out what came from or went to the cache.
        let beside = [self.cache_read, self.cache_creation];
        let beside = beside.into_iter().flatten().fold(0, u32::saturating_add);
        let input = self.input.map(|input| input.saturating_add(beside));
        Usage {
            prompt_tokens: self.prompt.or(input),
            cached_tokens: self.cached.or(self.cache_read),
            completion_tokens: self.completion,
        }
    }
}

/// The string whose opening quote stands right before `inside`, a part of `object`.
fn string_behind_quote<'t>(object: &'t [u8], inside: &'t [u8]) -> Option<(&'t [u8], &'t [u8])> {
    let quote = object.len().checked_sub(inside.len())?.checked_sub(1)?;
    string(object.get(quote..)?)
}

/// The number that begins with `first`; inner `None` when it is too large, negative or no whole number.
/// Outer `None` when the text ends with it, so that digits may be missing.
fn number(first: u8, rest: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let len = rest
        .iter()
        .position(|b| !matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))?;
    let (digits, behind) = rest.split_at_checked(len)?;
    let count = core::iter::once(&first)
        .chain(digits)
        .try_fold(0_u32, |count, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            count.checked_mul(10)?.checked_add(digit)
        });
    Some((count, behind))
}
