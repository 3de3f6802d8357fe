//! The character class of a `prompt.ignore` entry, such as `0-9a-f`.
//!
//! Single characters and `from-to` ranges of printable ASCII, space included. A `-` that stands first
//! or last is itself. There is no escape and no negation: the set is what is written.

use super::CharClass;

/// Reads a class; `None` when it is empty, holds anything but printable ASCII, or a range runs backwards.
#[must_use]
pub fn char_class(text: &str) -> Option<CharClass> {
    let mut set = 0u128;
    let mut rest = text.as_bytes();
    loop {
        let (from, to) = match rest {
            [] => break,
            [from, b'-', to, tail @ ..] => {
                rest = tail;
                (*from, *to)
            }
            [one, tail @ ..] => {
                rest = tail;
                (*one, *one)
            }
        };
        if from > to || from < b' ' || to > b'~' {
            return None;
        }
        for byte in from..=to {
            set |= 1u128 << byte;
        }
    }
    (set != 0).then_some(CharClass(set))
}
