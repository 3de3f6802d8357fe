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

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(super) use simd::{copy_run, string_run};
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub(super) use swar::{copy_run, string_run};

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
    use super::{Run, scalar};

    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;

    /// The run at the start of `text`, copied to `room` as far as it fits.
    pub(in super::super) fn copy_run(text: &[u8], room: &mut [u8]) -> Run {
        let run = string_run(text.get(..room.len()).unwrap_or(text));
        for (place, &b) in room.iter_mut().zip(text).take(run.len) {
            *place = b;
        }
        run
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
    use super::{Run, scalar};
    use core::arch::wasm32::{
        i8x16_bitmask, i8x16_eq, u8x16_lt, u8x16_splat, v128, v128_any_true, v128_load, v128_or,
        v128_store, v128_xor,
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

    /// Copies 16 bytes; bits of those that end a run, and of those that are not ASCII.
    ///
    /// # Safety
    /// 16 bytes can be read at `from` and written at `to`.
    #[inline(always)]
    unsafe fn copy_16(from: *const u8, to: *mut u8) -> (u32, u32) {
        // SAFETY: as asked for; no alignment is needed.
        let bytes = unsafe { v128_load(from.cast()) };
        unsafe { v128_store(to.cast(), bytes) };
        let stop = i8x16_bitmask(stops(bytes));
        (u32::from(stop), u32::from(i8x16_bitmask(bytes)))
    }

    /// Copies 64 bytes: those that end a run, or 0, and all of them joined by "or".
    ///
    /// # Safety
    /// 64 bytes can be read at `from` and written at `to`.
    #[inline(always)]
    unsafe fn copy_64(from: *const u8, to: *mut u8) -> (u64, v128) {
        let (from, to) = (from.cast::<v128>(), to.cast::<v128>());
        let copy = |i| {
            // SAFETY: as asked for; no alignment is needed.
            let bytes = unsafe { v128_load(from.wrapping_add(i)) };
            unsafe { v128_store(to.wrapping_add(i), bytes) };
            bytes
        };
        let (a, b, c, d) = (copy(0), copy(1), copy(2), copy(3));
        let all = v128_or(v128_or(a, b), v128_or(c, d));
        let (a, b, c, d) = (stops(a), stops(b), stops(c), stops(d));
        if !v128_any_true(v128_or(v128_or(a, b), v128_or(c, d))) {
            return (0, all);
        }
        let bits = |hits| u64::from(i8x16_bitmask(hits));
        let stop = bits(a) | bits(b) << 16 | bits(c) << 32 | bits(d) << 48;
        (stop, all)
    }

    /// The run at the start of `text`, copied to `room` as far as it fits; what follows it in `room` may
    /// be overwritten. A run said not to be ASCII may be ASCII all the same.
    #[inline(always)]
    pub(in super::super) fn copy_run(text: &[u8], room: &mut [u8]) -> Run {
        let limit = text.len().min(room.len());
        let (from, to) = (text.as_ptr(), room.as_mut_ptr());
        let mut at = 0_usize;
        let mut seen = u8x16_splat(0);
        let mut high = 0;
        // One narrow step for dense escapes, then wide ones, then narrow ones near the end.
        let mut wide = false;
        while limit.wrapping_sub(at) >= 16 {
            // SAFETY: 16 bytes from `at` lie within both.
            let (stop, not_ascii) = unsafe { copy_16(from.wrapping_add(at), to.wrapping_add(at)) };
            if stop != 0 {
                let before = stop.trailing_zeros();
                high |= not_ascii & stop.wrapping_sub(1) & !stop;
                at = at.wrapping_add(before as usize);
                return Run {
                    len: at,
                    ascii: high == 0 && i8x16_bitmask(seen) == 0,
                };
            }
            high |= not_ascii;
            at = at.wrapping_add(16);
            while !wide && limit.wrapping_sub(at) >= 64 {
                // SAFETY: 64 bytes from `at` lie within both.
                let (stop, all) = unsafe { copy_64(from.wrapping_add(at), to.wrapping_add(at)) };
                seen = v128_or(seen, all);
                if stop != 0 {
                    // Bytes behind the end may count as not ASCII, which costs a closer look only.
                    return Run {
                        len: at.wrapping_add(stop.trailing_zeros() as usize),
                        ascii: high == 0 && i8x16_bitmask(seen) == 0,
                    };
                }
                at = at.wrapping_add(64);
            }
            wide = true;
        }
        let mut run = Run {
            len: at,
            ascii: high == 0 && i8x16_bitmask(seen) == 0,
        };
        copy_tail(text, room, &mut run);
        run
    }

    #[cold]
    #[inline(never)]
    fn copy_tail(text: &[u8], room: &mut [u8], run: &mut Run) {
        let start = run.len;
        let text = text.get(..room.len()).unwrap_or(text);
        let tail = text.get(start..).unwrap_or_default();
        *run = scalar(tail, *run);
        for (place, &b) in room.iter_mut().skip(start).zip(tail) {
            *place = b;
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
    use super::{Run, copy_run, scalar, string_run};

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
            let mut room = vec![0; rng.usize(0..350)];
            let copied = copy_run(&bytes, &mut room);
            let fits = bytes.get(..room.len()).unwrap_or(&bytes);
            let run = string_run(fits);
            assert_eq!(copied.len, run.len);
            assert!(run.ascii || !copied.ascii);
            assert_eq!(room.get(..copied.len), bytes.get(..copied.len));
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
