//! JSON strings as they stand in a text: found, not decoded.

use crate::byte_mask::{BLOCK, block_at, eq_mask};

/// The inside of a JSON string, escapes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawJsonStr<'a>(pub &'a [u8]);

/// The inside of the string at the head of `text`, and what follows its closing quote. `None` when
/// there is no string or it does not end. Cost: about half an instruction a byte.
#[must_use]
pub fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"\"")?;
    let end = closing_quote(inside)?;
    let (value, rest) = inside.split_at_checked(end)?;
    Some((value, rest.strip_prefix(b"\"")?))
}

/// Whether the byte at `at` is escaped: an odd number of backslashes stands before it.
#[inline(always)]
#[must_use]
pub fn is_escaped(text: &[u8], at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    before.last() == Some(&b'\\')
        && before.iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

/// Where the string ends whose inside `text` begins with.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    while let Some(block) = block_at(text, at) {
        let mut quotes = eq_mask(block, b'"');
        while quotes != 0 {
            let quote = at.wrapping_add(quotes.trailing_zeros() as usize);
            if !is_escaped(text, quote) {
                return Some(quote);
            }
            quotes &= quotes.wrapping_sub(1);
        }
        at = at.wrapping_add(BLOCK);
    }
    let rest = text.get(at..)?;
    let quotes = rest.iter().enumerate().filter(|(_, b)| **b == b'"');
    quotes
        .map(|(i, _)| at.wrapping_add(i))
        .find(|quote| !is_escaped(text, *quote))
}
