//! How far a JSON string runs without anything that needs a look.
//!
//! Flipping bit 1 of every byte moves the quote (0x22) next to the control characters, which stay
//! among themselves: one comparison (below 0x21) finds both, a second one the backslash.
//!
//! Cost: about 0.8 wasm instructions a byte with SIMD.

/// A run of string bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Bytes before the first quote, backslash or control character, or all of them.
    pub(super) len: usize,
    /// Whether all of them are ASCII.
    pub(super) ascii: bool,
}

/// What [`block_run`] finds in 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRun {
    /// Bytes before the first quote, backslash or control character, or 16.
    pub(super) len: usize,
    /// Not zero when any of them is not ASCII.
    pub(super) high: u32,
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(super) use simd::{block_run, string_run};
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub(super) use swar::{block_run, string_run};

/// Byte by byte: the last few bytes, and what the fast ways are tested against.
fn scalar(bytes: &[u8], mut run: Run) -> Run {
    for &b in bytes {
        if b < 0x20 || b == b'"' || b == b'\\' {
            break;
        }
        run.ascii &= b < 0x80;
        run.len = run.len.saturating_add(1);
    }
    run
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod swar {
    use super::{BlockRun, Run, scalar};

    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;

    pub(in super::super) fn block_run(block: &[u8; 16]) -> BlockRun {
        let run = scalar(
            block,
            Run {
                len: 0,
                ascii: true,
            },
        );
        BlockRun {
            len: run.len,
            high: u32::from(!run.ascii),
        }
    }

    pub(in super::super) fn string_run(bytes: &[u8]) -> Run {
        let (words, _) = bytes.as_chunks::<8>();
        let mut run = Run {
            len: 0,
            ascii: true,
        };
        let mut seen = 0;
        for word in words {
            let word = u64::from_le_bytes(*word);
            let flipped = word ^ (ONES * 0x02);
            let slash = flipped ^ (ONES * 0x5E);
            let stops = (flipped.wrapping_sub(ONES * 0x21) & !flipped)
                | (slash.wrapping_sub(ONES) & !slash);
            if stops & HIGHS != 0 {
                break;
            }
            seen |= word;
            run.len = run.len.saturating_add(8);
        }
        run.ascii = seen & HIGHS == 0;
        scalar(bytes.get(run.len..).unwrap_or_default(), run)
    }
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd {
    use super::{BlockRun, Run, scalar};
    use core::arch::wasm32::{
        i8x16_bitmask, i8x16_eq, u8x16_lt, u8x16_splat, v128, v128_any_true, v128_load, v128_or,
        v128_xor,
    };

    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> v128 {
        // SAFETY: reads the 16 bytes that the reference stands for; no alignment is asked for.
        unsafe { v128_load(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn stops(bytes: v128) -> v128 {
        let flipped = v128_xor(bytes, u8x16_splat(0x02));
        v128_or(
            u8x16_lt(flipped, u8x16_splat(0x21)),
            i8x16_eq(flipped, u8x16_splat(0x5E)),
        )
    }

    /// Goes on in steps of 16 bytes, at most `steps`; `true` when the run has ended.
    #[inline(always)]
    fn by_16(bytes: &[u8], run: &mut Run, steps: usize) -> bool {
        let (blocks, _) = bytes.get(run.len..).unwrap_or_default().as_chunks::<16>();
        for block in blocks.iter().take(steps) {
            let block = load(block);
            let high = i8x16_bitmask(block);
            let stop = i8x16_bitmask(stops(block));
            if stop != 0 {
                let before = stop.trailing_zeros();
                run.ascii &= high & ((1_u16 << before).wrapping_sub(1)) == 0;
                run.len = run.len.wrapping_add(before as usize);
                return true;
            }
            run.ascii &= high == 0;
            run.len = run.len.wrapping_add(16);
        }
        false
    }

    #[inline(always)]
    pub(in super::super) fn block_run(block: &[u8; 16]) -> BlockRun {
        let block = load(block);
        let stop = u32::from(i8x16_bitmask(stops(block))) | 1 << 16;
        BlockRun {
            len: stop.trailing_zeros() as usize,
            high: u32::from(i8x16_bitmask(block)) & stop.wrapping_sub(1) & !stop,
        }
    }

    pub(in super::super) fn string_run(bytes: &[u8]) -> Run {
        let mut run = Run {
            len: 0,
            ascii: true,
        };
        if by_16(bytes, &mut run, 4) {
            return run;
        }
        let (blocks, _) = bytes.get(run.len..).unwrap_or_default().as_chunks::<64>();
        let mut seen = u8x16_splat(0);
        for block in blocks {
            let (quarters, _) = block.as_chunks::<16>();
            let [a, b, c, d] = quarters else { break };
            let (a, b, c, d) = (load(a), load(b), load(c), load(d));
            let any = v128_or(v128_or(stops(a), stops(b)), v128_or(stops(c), stops(d)));
            if v128_any_true(any) {
                break;
            }
            seen = v128_or(seen, v128_or(v128_or(a, b), v128_or(c, d)));
            run.len = run.len.wrapping_add(64);
        }
        run.ascii &= i8x16_bitmask(seen) == 0;
        if by_16(bytes, &mut run, usize::MAX) {
            return run;
        }
        scalar(bytes.get(run.len..).unwrap_or_default(), run)
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, scalar, string_run};

    #[test]
    fn fast_and_slow_agree() {
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..20_000 {
            let len = rng.usize(0..300);
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.u8(0x23..0x5C)).collect();
            for _ in 0..round % 3 {
                if let Some(b) = (len > 0)
                    .then(|| rng.usize(0..len))
                    .and_then(|i| bytes.get_mut(i))
                {
                    *b = rng.u8(..);
                }
            }
            assert_eq!(
                string_run(&bytes),
                scalar(
                    &bytes,
                    Run {
                        len: 0,
                        ascii: true
                    }
                ),
                "{bytes:x?}"
            );
        }
    }

    #[test]
    fn every_byte_is_judged() {
        for b in 0..=255_u8 {
            let mut bytes = [b'a'; 96];
            bytes[70] = b;
            let stops = b < 0x20 || b == b'"' || b == b'\\';
            let run = string_run(&bytes);
            assert_eq!(run.len, if stops { 70 } else { 96 }, "{b:#x}");
            assert_eq!(run.ascii, stops || b < 0x80, "{b:#x}");
        }
    }
}
