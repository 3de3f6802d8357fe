//! Byte search, 64 bytes a step: which of them equal a wanted byte, as bits of a `u64`.
//!
//! Bit `i` of a mask stands for byte `i` of the block. With wasm SIMD a step costs some 50 instructions
//! for one byte and 90 for a pair; elsewhere the same answer comes from eight-byte words.

/// Bytes looked at in one step.
pub const BLOCK: usize = 64;

/// Bits of the bytes of `block` that equal `byte`.
#[inline(always)]
#[must_use]
pub fn eq_mask(block: &[u8; BLOCK], byte: u8) -> u64 {
    imp::eq_mask(block, byte)
}

/// Bits of the places where `a` holds `x` and `b` holds `y`: a pair at a fixed distance, when `b` is
/// the same text read that much later.
#[inline(always)]
#[must_use]
pub fn pair_mask(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> u64 {
    imp::pair_mask(a, x, b, y)
}

/// Whether [`pair_mask`] would have any bit: cheaper where pairs are rare.
#[inline(always)]
#[must_use]
pub fn any_pair(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> bool {
    imp::any_pair(a, x, b, y)
}

/// The 64 bytes of `text` from `at`, when there are so many.
#[inline(always)]
#[must_use]
pub fn block_at(text: &[u8], at: usize) -> Option<&[u8; BLOCK]> {
    text.get(at..)?.first_chunk()
}

/// Bytes before the first of two, or all of them: for what is near, eight bytes a step.
#[inline]
#[must_use]
pub fn nearby(text: &[u8], bytes: [u8; 2]) -> usize {
    const WORD: usize = 8;
    const ONES: u64 = u64::MAX / 255;
    let mut at = 0_usize;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk::<WORD>) {
        let word = u64::from_le_bytes(*word);
        // The lowest mark is right; a borrow may set others above it.
        let marks = bytes.map(|byte| {
            let differs = word ^ ONES.wrapping_mul(u64::from(byte));
            differs.wrapping_sub(ONES) & !differs & (ONES << 7)
        });
        let [one, other] = marks;
        if one | other != 0 {
            return at.wrapping_add((one | other).trailing_zeros() as usize / WORD);
        }
        at = at.wrapping_add(WORD);
    }
    let rest = text.get(at..).unwrap_or_default();
    let near = rest.iter().position(|b| bytes.contains(b));
    at.wrapping_add(near.unwrap_or(rest.len()))
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod imp {
    use super::BLOCK;
    use core::arch::wasm32::{
        u8x16_bitmask, u8x16_eq, u8x16_splat, v128, v128_and, v128_any_true, v128_load, v128_or,
    };

    /// Lane `16 * i ..` of the block.
    #[inline(always)]
    fn lanes(block: &[u8; BLOCK]) -> [v128; 4] {
        let at = block.as_ptr().cast::<v128>();
        // SAFETY: the block is 64 readable bytes, four vectors; wasm loads need no alignment.
        unsafe {
            [
                v128_load(at),
                v128_load(at.add(1)),
                v128_load(at.add(2)),
                v128_load(at.add(3)),
            ]
        }
    }

    #[inline(always)]
    fn bits(hits: [v128; 4]) -> u64 {
        let [a, b, c, d] = hits.map(|hit| u64::from(u8x16_bitmask(hit)));
        a | (b << 16) | (c << 32) | (d << 48)
    }

    #[inline(always)]
    pub fn eq_mask(block: &[u8; BLOCK], byte: u8) -> u64 {
        let wanted = u8x16_splat(byte);
        bits(lanes(block).map(|lane| u8x16_eq(lane, wanted)))
    }

    #[inline(always)]
    fn pairs(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> [v128; 4] {
        let (x, y) = (u8x16_splat(x), u8x16_splat(y));
        let [a0, a1, a2, a3] = lanes(a);
        let [b0, b1, b2, b3] = lanes(b);
        [(a0, b0), (a1, b1), (a2, b2), (a3, b3)]
            .map(|(a, b)| v128_and(u8x16_eq(a, x), u8x16_eq(b, y)))
    }

    #[inline(always)]
    pub fn pair_mask(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> u64 {
        bits(pairs(a, x, b, y))
    }

    #[inline(always)]
    pub fn any_pair(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> bool {
        let [p, q, r, s] = pairs(a, x, b, y);
        v128_any_true(v128_or(v128_or(p, q), v128_or(r, s)))
    }
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod imp {
    use super::BLOCK;

    const LOW7: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    /// Gathers the lowest bit of each byte into the top byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;

    #[inline]
    pub fn eq_mask(block: &[u8; BLOCK], byte: u8) -> u64 {
        let wanted = ONES.wrapping_mul(u64::from(byte));
        let mut mask = 0;
        let (words, _) = block.as_chunks::<8>();
        for word in words.iter().rev() {
            let differs = u64::from_le_bytes(*word) ^ wanted;
            // Exact for every byte: no carry crosses from one to the next.
            let same = !(((differs & LOW7).wrapping_add(LOW7)) | differs | LOW7);
            mask = (mask << 8) | ((same >> 7).wrapping_mul(GATHER) >> 56);
        }
        mask
    }

    #[inline]
    pub fn pair_mask(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> u64 {
        eq_mask(a, x) & eq_mask(b, y)
    }

    #[inline]
    pub fn any_pair(a: &[u8; BLOCK], x: u8, b: &[u8; BLOCK], y: u8) -> bool {
        pair_mask(a, x, b, y) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_agree_with_a_plain_loop() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let few = |rng: &mut fastrand::Rng| match rng.u8(..6) {
                0 => b'\n',
                1 => b'\n' ^ 0x80,
                2 => b'\n' - 1,
                3 => b'\n' + 1,
                _ => rng.u8(..),
            };
            let a: [u8; BLOCK] = core::array::from_fn(|_| few(&mut rng));
            let b: [u8; BLOCK] = core::array::from_fn(|_| few(&mut rng));
            let mut eq = 0;
            let mut pair = 0;
            for i in 0..BLOCK {
                eq |= u64::from(a[i] == b'\n') << i;
                pair |= u64::from(a[i] == b'\n' && b[i] == b'\t') << i;
            }
            assert_eq!(eq_mask(&a, b'\n'), eq);
            assert_eq!(pair_mask(&a, b'\n', &b, b'\t'), pair);
            assert_eq!(any_pair(&a, b'\n', &b, b'\t'), pair != 0);
            let near = a.iter().position(|&x| x == b'\n' || x == b'\t');
            assert_eq!(nearby(&a, [b'\n', b'\t']), near.unwrap_or(BLOCK));
            let near = a[5..].iter().position(|&x| x == b'\n');
            assert_eq!(nearby(&a[5..], [b'\n', b'\n']), near.unwrap_or(BLOCK - 5));
        }
    }
}
