//! Base64 (RFC 4648, with padding), as etcd's JSON wants its bytes. The crates for it take ten times the room in
//! the plugin.
//!
//! Cost: O(bytes).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text for `bytes`.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4_usize {
            let six = (bits >> (18 - 6 * place)) & 63;
            let letter = usize::try_from(six).ok().and_then(|six| ALPHABET.get(six));
            let is_there = place <= three.len();
            text.push(letter.filter(|_| is_there).map_or('=', |l| char::from(*l)));
        }
    }
    text
}

/// The bytes of `text`; `None` when it is not such a text.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let whole = text.strip_suffix(b"=").unwrap_or(text);
    let whole = whole.strip_suffix(b"=").unwrap_or(whole);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for letter in whole {
        let six = match letter {
            b'A'..=b'Z' => letter.wrapping_sub(b'A'),
            b'a'..=b'z' => letter.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => letter.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count = count.wrapping_add(6);
        if count >= 8 {
            count = count.wrapping_sub(8);
            let [.., byte] = (bits >> count).to_be_bytes();
            bytes.push(byte);
        }
    }
    text.len().is_multiple_of(4).then_some(bytes)
}
