//! The host list of a gateway that keeps its endpoints' metrics (Higress).
//!
//! Bytes of one call, all numbers u32 little-endian: a count; for each host the lengths of key and
//! value; then for each host key, NUL, value, NUL. The key is the address (`ip:port`, `[v6]:port`),
//! the value a JSON object with `health_status` and, where the gateway has them, `metrics`.
//!
//! The bytes are the gateway's, but nothing here trusts them: whatever they are, reading ends.
//!
//! Cost: [`Hosts`] a few dozen instructions a host, [`health_of`] about 150, whatever the length of
//! the metrics; [`host_info`] the same for a text that ends in a newline, else one search of it.

use crate::endpoints::MAX_ENDPOINTS;
use crate::endpoints::load::Health;
use crate::raw_json::{RawJsonStr, string};

/// What the gateway says of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostInfo<'a> {
    /// Its health; `None` when the gateway did not say.
    pub health: Option<Health>,
    /// The engine's metrics text; `None` when the gateway has none.
    pub metrics: Option<RawJsonStr<'a>>,
}

/// The hosts of one list: address and JSON. Ends at the first host whose bytes are not there.
#[derive(Clone, Debug)]
pub struct Hosts<'a> {
    sizes: &'a [[u8; 8]],
    data: &'a [u8],
}

impl<'a> Hosts<'a> {
    /// Reads a list. An empty one, as the gateway gives it where there is no cluster, has no hosts.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let (count, rest) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let claimed = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
        let (sizes, data) = claimed
            .checked_mul(8)
            .and_then(|len| rest.split_at_checked(len))
            .unwrap_or_default();
        let (sizes, _) = sizes.as_chunks();
        Self {
            sizes: sizes.get(..MAX_ENDPOINTS).unwrap_or(sizes),
            data,
        }
    }
}

impl<'a> Iterator for Hosts<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (size, sizes) = self.sizes.split_first()?;
        let [k0, k1, k2, k3, v0, v1, v2, v3] = *size;
        let (key, rest) = field(self.data, [k0, k1, k2, k3])?;
        let (value, rest) = field(rest, [v0, v1, v2, v3])?;
        self.sizes = sizes;
        self.data = rest;
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.sizes.len()))
    }
}

/// A field of `len` bytes and its NUL, and what follows.
fn field(data: &[u8], len: [u8; 4]) -> Option<(&[u8], &[u8])> {
    let len = usize::try_from(u32::from_le_bytes(len)).ok()?;
    let (value, rest) = data.split_at_checked(len)?;
    Some((value, rest.strip_prefix(b"\0")?))
}

/// Where a short key after a long text is looked for first.
const TAIL_BYTES: usize = 96;

const HEALTH_KEY: &[u8] = b"\"health_status\"";

/// A host's health alone, without reading its metrics: from the object's first member, or from its
/// end; by a walk over all members where neither shows it.
#[must_use]
pub fn health_of(json: &[u8]) -> Option<Health> {
    let first = open_object(json)?;
    if let Some(value) = value_of(first, HEALTH_KEY) {
        return Some(health(string(value)?.0));
    }
    let tail = json.len().saturating_sub(TAIL_BYTES);
    let tail = json.get(tail..).unwrap_or_default();
    let at = tail
        .windows(HEALTH_KEY.len())
        .rposition(|window| window == HEALTH_KEY);
    if let Some(at) = at.filter(|at| *at > 0)
        && let (Some(before), Some(key)) = (tail.get(..at), tail.get(at..))
        // Inside the metrics every quote has a backslash before it; a member has a comma.
        && before.trim_ascii_end().last() == Some(&b',')
        && let Some((value, _)) = value_of(key, HEALTH_KEY).and_then(string)
    {
        return Some(health(value));
    }
    walk(first).health
}

/// A host's health and metrics.
#[must_use]
pub fn host_info(json: &[u8]) -> HostInfo<'_> {
    let Some(first) = open_object(json) else {
        return HostInfo::default();
    };
    if let Some((status, rest)) = value_of(first, HEALTH_KEY).and_then(string)
        && let Some(second) = rest.trim_ascii_start().strip_prefix(b",")
        && let Some(text) = value_of(second, b"\"metrics\"")
        && let Some(text) = text.strip_prefix(b"\"")
        && let Some(metrics) = to_end_of_object(text)
    {
        return HostInfo {
            health: Some(health(status)),
            metrics: Some(metrics),
        };
    }
    walk(first)
}

/// The object's last string, whose inside begins at `text`, found from its end. Only a text that
/// ends in a newline is taken so: nothing but metrics ends like that.
fn to_end_of_object(text: &[u8]) -> Option<RawJsonStr<'_>> {
    let text = text.trim_ascii_end().strip_suffix(b"}")?;
    let text = text.trim_ascii_end().strip_suffix(b"\"")?;
    let lines = text.strip_suffix(b"\\n")?;
    let escapes = lines.iter().rev().take_while(|&&b| b == b'\\').count();
    (escapes % 2 == 0).then_some(RawJsonStr(text))
}

/// All members one after the other; the first of a name counts.
fn walk(mut rest: &[u8]) -> HostInfo<'_> {
    let mut info = HostInfo::default();
    while let Some((name, behind)) = string(rest) {
        let Some(value) = behind.trim_ascii_start().strip_prefix(b":") else {
            break;
        };
        let value = value.trim_ascii_start();
        let behind = match string(value) {
            Some((text, behind)) => {
                match name {
                    b"health_status" => info.health = info.health.or(Some(health(text))),
                    b"metrics" => info.metrics = info.metrics.or(Some(RawJsonStr(text))),
                    _ => {}
                }
                behind
            }
            None => skip_value(value),
        };
        let Some(next) = behind.trim_ascii_start().strip_prefix(b",") else {
            break;
        };
        rest = next.trim_ascii_start();
    }
    info
}

/// What follows a value that is no string.
fn skip_value(mut rest: &[u8]) -> &[u8] {
    let mut depth = 0_u32;
    while let Some((&byte, behind)) = rest.split_first() {
        match byte {
            b'"' => {
                let Some((_, behind)) = string(rest) else {
                    return &[];
                };
                rest = behind;
                continue;
            }
            b'{' | b'[' => depth = depth.saturating_add(1),
            b',' | b'}' | b']' if depth == 0 => return rest,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        rest = behind;
    }
    rest
}

/// What follows the brace that opens an object.
fn open_object(json: &[u8]) -> Option<&[u8]> {
    let inside = json.trim_ascii_start().strip_prefix(b"{")?;
    Some(inside.trim_ascii_start())
}

/// The value behind `key` and its colon, when `text` begins with that.
fn value_of<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    let rest = text.trim_ascii_start().strip_prefix(key)?;
    let value = rest.trim_ascii_start().strip_prefix(b":")?;
    Some(value.trim_ascii_start())
}

/// A health word as Envoy spells it; a word that we do not know speaks against the host.
fn health(word: &[u8]) -> Health {
    match word {
        b"Healthy" => Health::Healthy,
        b"Degraded" => Health::Degraded,
        _ => Health::Unhealthy,
    }
}
