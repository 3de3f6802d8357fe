//! Decoded escapes, gathered so that many leave together.

/// Bytes that are gathered.
const SIZE: usize = 64;
/// The most that one escape adds: a lone surrogate and what followed it.
const MOST: usize = 8;

/// A short run of decoded text.
#[derive(Debug)]
pub(super) struct Run {
    bytes: [u8; SIZE],
    len: usize,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            bytes: [0; SIZE],
            len: 0,
        }
    }
}

impl Run {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// There may be no room for another escape.
    pub(super) fn is_full(&self) -> bool {
        self.len > SIZE - MOST
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
