//! Hash of a block of text: 64 bits, well mixed, cheap where SIMD has no wide multiplication.
//!
//! Each 32 bytes are eight 32-bit words, four pairs: a word of the first half and its like of the second.
//! A pair adds the product of its words, each plus a key of its place, to one of four 64-bit sums (NH:
//! Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC", 1999), and the plain words to another, as XXH3
//! does: a word whose partner happens to be the negative of its key still counts. After 256 bytes the
//! sums are mixed into the hash, each by a step that loses nothing, and start anew.
//!
//! It is no secret and no defence: who wants two blocks of one hash can find them, and gains a wrong
//! guess about an endpoint's cache.
//!
//! Cost: about 1.3 wasm instructions a byte; XXH3 costs 3.1.

use super::hash::mix;

/// Bytes after which sums are mixed.
pub(super) const STRIDE: usize = 256;
/// Bytes of one step.
const STEP: usize = 32;
/// Steps of a stride.
const STEPS: usize = STRIDE / STEP;

/// A key for each step.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static KEYS: [[u8; STEP]; STEPS] = {
    let mut keys = [[0; STEP]; STEPS];
    let mut seed = 0_u64;
    let mut at = 0;
    while at < STRIDE {
        // SplitMix64 (Steele, Lea and Flood 2014).
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let bytes = (z ^ (z >> 31)).to_le_bytes();
        let mut i = 0;
        while i < bytes.len() {
            keys[(at + i) / STEP][(at + i) % STEP] = bytes[i];
            i += 1;
        }
        at += bytes.len();
    }
    keys
};

/// Hash of `bytes`; of a whole number of strides it is not the hash of any other length.
#[inline]
pub(super) fn block_hash(bytes: &[u8]) -> u64 {
    let mut hash = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let (strides, tail) = bytes.as_chunks::<STRIDE>();
    for stride in strides {
        let (steps, _) = stride.as_chunks::<STEP>();
        let mut sums = Sums::new();
        for (step, key) in steps.iter().zip(&KEYS) {
            sums.add(step, key);
        }
        hash = sums.mix_into(hash);
    }
    if tail.is_empty() {
        hash
    } else {
        short(tail, hash)
    }
}

/// Less than a stride.
#[inline(never)]
fn short(bytes: &[u8], hash: u64) -> u64 {
    let (steps, tail) = bytes.as_chunks::<STEP>();
    let mut sums = Sums::new();
    let mut keys = KEYS.iter();
    for (step, key) in steps.iter().zip(&mut keys) {
        sums.add(step, key);
    }
    if let Some(key) = keys.next().filter(|_| !tail.is_empty()) {
        let mut last = [0; STEP];
        if let Some(place) = last.get_mut(..tail.len()) {
            place.copy_from_slice(tail);
        }
        sums.add(&last, key);
    }
    sums.mix_into(hash)
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use simd::Sums;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
use words::Sums;

fn mix_all(hash: u64, sums: [u64; 4]) -> u64 {
    sums.into_iter().fold(hash, mix)
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd {
    use super::{STEP, mix_all};
    use core::arch::wasm32::{
        i32x4_add, i64x2_add, u64x2_extmul_high_u32x4, u64x2_extmul_low_u32x4, u64x2_extract_lane,
        u64x2_splat, v128, v128_load,
    };

    /// The sums of pairs 0 and 1, and of pairs 2 and 3.
    pub(super) struct Sums(v128, v128);

    #[inline(always)]
    fn halves(step: &[u8; STEP]) -> (v128, v128) {
        let at = step.as_ptr().cast::<v128>();
        // SAFETY: the step is 32 readable bytes; wasm loads need no alignment.
        unsafe { (v128_load(at), v128_load(at.add(1))) }
    }

    impl Sums {
        #[inline(always)]
        pub(super) fn new() -> Self {
            Self(u64x2_splat(0), u64x2_splat(0))
        }

        #[inline(always)]
        pub(super) fn add(&mut self, step: &[u8; STEP], key: &[u8; STEP]) {
            let ((a, b), (j, k)) = (halves(step), halves(key));
            let (x, y) = (i32x4_add(a, j), i32x4_add(b, k));
            self.0 = i64x2_add(i64x2_add(self.0, b), u64x2_extmul_low_u32x4(x, y));
            self.1 = i64x2_add(i64x2_add(self.1, a), u64x2_extmul_high_u32x4(x, y));
        }

        #[inline(always)]
        pub(super) fn mix_into(self, hash: u64) -> u64 {
            let sums = [
                u64x2_extract_lane::<0>(self.0),
                u64x2_extract_lane::<1>(self.0),
                u64x2_extract_lane::<0>(self.1),
                u64x2_extract_lane::<1>(self.1),
            ];
            mix_all(hash, sums)
        }
    }
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod words {
    use super::{STEP, mix_all};

    /// The sums of the four pairs.
    pub(super) struct Sums([u64; 4]);

    fn word(bytes: &[u8; 4]) -> u32 {
        u32::from_le_bytes(*bytes)
    }

    fn long(low: &[u8; 4], high: &[u8; 4]) -> u64 {
        u64::from(word(low)) | u64::from(word(high)) << 32
    }

    impl Sums {
        #[inline]
        pub(super) fn new() -> Self {
            Self([0; 4])
        }

        #[inline]
        pub(super) fn add(&mut self, step: &[u8; STEP], key: &[u8; STEP]) {
            let ([a0, a1, a2, a3, b0, b1, b2, b3], [j0, j1, j2, j3, k0, k1, k2, k3]) =
                (step.as_chunks::<4>().0, key.as_chunks::<4>().0)
            else {
                return;
            };
            let pair = |a, j, b, k| {
                let (x, y) = (word(a).wrapping_add(word(j)), word(b).wrapping_add(word(k)));
                u64::from(x).wrapping_mul(u64::from(y))
            };
            let more = [
                pair(a0, j0, b0, k0).wrapping_add(long(b0, b1)),
                pair(a1, j1, b1, k1).wrapping_add(long(b2, b3)),
                pair(a2, j2, b2, k2).wrapping_add(long(a0, a1)),
                pair(a3, j3, b3, k3).wrapping_add(long(a2, a3)),
            ];
            for (sum, more) in self.0.iter_mut().zip(more) {
                *sum = sum.wrapping_add(more);
            }
        }

        #[inline]
        pub(super) fn mix_into(self, hash: u64) -> u64 {
            mix_all(hash, self.0)
        }
    }
}

#[cfg(test)]
mod tests;
