//! One sample behind its name: `{labels} value [timestamp]`.

use crate::byte_mask::nearby;

/// Calls `each(name, value)` for every label; the value's own escapes are still there. Returns what
/// follows the labels; `None` when they are malformed. `quote` is how the text spells one: where it is an escape itself,
/// labels with any other escape are taken for malformed.
#[inline]
pub fn labels<'t>(
    text: &'t [u8],
    quote: &[u8],
    mut each: impl FnMut(&'t [u8], &'t [u8]),
) -> Option<&'t [u8]> {
    let Some(mut rest) = text.trim_ascii_start().strip_prefix(b"{") else {
        return Some(text);
    };
    loop {
        rest = rest.trim_ascii_start();
        if let Some(behind) = rest.strip_prefix(b"}") {
            return Some(behind);
        }
        let (name, value) = rest.split_at_checked(nearby(rest, [b'=', b'\\']))?;
        let inside = value
            .strip_prefix(b"=")?
            .trim_ascii_start()
            .strip_prefix(quote)?;
        let (value, behind) = inside.split_at_checked(end_of_value(inside, quote)?)?;
        each(name.trim_ascii_end(), value);
        rest = behind.strip_prefix(quote)?.trim_ascii_start();
        rest = match rest.first()? {
            b',' => rest.strip_prefix(b",")?,
            b'}' => rest,
            _ => return None,
        };
    }
}

/// Where the quoted value ends whose inside `text` begins with. Values are short.
#[inline]
fn end_of_value(text: &[u8], quote: &[u8]) -> Option<usize> {
    let mut at = nearby(text, [b'\\', b'"']);
    while quote.len() == 1 && text.get(at) == Some(&b'\\') {
        at = at.saturating_add(2);
        at = at.saturating_add(nearby(text.get(at..)?, [b'\\', b'"']));
    }
    text.get(at..)?.starts_with(quote).then_some(at)
}

/// The value behind the labels; `None` when it is not finite, negative, or not alone but for a
/// timestamp and an exemplar.
pub fn value(text: &[u8]) -> Option<f64> {
    let mut words = text
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let value = number(words.next()?)?;
    match words.next() {
        None | Some(b"#") => {}
        Some(timestamp) => {
            number(timestamp)?;
            if !matches!(words.next(), None | Some(b"#")) {
                return None;
            }
        }
    }
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn number(word: &[u8]) -> Option<f64> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

/// A label's value as a whole number.
pub fn whole(value: &[u8]) -> Option<u64> {
    core::str::from_utf8(value).ok()?.parse().ok()
}

/// Undoes the text format's escapes in a label's value.
pub fn unescape_label(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(other) => other,
                None => byte,
            },
            _ => byte,
        });
    }
    out
}
