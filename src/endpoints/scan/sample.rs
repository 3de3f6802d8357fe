//! One sample behind its name: `{labels} value [timestamp]`.

/// Calls `each(name, value)` for every label; the value's own escapes are still there. Returns what
/// follows the labels; `None` when they are malformed.
#[inline]
pub fn labels<'t>(text: &'t [u8], mut each: impl FnMut(&'t [u8], &'t [u8])) -> Option<&'t [u8]> {
    let mut rest = text.trim_ascii_start();
    let Some(inside) = rest.strip_prefix(b"{") else {
        return Some(rest);
    };
    rest = inside;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(behind) = rest.strip_prefix(b"}") {
            return Some(behind);
        }
        let name_len = rest.iter().position(|&b| b == b'=')?;
        let (name, value) = rest.split_at_checked(name_len)?;
        let value = value.strip_prefix(b"=")?.trim_ascii_start();
        let value = value.strip_prefix(b"\"")?;
        let value_len = quoted_len(value)?;
        let (value, behind) = value.split_at_checked(value_len)?;
        each(name.trim_ascii_end(), value);
        rest = behind.strip_prefix(b"\"")?.trim_ascii_start();
        rest = match rest.first()? {
            b',' => rest.strip_prefix(b",")?,
            b'}' => rest,
            _ => return None,
        };
    }
}

/// Bytes before the quote that ends a label's value.
#[inline]
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    })
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
