//! UTF-8 checked while it streams: a character may lie across pieces.
//!
//! Cost: about 2.5 wasm instructions a byte with SIMD (the lookup method of Keiser and Lemire,
//! "Validating UTF-8 in less than one instruction per byte", 2020); ASCII is never passed in.

/// A character begun in an earlier piece.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utf8 {
    bytes: [u8; 4],
    len: usize,
}

impl Utf8 {
    /// No character is open.
    pub(super) fn is_whole(self) -> bool {
        self.len == 0
    }

    /// Checks a piece; `false` when it can be no part of valid UTF-8.
    pub(super) fn check(&mut self, mut piece: &[u8]) -> bool {
        while self.len > 0 {
            let Some((&b, rest)) = piece.split_first() else {
                return true;
            };
            let Some(place) = self.bytes.get_mut(self.len) else {
                return false;
            };
            *place = b;
            self.len = self.len.saturating_add(1);
            piece = rest;
            match core::str::from_utf8(self.bytes.get(..self.len).unwrap_or_default()) {
                Ok(_) => self.len = 0,
                Err(e) if e.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        let whole = piece.len().saturating_sub(open_tail(piece));
        let (piece, tail) = piece.split_at_checked(whole).unwrap_or((piece, &[]));
        for (place, &b) in self.bytes.iter_mut().zip(tail) {
            *place = b;
            self.len = self.len.saturating_add(1);
        }
        if core::str::from_utf8(tail).is_err_and(|e| e.error_len().is_some()) {
            return false;
        }
        is_valid(piece)
    }
}

/// Bytes at the end that begin a character and do not end it.
fn open_tail(piece: &[u8]) -> usize {
    for (back, &b) in piece.iter().rev().take(3).enumerate() {
        let wants = match b {
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xFF => 4,
            _ => 1,
        };
        let has = back.saturating_add(1);
        return if has < wants { has } else { 0 };
    }
    0
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
fn is_valid(piece: &[u8]) -> bool {
    core::str::from_utf8(piece).is_ok()
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use simd::is_valid;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd {
    use core::arch::wasm32::{
        i8x16_shuffle, u8x16, u8x16_shr, u8x16_splat, u8x16_sub_sat, u8x16_swizzle, v128, v128_and,
        v128_any_true, v128_load, v128_or, v128_xor,
    };

    const TOO_SHORT: u8 = 1;
    const TOO_LONG: u8 = 1 << 1;
    const OVERLONG_3: u8 = 1 << 2;
    const TOO_LARGE: u8 = 1 << 3;
    const SURROGATE: u8 = 1 << 4;
    const OVERLONG_2: u8 = 1 << 5;
    const TOO_LARGE_1000: u8 = 1 << 6;
    const OVERLONG_4: u8 = 1 << 6;
    const TWO_CONTS: u8 = 1 << 7;
    const CARRY: u8 = TOO_SHORT | TOO_LONG | TWO_CONTS;

    /// What is wrong with a pair of bytes, as far as the first one's upper half can tell.
    #[inline(always)]
    fn by_first_high(nibbles: v128) -> v128 {
        const LONG: u8 = TOO_LONG;
        const F: u8 = TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4;
        const C: u8 = TWO_CONTS;
        let table = u8x16(
            LONG,
            LONG,
            LONG,
            LONG,
            LONG,
            LONG,
            LONG,
            LONG,
            C,
            C,
            C,
            C,
            TOO_SHORT | OVERLONG_2,
            TOO_SHORT,
            TOO_SHORT | OVERLONG_3 | SURROGATE,
            F,
        );
        u8x16_swizzle(table, nibbles)
    }

    /// The same by the first one's lower half.
    #[inline(always)]
    fn by_first_low(nibbles: v128) -> v128 {
        const L: u8 = CARRY | TOO_LARGE | TOO_LARGE_1000;
        let table = u8x16(
            CARRY | OVERLONG_3 | OVERLONG_2 | OVERLONG_4,
            CARRY | OVERLONG_2,
            CARRY,
            CARRY,
            CARRY | TOO_LARGE,
            L,
            L,
            L,
            L,
            L,
            L,
            L,
            L,
            L | SURROGATE,
            L,
            L,
        );
        u8x16_swizzle(table, nibbles)
    }

    /// The same by the second one's upper half.
    #[inline(always)]
    fn by_second_high(nibbles: v128) -> v128 {
        const S: u8 = TOO_SHORT;
        const CONT: u8 = TOO_LONG | OVERLONG_2 | TWO_CONTS;
        let table = u8x16(
            S,
            S,
            S,
            S,
            S,
            S,
            S,
            S,
            CONT | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4,
            CONT | OVERLONG_3 | TOO_LARGE,
            CONT | SURROGATE | TOO_LARGE,
            CONT | SURROGATE | TOO_LARGE,
            S,
            S,
            S,
            S,
        );
        u8x16_swizzle(table, nibbles)
    }

    #[inline(always)]
    fn errors(prev: v128, bytes: v128) -> v128 {
        let prev1 = i8x16_shuffle::<15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30>(
            prev, bytes,
        );
        let prev2 = i8x16_shuffle::<14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29>(
            prev, bytes,
        );
        let prev3 = i8x16_shuffle::<13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28>(
            prev, bytes,
        );
        let pairs = v128_and(
            v128_and(
                by_first_high(u8x16_shr(prev1, 4)),
                by_first_low(v128_and(prev1, u8x16_splat(0x0F))),
            ),
            by_second_high(u8x16_shr(bytes, 4)),
        );
        let third = u8x16_sub_sat(prev2, u8x16_splat(0xE0 - 0x80));
        let fourth = u8x16_sub_sat(prev3, u8x16_splat(0xF0 - 0x80));
        v128_xor(v128_and(v128_or(third, fourth), u8x16_splat(0x80)), pairs)
    }

    /// Whether `piece`, which ends no character in its middle, is UTF-8.
    pub(super) fn is_valid(piece: &[u8]) -> bool {
        let (blocks, tail) = piece.as_chunks::<16>();
        let mut prev = u8x16_splat(0);
        let mut wrong = u8x16_splat(0);
        for block in blocks {
            // SAFETY: reads the 16 bytes that the reference stands for; no alignment is asked for.
            let bytes = unsafe { v128_load(block.as_ptr().cast()) };
            wrong = v128_or(wrong, errors(prev, bytes));
            prev = bytes;
        }
        let mut last = [0_u8; 16];
        for (place, &b) in last.iter_mut().zip(tail) {
            *place = b;
        }
        // SAFETY: as above.
        let bytes = unsafe { v128_load(last.as_ptr().cast()) };
        !v128_any_true(v128_or(wrong, errors(prev, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8;

    /// All splits of the text into two pieces, and single bytes, against the standard library.
    #[track_caller]
    fn same_as_std(bytes: &[u8]) {
        let want = core::str::from_utf8(bytes).is_ok();
        for cut in 0..=bytes.len() {
            let mut utf8 = Utf8::default();
            let (a, b) = bytes.split_at(cut);
            assert_eq!(
                utf8.check(a) && utf8.check(b) && utf8.is_whole(),
                want,
                "{bytes:x?} at {cut}"
            );
        }
        let mut utf8 = Utf8::default();
        assert_eq!(
            bytes.iter().all(|&b| utf8.check(&[b])) && utf8.is_whole(),
            want,
            "{bytes:x?}"
        );
    }

    #[test]
    fn pieces_are_judged_as_the_whole() {
        let mut rng = fastrand::Rng::with_seed(3);
        let text = "aé漢字🦀x\u{7FF}\u{800}\u{FFFF}\u{10FFFF}";
        same_as_std(text.as_bytes());
        for _ in 0..5_000 {
            let mut bytes = text.as_bytes().to_vec();
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(0x80..);
            bytes.truncate(rng.usize(0..=bytes.len()));
            same_as_std(&bytes);
        }
    }
}
