//! Ways of hashing: one step of a chain, a block, and the digest of a value of any length.
//!
//! Cost: a chain step is two multiplications; a digest reads each byte once and keeps 256 bytes.

use super::block_hash::{STRIDE, block_hash};

/// `h` = next value of a chain. For a fixed `prev` every `content` gives another result, and the
/// other way round: the step itself never merges two chains, only equal 64-bit inputs do.
#[inline]
pub(super) fn mix(prev: u64, content: u64) -> u64 {
    let mut h = prev.rotate_left(23).wrapping_mul(0x9E37_79B1_85EB_CA87) ^ content;
    h = (h ^ (h >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    h = (h ^ (h >> 29)).wrapping_mul(0x9FB2_1C65_1E98_DF25);
    h ^ (h >> 32)
}

/// Hash of a byte string that arrives in pieces; how it is cut into pieces has no effect.
#[derive(Debug, Default)]
pub(super) struct Digest {
    partial: Vec<u8>,
    state: u64,
    /// Text bytes that were written, as the caller counts them.
    pub(super) counted: u64,
}

impl Digest {
    /// Forgets everything but the buffer.
    pub(super) fn reset(&mut self) {
        self.partial.clear();
        self.state = 0;
        self.counted = 0;
    }

    /// Adds bytes.
    pub(super) fn write(&mut self, mut data: &[u8]) {
        if !self.partial.is_empty() {
            let room = STRIDE.saturating_sub(self.partial.len());
            let Some((head, tail)) = data.split_at_checked(room) else {
                self.partial.extend_from_slice(data);
                return;
            };
            self.partial.extend_from_slice(head);
            self.state = mix(self.state, block_hash(&self.partial));
            self.partial.clear();
            data = tail;
        }
        let (whole, tail) = data.as_chunks::<STRIDE>();
        for block in whole {
            self.state = mix(self.state, block_hash(block));
        }
        if !tail.is_empty() {
            self.partial.reserve(STRIDE);
            self.partial.extend_from_slice(tail);
        }
    }

    /// Hash of all that was written. The last piece is shorter than a stride (or empty), so a value
    /// of whole strides and a longer one never end alike.
    pub(super) fn value(&self) -> u64 {
        mix(self.state, block_hash(&self.partial))
    }
}
