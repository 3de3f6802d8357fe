//! Header maps and the form in which they cross the boundary.
//!
//! u32 LE count; per pair u32 name length and u32 value length; per pair name, NUL, value, NUL.

/// Names and values in order, bytes not text; names are lower case.
pub type HeaderMap = Vec<(Vec<u8>, Vec<u8>)>;

/// A header map from text.
#[must_use]
pub fn header_map(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (
                name.to_ascii_lowercase().into_bytes(),
                value.as_bytes().to_vec(),
            )
        })
        .collect()
}

/// The first value of `name`.
#[must_use]
pub fn header<'a>(map: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    map.iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value.as_slice())
}

/// Pairs as bytes.
pub(super) fn encode(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = length(pairs.len()).to_vec();
    for (name, value) in pairs {
        bytes.extend_from_slice(&length(name.len()));
        bytes.extend_from_slice(&length(value.len()));
    }
    for (name, value) in pairs {
        bytes.extend_from_slice(name);
        bytes.push(0);
        bytes.extend_from_slice(value);
        bytes.push(0);
    }
    bytes
}

/// Bytes as pairs; `None` when they are cut or malformed. No bytes are no pairs.
pub(super) fn decode(bytes: &[u8]) -> Option<HeaderMap> {
    if bytes.is_empty() {
        return Some(HeaderMap::new());
    }
    let (count, rest) = take_length(bytes)?;
    let (mut lengths, mut text) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut map = HeaderMap::new();
    for _ in 0..count {
        let (name_length, rest) = take_length(lengths)?;
        let (value_length, rest) = take_length(rest)?;
        lengths = rest;
        let (name, rest) = take_text(text, name_length)?;
        let (value, rest) = take_text(rest, value_length)?;
        text = rest;
        map.push((name.to_ascii_lowercase(), value.to_vec()));
    }
    Some(map)
}

fn length(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}

fn take_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*head)).ok()?, rest))
}

fn take_text(bytes: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(size)?;
    Some((text, rest.strip_prefix(&[0])?))
}
