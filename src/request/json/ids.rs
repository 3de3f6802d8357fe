//! Arrays of token ids, many ids at a time.
//!
//! Cost: some 50 wasm instructions an id of up to seven digits.

use super::{Events, Json, MAX_NODES, State};

/// Ids that leave together.
const BATCH: usize = 64;

impl Json {
    /// Takes ids that a comma follows from the start of `piece`, as long as they are plain: the value
    /// that begins there was counted already. Returns the bytes taken, after which a value is expected.
    pub(super) fn ids<E: Events>(&mut self, piece: &[u8], events: &mut E) -> usize {
        let mut used = 0_usize;
        // The value after each one taken is counted when it begins, here or elsewhere.
        let mut left = MAX_NODES.saturating_sub(self.nodes);
        let mut full = true;
        while full && left > 0 {
            let mut batch = [0_u8; 4 * BATCH];
            let mut count: usize = 0;
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            for place in batch.as_chunks_mut::<4>().0.iter_mut().take(most) {
                let Some((id, bytes)) = one(piece.get(used..).unwrap_or_default()) else {
                    break;
                };
                *place = id.to_be_bytes();
                used = used.wrapping_add(bytes);
                count = count.wrapping_add(1);
            }
            full = count == BATCH;
            if count > 0 {
                events.ids(batch.get(..count.wrapping_mul(4)).unwrap_or_default());
            }
            left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        }
        if used > 0 {
            // The first was counted by the caller, so that the value to come takes the place of one.
            self.nodes = MAX_NODES.saturating_sub(left).saturating_sub(1);
            self.state = State::Value;
        }
        used
    }
}

/// The id at the start of `text` and the bytes up to the next value; `None` for all that needs a
/// closer look: other numbers, longer ones, the last of an array or a piece.
#[inline(always)]
fn one(text: &[u8]) -> Option<(u32, usize)> {
    let word = u64::from_le_bytes(*text.first_chunk()?);
    let count = digits(word);
    let bits = count.wrapping_mul(8);
    let is_zero_led = count > 1 && word & 0xFF == u64::from(b'0');
    if count == 0 || count == 8 || (word >> bits) & 0xFF != u64::from(b',') || is_zero_led {
        return None;
    }
    // The digits at the end of the word, zeros before them.
    let id = value(word << 64_u32.wrapping_sub(bits));
    let after = usize::try_from(count).ok()?.wrapping_add(1);
    let blank = text.get(after) == Some(&b' ');
    Some((id, after.wrapping_add(usize::from(blank))))
}

/// Digits at the start of the word, the first in its lowest byte.
#[inline(always)]
fn digits(word: u64) -> u32 {
    const HIGH: u64 = 0xF0F0_F0F0_F0F0_F0F0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const SIX: u64 = 0x0606_0606_0606_0606;
    // A carry into a byte comes from one before it that is no digit either.
    let others = ((word & HIGH) ^ ZEROS) | ((word.wrapping_add(SIX) & HIGH) ^ ZEROS);
    others.trailing_zeros() >> 3
}

/// Value of eight digits, of which the high halves of their bytes do not matter: pairs, then fours,
/// then all in one multiplication each.
#[inline(always)]
fn value(word: u64) -> u32 {
    let ones = word & 0x0F0F_0F0F_0F0F_0F0F;
    let pairs = (ones.wrapping_mul(10 << 8 | 1) >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_FFFF_0000_FFFF;
    let all = fours.wrapping_mul(10_000 << 32 | 1) >> 32;
    u32::try_from(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::one;

    #[test]
    fn ids_are_read_as_a_plain_parser_does() {
        let mut rng = fastrand::Rng::with_seed(5);
        for digits in 1..8_u32 {
            for _ in 0..2_000 {
                let id = rng.u32(10_u32.pow(digits - 1)..10_u32.pow(digits));
                let text = format!("{id},{}12345678", " ".repeat(rng.usize(0..2)));
                let used = text.find(',').unwrap_or(0) + 1 + usize::from(text.contains(' '));
                assert_eq!(one(text.as_bytes()), Some((id, used)), "{text}");
            }
        }
        assert_eq!(one(b"0,123456789"), Some((0, 2)));
    }

    #[test]
    fn all_else_is_left_alone() {
        for text in [
            "12345678,1",
            "007,123456",
            "-17,123456",
            "1.5,123456",
            "17],123456",
            "17 ,123456",
            ",123456789",
            "1:,1234567",
            "1/,1234567",
            "17,1234",
            "",
        ] {
            assert_eq!(one(text.as_bytes()), None, "{text}");
        }
    }
}
