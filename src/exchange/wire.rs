//! Counts and log entries as bytes, little-endian: a count is 44 bytes, an entry 15 and 8 a block.

use crate::clock::Millis;
use crate::request::BlockHash;

/// Blocks of one record told at most: a longer prompt is told by its head.
const MAX_TOLD_BLOCKS: usize = 4_096;

/// What one VM has in flight at one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The endpoint, by the hash of its address.
    pub name_hash: u64,
    /// Requests.
    pub inflight: u32,
    /// Of these, without a first token.
    pub awaiting_first: u32,
    /// Their uncached prompt tokens, progress not taken off.
    pub prefill_tokens: u32,
    /// The oldest of them that streams: its uncached tokens and when it was sent; 0 = none.
    pub oldest_tokens: u32,
    /// See [`Self::oldest_tokens`].
    pub oldest_at: Millis,
    /// When the endpoint last gave a first token.
    pub first_token_at: Millis,
    /// Cold prompts sent there lately, in thousandths.
    pub cold_milli: u32,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What happened.
    pub what: What,
    /// Where, by the hash of the endpoint's address.
    pub name_hash: u64,
    /// Of a record: tokens of its request that the endpoint has to compute.
    pub uncached_tokens: u32,
    /// To which blocks, in order.
    pub blocks: Vec<BlockHash>,
}

/// What a log entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The endpoint holds these blocks, or will.
    Recorded = 1,
    /// It does not after all.
    Withdrawn = 2,
    /// It holds nothing any more.
    Emptied = 3,
}

impl Count {
    /// Size of one, written.
    pub(crate) const BYTES: usize = 44;

    /// Both senders' counts for the endpoint.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (later, oldest) = if self.oldest_at == Millis(0)
            || (other.oldest_at != Millis(0) && other.oldest_at < self.oldest_at)
        {
            (self, other)
        } else {
            (other, self)
        };
        Self {
            name_hash: self.name_hash,
            inflight: later.inflight.saturating_add(oldest.inflight),
            awaiting_first: later.awaiting_first.saturating_add(oldest.awaiting_first),
            prefill_tokens: later.prefill_tokens.saturating_add(oldest.prefill_tokens),
            oldest_tokens: oldest.oldest_tokens,
            oldest_at: oldest.oldest_at,
            first_token_at: later.first_token_at.max(oldest.first_token_at),
            cold_milli: later.cold_milli.saturating_add(oldest.cold_milli),
        }
    }

    /// Adds itself to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.name_hash.to_le_bytes());
        out.extend(self.inflight.to_le_bytes());
        out.extend(self.awaiting_first.to_le_bytes());
        out.extend(self.prefill_tokens.to_le_bytes());
        out.extend(self.oldest_tokens.to_le_bytes());
        out.extend(self.oldest_at.0.to_le_bytes());
        out.extend(self.first_token_at.0.to_le_bytes());
        out.extend(self.cold_milli.to_le_bytes());
    }

    /// All that stand in `bytes`.
    pub(crate) fn read_all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.chunks_exact(Self::BYTES).map(|count| Self {
            name_hash: u64_at(count, 0),
            inflight: u32_at(count, 8),
            awaiting_first: u32_at(count, 12),
            prefill_tokens: u32_at(count, 16),
            oldest_tokens: u32_at(count, 20),
            oldest_at: Millis(u64_at(count, 24)),
            first_token_at: Millis(u64_at(count, 32)),
            cold_milli: u32_at(count, 40),
        })
    }
}

/// An entry as it stands in a log.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    what: What,
    /// All of it.
    pub bytes: &'a [u8],
}

impl Told {
    /// Adds an entry to `out`.
    pub(crate) fn write(
        what: What,
        name_hash: u64,
        uncached_tokens: u32,
        blocks: &[BlockHash],
        out: &mut Vec<u8>,
    ) {
        let blocks = blocks.get(..MAX_TOLD_BLOCKS).unwrap_or(blocks);
        out.push(what as u8);
        out.extend(name_hash.to_le_bytes());
        out.extend(u16::try_from(blocks.len()).unwrap_or(0).to_le_bytes());
        out.extend(uncached_tokens.to_le_bytes());
        for block in blocks {
            out.extend(block.to_le_bytes());
        }
    }
}

impl<'a> Entry<'a> {
    const HEADER_BYTES: usize = 15;

    /// The entry at the head of `bytes`, and what follows it.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = bytes.first_chunk::<{ Entry::HEADER_BYTES }>()?;
        let what = [What::Recorded, What::Withdrawn, What::Emptied]
            .into_iter()
            .find(|known| Some(&(*known as u8)) == header.first())?;
        let size = usize::from(u16_at(header, 9)).checked_mul(8)?;
        let (bytes, rest) = bytes.split_at_checked(size.checked_add(Self::HEADER_BYTES)?)?;
        Some((Self { what, bytes }, rest))
    }

    /// How many blocks it tells.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.bytes.len().saturating_sub(Self::HEADER_BYTES) / 8
    }

    /// What it says.
    #[must_use]
    pub fn told(&self) -> Told {
        self.told_while(|_| true)
    }

    /// What it says of its first blocks, as many as are `wanted`.
    pub(crate) fn told_while(&self, mut wanted: impl FnMut(BlockHash) -> bool) -> Told {
        let blocks = self.bytes.get(Self::HEADER_BYTES..).unwrap_or_default();
        let blocks = blocks.chunks_exact(8).map(|block| u64_at(block, 0));
        Told {
            what: self.what,
            name_hash: u64_at(self.bytes, 1),
            uncached_tokens: u32_at(self.bytes, 11),
            blocks: blocks.take_while(|block| wanted(*block)).collect(),
        }
    }
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    part.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    part.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
    part.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}
