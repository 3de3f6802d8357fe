//! What the index is made of: pairs and wide blocks, as nodes of the buckets that [`super::holders`] keeps.
//!
//! Memory: 28 bytes a pair.

use super::arena::{Chained, NIL};
use super::slot_set::SlotSet;
use crate::request::BlockHash;

/// Bit of [`Pair::seat`] that marks the pair of a wide block. Slots stay below it, and no set of slots contains it.
pub(super) const WIDE_BIT: u16 = 1 << 15;

/// One endpoint that holds one block.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct Pair {
    hash: u64,
    pub(super) next: u32,
    /// The neighbour in the slot's order that was used later.
    pub(super) newer: u32,
    /// The neighbour in the slot's order that was used earlier.
    pub(super) older: u32,
    /// Seconds since the Unix epoch.
    pub(super) used_s: u32,
    pub(super) seat: u16,
    /// Requests whose tentative record this pair stands on; `u16::MAX` = confirmed.
    pub(super) claims: u16,
}

impl Pair {
    /// A pair that is in no order yet.
    pub(super) const fn new(hash: BlockHash, slot: u16, used_s: u32, claims: u16) -> Self {
        Self {
            hash,
            seat: slot,
            used_s,
            claims,
            ..Self::BLANK
        }
    }

    pub(super) const fn slot(&self) -> u16 {
        self.seat & !WIDE_BIT
    }

    #[inline(always)]
    pub(super) const fn hash(&self) -> BlockHash {
        self.hash
    }

    pub(super) const fn is_wide(&self) -> bool {
        self.seat & WIDE_BIT != 0
    }
}

impl Chained for Pair {
    const BLANK: Self = Self {
        hash: 0,
        next: NIL,
        newer: NIL,
        older: NIL,
        used_s: 0,
        seat: 0,
        claims: 0,
    };

    #[inline(always)]
    fn next(&self) -> u32 {
        self.next
    }

    fn set_next(&mut self, id: u32) {
        self.next = id;
    }

    fn key(&self) -> u32 {
        if self.is_wide() {
            pair_key(self.hash, self.slot())
        } else {
            block_key(self.hash)
        }
    }
}

/// A block with many holders.
#[derive(Clone, Copy)]
pub(super) struct Wide {
    pub(super) hash: u64,
    pub(super) slots: SlotSet,
    pub(super) next: u32,
    pub(super) count: u32,
}

impl Chained for Wide {
    const BLANK: Self = Self {
        hash: 0,
        slots: SlotSet::EMPTY,
        next: NIL,
        count: 0,
    };

    fn next(&self) -> u32 {
        self.next
    }

    fn set_next(&mut self, id: u32) {
        self.next = id;
    }

    fn key(&self) -> u32 {
        block_key(self.hash)
    }
}

#[inline(always)]
pub(super) const fn block_key(hash: BlockHash) -> u32 {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

pub(super) const fn pair_key(hash: BlockHash, slot: u16) -> u32 {
    block_key(hash.wrapping_add((slot as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)))
}
