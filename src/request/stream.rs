//! One section of a prompt as hashed blocks, filled front to back.
//!
//! A block's content is hashed apart from the chain, so that sections may arrive in any order and
//! the seed last. Blocks that lie inside one piece of text are hashed in place.
//!
//! Cost: 12 bytes a block and one partial block; each byte is hashed once.

use super::block_hash::block_hash;

/// Blocks of one section.
#[derive(Debug)]
pub(super) struct Stream {
    /// Content hash of each block.
    pub(super) contents: Vec<u64>,
    /// Text bytes up to the end of each block.
    pub(super) ends: Vec<u32>,
    /// Text bytes so far, hashed or not.
    pub(super) bytes: u64,
    /// More whole blocks came than may be kept; the rest is counted only.
    pub(super) overflow: bool,
    partial: Vec<u8>,
    block_bytes: usize,
    max_blocks: usize,
}

/// A place in a stream to go back to.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    blocks: usize,
    partial: Vec<u8>,
    bytes: u64,
    overflow: bool,
}

impl Stream {
    pub(super) fn new(block_bytes: u32, max_blocks: u32) -> Self {
        Self {
            contents: Vec::new(),
            ends: Vec::new(),
            bytes: 0,
            overflow: false,
            partial: Vec::new(),
            block_bytes: usize::try_from(block_bytes).unwrap_or(usize::MAX).max(1),
            max_blocks: usize::try_from(max_blocks).unwrap_or(usize::MAX),
        }
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.truncate(0);
        self.bytes = 0;
        self.overflow = false;
    }

    /// Drops the partial block and every block from `blocks` on.
    pub(super) fn truncate(&mut self, blocks: usize) {
        self.contents.truncate(blocks);
        self.ends.truncate(blocks);
        self.partial.clear();
    }

    pub(super) fn max_blocks(&self) -> usize {
        self.max_blocks
    }

    /// Nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.partial.is_empty()
    }

    /// Hash of what stands after the last whole block.
    pub(super) fn tail(&self) -> u64 {
        block_hash(&self.partial)
    }

    /// Makes the partial block, if any, a block of its own: another section follows.
    pub(super) fn pad(&mut self) {
        if !self.partial.is_empty() && !self.overflow {
            self.close_block();
            self.partial.clear();
        }
    }

    /// Adds text.
    #[inline]
    pub(super) fn text(&mut self, data: &[u8]) {
        self.write(data, 1);
    }

    /// Adds bytes that are no text of the prompt.
    #[inline]
    pub(super) fn frame(&mut self, data: &[u8]) {
        self.write(data, 0);
    }

    /// Counts text that is not hashed.
    pub(super) fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn save(&self, to: &mut Checkpoint) {
        to.blocks = self.contents.len();
        to.bytes = self.bytes;
        to.overflow = self.overflow;
        to.partial.clear();
        to.partial.extend_from_slice(&self.partial);
    }

    pub(super) fn restore(&mut self, from: &Checkpoint) {
        self.truncate(from.blocks);
        self.partial.extend_from_slice(&from.partial);
        self.bytes = from.bytes;
        self.overflow = from.overflow;
    }

    #[inline]
    fn write(&mut self, data: &[u8], weight: u64) {
        if self.overflow {
            self.count(len(data).saturating_mul(weight));
            return;
        }
        let room = self.block_bytes.saturating_sub(self.partial.len());
        if data.len() < room {
            if self.partial.capacity() == 0 {
                self.partial.reserve_exact(self.block_bytes);
            }
            self.partial.extend_from_slice(data);
            self.count(len(data).saturating_mul(weight));
        } else {
            self.write_blocks(data, room, weight);
        }
    }

    /// `data` completes at least the block begun.
    fn write_blocks(&mut self, data: &[u8], room: usize, weight: u64) {
        let mut rest = data;
        if !self.partial.is_empty() {
            let Some((head, tail)) = rest.split_at_checked(room) else {
                return;
            };
            self.partial.extend_from_slice(head);
            self.count(len(head).saturating_mul(weight));
            self.close_block();
            if self.overflow {
                self.count(len(tail).saturating_mul(weight));
                return;
            }
            self.partial.clear();
            rest = tail;
        }
        let mut blocks = rest.chunks_exact(self.block_bytes);
        let step = u64::try_from(self.block_bytes)
            .unwrap_or(u64::MAX)
            .saturating_mul(weight);
        for block in blocks.by_ref() {
            self.count(step);
            self.push(block_hash(block));
        }
        let tail = blocks.remainder();
        self.count(len(tail).saturating_mul(weight));
        if !self.overflow {
            if self.partial.capacity() == 0 {
                self.partial.reserve_exact(self.block_bytes);
            }
            self.partial.extend_from_slice(tail);
        }
    }

    fn close_block(&mut self) {
        let content = block_hash(&self.partial);
        self.push(content);
    }

    fn push(&mut self, content: u64) {
        if self.contents.len() >= self.max_blocks {
            self.overflow = true;
        } else {
            self.contents.push(content);
            self.ends
                .push(u32::try_from(self.bytes).unwrap_or(u32::MAX));
        }
    }
}

fn len(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}
