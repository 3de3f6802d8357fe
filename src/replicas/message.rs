//! What one replica tells the others at a time, as bytes.
//!
//! ```text
//! magic "wrr2" | process u64 | leader u64 | number u32 | at u64 | section...
//! section: scope u64 | first u32 | counts u16 | entries u32 | counts | entries
//! ```
//! Numbers are little-endian; `counts` says how many, `entries` how many bytes. Counts and entries are
//! those of [`crate::exchange`]. The magic holds the version: another one is read by nobody here.
//!
//! Any bytes are safe to read: every length is checked, and a message is whole or none.

use crate::clock::Millis;
use crate::exchange::{Count, u16_at, u32_at, u64_at};

const MAGIC: [u8; 4] = *b"wrr2";
const HEADER_BYTES: usize = 32;
const SECTION_BYTES: usize = 18;
/// A message is no longer than this.
pub const MAX_BYTES: usize = 64 * 1024;
/// Endpoints with counts in one section at most.
pub const MAX_COUNTS: usize = 512;

/// Who tells, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The gateway process.
    pub process: u64,
    /// The VM that speaks for it.
    pub leader: u64,
    /// The message's number; consecutive for one leader.
    pub number: u32,
    /// The leader's clock.
    pub at: Millis,
}

/// What it tells about one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// The cluster, see [`super::scope`].
    pub scope: u64,
    /// Number of its first log entry.
    pub first: u32,
    /// What the process has in flight, written counts.
    pub counts: &'a [u8],
    /// Log entries, written.
    pub entries: &'a [u8],
}

/// A message without a section.
#[must_use]
pub fn begin(header: &Header) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(header.process.to_le_bytes());
    out.extend(header.leader.to_le_bytes());
    out.extend(header.number.to_le_bytes());
    out.extend(header.at.0.to_le_bytes());
    out
}

/// Adds a section, without its entries where they would make the message too long; not at all where it is too
/// long as it is.
pub fn add(out: &mut Vec<u8>, scope: u64, first: u32, counts: &[Count], entries: &[u8]) {
    let counts = counts.get(..MAX_COUNTS).unwrap_or(counts);
    let bare = out
        .len()
        .saturating_add(SECTION_BYTES)
        .saturating_add(counts.len().saturating_mul(Count::BYTES));
    if bare > MAX_BYTES {
        return;
    }
    let entries = if bare.saturating_add(entries.len()) > MAX_BYTES {
        &[]
    } else {
        entries
    };
    out.extend(scope.to_le_bytes());
    out.extend(first.to_le_bytes());
    out.extend(u16::try_from(counts.len()).unwrap_or(0).to_le_bytes());
    out.extend(u32::try_from(entries.len()).unwrap_or(0).to_le_bytes());
    for count in counts {
        count.write(out);
    }
    out.extend(entries);
}

/// Whether a message has no section.
#[must_use]
pub fn is_bare(bytes: &[u8]) -> bool {
    bytes.len() <= HEADER_BYTES
}

/// Reads a message; `None` when it is of another version, or none at all.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<(Header, Vec<Section<'_>>)> {
    let (header, mut rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    if !header.starts_with(&MAGIC) {
        return None;
    }
    let header = Header {
        process: u64_at(header, 4),
        leader: u64_at(header, 12),
        number: u32_at(header, 20),
        at: Millis(u64_at(header, 24)),
    };
    let mut sections = Vec::new();
    while !rest.is_empty() {
        let (section, behind) = rest.split_first_chunk::<SECTION_BYTES>()?;
        let count_bytes = usize::from(u16_at(section, 12)).checked_mul(Count::BYTES)?;
        let (counts, behind) = behind.split_at_checked(count_bytes)?;
        let entry_bytes = usize::try_from(u32_at(section, 14)).ok()?;
        let (entries, behind) = behind.split_at_checked(entry_bytes)?;
        sections.push(Section {
            scope: u64_at(section, 0),
            first: u32_at(section, 8),
            counts,
            entries,
        });
        rest = behind;
    }
    Some((header, sections))
}
