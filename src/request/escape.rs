//! Decoded escapes, gathered so that many leave together.

/// Bytes that are gathered.
const SIZE: usize = 256;
/// The most that one step adds.
const MOST: usize = 20;

/// A short run of decoded text. Its memory is there after [`Run::prepare`].
#[derive(Debug, Default)]
pub(super) struct Run {
    bytes: Vec<u8>,
    len: usize,
}

impl Run {
    /// Makes room, once.
    pub(super) fn prepare(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(SIZE, 0);
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// There may be no room for another step.
    pub(super) fn is_full(&self) -> bool {
        self.len > SIZE - MOST
    }

    /// Adds the first `len` bytes of `block`.
    #[inline]
    pub(super) fn push_block(&mut self, block: &[u8; 16], len: usize) {
        let place = self.bytes.get_mut(self.len..).unwrap_or_default();
        if let Some(place) = place.first_chunk_mut() {
            *place = *block;
            self.len = self.len.wrapping_add(len);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, b: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = b;
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Writes a code point as UTF-8 does, surrogates too.
    pub(super) fn push_point(&mut self, point: u32) {
        let lead = |mark: u8, shift: u32| mark | low_byte(point >> shift);
        let tail = |shift: u32| 0x80 | low_byte(point >> shift) & 0x3F;
        match point {
            0..=0x7F => self.push(low_byte(point)),
            0x80..=0x7FF => {
                self.push(lead(0xC0, 6));
                self.push(tail(0));
            }
            0x800..=0xFFFF => {
                self.push(lead(0xE0, 12));
                self.push(tail(6));
                self.push(tail(0));
            }
            _ => {
                self.push(lead(0xF0, 18));
                self.push(tail(12));
                self.push(tail(6));
                self.push(tail(0));
            }
        }
    }
}

/// A number with one more hexadecimal digit.
#[inline]
pub(super) fn add_digit(value: u16, b: u8) -> Option<u16> {
    let digit = match b {
        b'0'..=b'9' => b.wrapping_sub(b'0'),
        b'a'..=b'f' => b.wrapping_sub(b'a' - 10),
        b'A'..=b'F' => b.wrapping_sub(b'A' - 10),
        _ => return None,
    };
    Some((value << 4) | u16::from(digit))
}

fn low_byte(value: u32) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low
}
