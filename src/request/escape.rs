//! Decoded escapes, and the run in which they are gathered so that many leave together.

/// Bytes that are gathered at first, and once a text has many escapes.
const SIZES: [usize; 2] = [256, 2048];
/// The most that one step adds: a block, a surrogate before it and a character after it.
pub(super) const MOST: usize = 24;

/// A run of decoded text. Its memory is there after [`Run::prepare`].
#[derive(Debug, Default)]
pub(super) struct Run {
    bytes: Vec<u8>,
    len: usize,
}

impl Run {
    /// Makes room, once.
    pub(super) fn prepare(&mut self) {
        if self.bytes.is_empty() {
            let [first, _] = SIZES;
            self.bytes.resize(first, 0);
        }
    }

    /// Makes room for a text that has filled the run before: longer runs are hashed with fewer copies.
    pub(super) fn grow(&mut self) {
        let [_, last] = SIZES;
        self.bytes.resize(last, 0);
    }

    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, b: u8) {
        put(&mut self.bytes, self.len, &[b]);
        self.len = self.len.wrapping_add(1);
    }

    pub(super) fn push_point(&mut self, point: u32) {
        self.len = put_point(&mut self.bytes, self.len, point);
    }

    pub(super) fn push_unit(&mut self, high: &mut Option<u16>, unit: u16) {
        self.len = put_unit(&mut self.bytes, self.len, high, unit);
    }
}

/// Writes `bytes` at `at` of `room`, when they fit.
#[inline(always)]
pub(super) fn put<const N: usize>(room: &mut [u8], at: usize, bytes: &[u8; N]) {
    if let Some(place) = room.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = *bytes;
    }
}

/// Writes a code point as UTF-8 does, surrogates too; returns where it ends.
#[inline(always)]
pub(super) fn put_point(room: &mut [u8], at: usize, point: u32) -> usize {
    let lead = |mark: u32, shift: u32| mark | point >> shift;
    let tail = |shift: u32| 0x80 | (point >> shift) & 0x3F;
    let (word, len) = match point {
        0..=0x7F => (point, 1),
        0x80..=0x7FF => (lead(0xC0, 6) | tail(0) << 8, 2),
        0x800..=0xFFFF => (lead(0xE0, 12) | tail(6) << 8 | tail(0) << 16, 3),
        _ => (
            lead(0xF0, 18) | tail(12) << 8 | tail(6) << 16 | tail(0) << 24,
            4,
        ),
    };
    put(room, at, &word.to_le_bytes());
    at.wrapping_add(len)
}

/// Writes one UTF-16 unit of a `\u` escape, `high` being a high surrogate that waits for its low one;
/// returns where it ends.
#[inline(always)]
pub(super) fn put_unit(room: &mut [u8], at: usize, high: &mut Option<u16>, unit: u16) -> usize {
    if high.is_none() && unit & 0xF800 != 0xD800 {
        return put_point(room, at, u32::from(unit));
    }
    put_surrogate(room, at, high, unit)
}

#[cold]
#[inline(never)]
fn put_surrogate(room: &mut [u8], mut at: usize, high: &mut Option<u16>, unit: u16) -> usize {
    let before = high.take().map(u32::from);
    let point = u32::from(unit);
    match (before, unit) {
        (Some(before), 0xDC00..=0xDFFF) => {
            let pair = (before & 0x3FF) << 10 | point & 0x3FF;
            return put_point(room, at, pair.wrapping_add(0x1_0000));
        }
        (Some(before), _) => at = put_point(room, at, before),
        (None, _) => {}
    }
    if (0xD800..=0xDBFF).contains(&unit) {
        *high = Some(unit);
        return at;
    }
    put_point(room, at, point)
}

/// Whether a high surrogate before `text` is a character of its own: no other escape may follow.
#[cold]
#[inline(never)]
pub(super) fn ends_high(text: &[u8]) -> bool {
    !matches!(text, [] | [b'\\'] | [b'\\', b'u', ..])
}

/// The last bytes of a piece as a block; a quote ends them.
#[cold]
#[inline(never)]
pub(super) fn padded_block(text: &[u8]) -> [u8; 16] {
    let mut block = [b'"'; 16];
    for (place, &b) in block.iter_mut().zip(text) {
        *place = b;
    }
    block
}

/// What an escape of one character stands for.
#[inline(always)]
pub(super) fn plain(b: u8) -> Option<u8> {
    let decoded = PLAIN.get(usize::from(b)).copied()?;
    (decoded != 0).then_some(decoded)
}

static PLAIN: [u8; 256] = {
    let pairs = *b"\"\"\\\\//n\nt\tr\rb\x08f\x0C";
    let mut table = [0; 256];
    let (mut pairs, _) = pairs.as_slice().as_chunks::<2>();
    while let [[b, decoded], rest @ ..] = pairs {
        table[*b as usize] = *decoded;
        pairs = rest;
    }
    table
};

/// The unit that four hexadecimal digits spell.
#[inline(always)]
pub(super) fn hex_unit(digits: [u8; 4]) -> Option<u16> {
    let [a, b, c, d] =
        digits.map(|b| u32::from(HEX.get(usize::from(b)).copied().unwrap_or(NO_DIGIT)));
    if (a | b | c | d) > 0x0F {
        return None;
    }
    u16::try_from(a << 12 | b << 8 | c << 4 | d).ok()
}

const NO_DIGIT: u8 = 0xFF;

static HEX: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0_u8;
    while value < 16 {
        table[b"0123456789abcdef"[value as usize] as usize] = value;
        table[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    table
};

/// A number with one more hexadecimal digit.
pub(super) fn add_digit(value: u16, b: u8) -> Option<u16> {
    let digit = HEX.get(usize::from(b)).copied()?;
    (digit != NO_DIGIT).then_some((value << 4) | u16::from(digit))
}
