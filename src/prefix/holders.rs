//! Which endpoints hold which blocks: (block, slot) pairs, found by block or by pair.
//!
//! A block is *narrow* while few endpoints hold it: its pairs stand in the bucket of the block's hash, and finding one
//! means walking them. From [`WIDE_FROM`] holders on it is *wide*: a [`Wide`] node keeps its holders as bits, and each
//! of its pairs stands in a bucket of its own. So a block held by all endpoints costs a match one look-up and a few
//! words, and a record one look-up, whatever their number.
//!
//! Invariants
//! - a pair is there at most once;
//! - a block is wide or narrow, never both; it turns narrow again below [`NARROW_BELOW`] holders;
//! - so wide nodes never exceed a sixteenth of the pairs.
//!
//! Memory: 28 bytes a pair, 4 for its bucket, and for a wide block 9 more at worst (0.3 at 512 holders).

use super::arena::{Arena, Chained, NIL};
use super::directory::{Directory, MAX_CHAIN};
use super::nodes::{Pair, WIDE_BIT, Wide, block_key, pair_key};
use super::slot_set::SlotSet;
use crate::request::BlockHash;

/// Holders from which a block is wide.
const WIDE_FROM: u32 = 24;
/// Holders below which a wide block is narrow again.
const NARROW_BELOW: u32 = 16;

/// What looking for a pair shows.
pub(super) enum Look {
    /// Its id.
    Found(u32),
    /// It is not there.
    Missing(Vacancy),
}

/// The place of a pair that is not there. It holds until a pair of the same block comes or goes.
#[derive(Clone, Copy)]
pub(super) struct Vacancy {
    /// The block's node, when it is wide.
    wide: Option<u32>,
    /// Nodes in the bucket.
    chain: u32,
    /// Narrow pairs of the block.
    holders: u32,
}

/// Holders of a block, narrowed to a set of slots.
pub(super) enum Kept {
    /// All of the set.
    All,
    /// Only these.
    Some(SlotSet),
}

pub(super) struct Holders {
    pairs: Arena<Pair>,
    /// Narrow pairs by block, wide pairs by pair.
    pair_buckets: Directory,
    wide: Arena<Wide>,
    wide_buckets: Directory,
    blocks: u32,
}

impl Holders {
    pub(super) fn new() -> Self {
        Self {
            pairs: Arena::new(),
            pair_buckets: Directory::new(),
            wide: Arena::new(),
            wide_buckets: Directory::new(),
            blocks: 0,
        }
    }

    /// Pairs in all.
    pub(super) const fn len(&self) -> u32 {
        self.pairs.live()
    }

    /// Blocks that at least one slot holds.
    pub(super) const fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pairs.bytes()
            + self.pair_buckets.bytes()
            + self.wide.bytes()
            + self.wide_buckets.bytes()
    }

    #[inline(always)]
    pub(super) fn pair(&self, id: u32) -> Option<&Pair> {
        self.pairs.get(id)
    }

    #[inline(always)]
    pub(super) fn pair_mut(&mut self, id: u32) -> Option<&mut Pair> {
        self.pairs.get_mut(id)
    }

    /// The pair's id.
    #[inline(never)]
    pub(super) fn find(&self, hash: BlockHash, slot: u16) -> Option<u32> {
        match self.look(hash, slot) {
            Look::Found(id) => Some(id),
            Look::Missing(_) => None,
        }
    }

    /// The pair's id, or what adding it needs to know.
    #[inline(always)]
    pub(super) fn look(&self, hash: BlockHash, slot: u16) -> Look {
        let key = block_key(hash);
        let mut vacancy = Vacancy {
            wide: None,
            chain: 0,
            holders: 0,
        };
        let mut id = self.pair_buckets.first(key);
        while let Some(pair) = self.pairs.get(id) {
            if pair.hash() == hash {
                if pair.seat == slot {
                    return Look::Found(id);
                }
                vacancy.holders += u32::from(!pair.is_wide());
            }
            vacancy.chain += 1;
            id = pair.next;
        }
        vacancy.wide = self.wide_id(key, hash);
        if let Some(wide) = vacancy.wide.and_then(|id| self.wide.get(id))
            && wide.slots.contains(slot)
            && let Some(id) = self.find_in(pair_key(hash, slot), hash, slot | WIDE_BIT)
        {
            return Look::Found(id);
        }
        Look::Missing(vacancy)
    }

    #[inline(always)]
    fn find_in(&self, key: u32, hash: BlockHash, seat: u16) -> Option<u32> {
        let mut id = self.pair_buckets.first(key);
        while let Some(pair) = self.pairs.get(id) {
            if pair.hash() == hash && pair.seat == seat {
                return Some(id);
            }
            id = pair.next;
        }
        None
    }

    fn wide_of(&self, key: u32, hash: BlockHash) -> Option<&Wide> {
        self.wide.get(self.wide_id(key, hash)?)
    }

    #[inline(always)]
    fn wide_id(&self, key: u32, hash: BlockHash) -> Option<u32> {
        if self.wide_buckets.is_empty() {
            return None;
        }
        let mut id = self.wide_buckets.first(key);
        while let Some(wide) = self.wide.get(id) {
            if wide.hash == hash {
                return Some(id);
            }
            id = wide.next;
        }
        None
    }

    /// Which slots hold the block.
    pub(super) fn of_block(&self, hash: BlockHash) -> SlotSet {
        let key = block_key(hash);
        if let Some(wide) = self.wide_of(key, hash) {
            return wide.slots;
        }
        let mut slots = SlotSet::EMPTY;
        let mut id = self.pair_buckets.first(key);
        while let Some(pair) = self.pairs.get(id) {
            if pair.hash() == hash && !pair.is_wide() {
                slots.insert(pair.seat);
            }
            id = pair.next;
        }
        slots
    }

    /// Which of `slots`, `count` in number and not 0, hold the block too.
    #[inline(always)]
    pub(super) fn keep(&self, hash: BlockHash, slots: &SlotSet, count: u32) -> Kept {
        let mut missing = count;
        let mut id = self.pair_buckets.first(block_key(hash));
        while let Some(pair) = self.pairs.get(id) {
            // A wide pair's seat is in no set.
            if pair.hash() == hash && slots.contains(pair.seat) {
                missing -= 1;
                if missing == 0 {
                    return Kept::All;
                }
            }
            id = pair.next;
        }
        let kept = slots.and(&self.of_block(hash));
        if kept == *slots {
            Kept::All
        } else {
            Kept::Some(kept)
        }
    }

    /// Adds a pair that is not there, in no order yet. `None` when its bucket is full.
    #[inline(always)]
    pub(super) fn add(&mut self, pair: Pair, vacancy: Vacancy) -> Option<u32> {
        if vacancy.wide.is_some() || vacancy.holders + 1 >= WIDE_FROM {
            return self.add_wide(pair, vacancy.wide);
        }
        if vacancy.chain >= MAX_CHAIN {
            return None;
        }
        let id = self.pair_buckets.add(&mut self.pairs, pair)?;
        self.blocks += u32::from(vacancy.holders == 0);
        Some(id)
    }

    #[inline(never)]
    fn add_wide(&mut self, mut pair: Pair, wide: Option<u32>) -> Option<u32> {
        let wide = match wide {
            Some(wide) => wide,
            None => self.widen(pair.hash())?,
        };
        let slot = pair.seat;
        pair.seat |= WIDE_BIT;
        let mut chain = 0;
        let mut id = self.pair_buckets.first(pair.key());
        while let Some(other) = self.pairs.get(id) {
            chain += 1;
            id = other.next;
        }
        if chain >= MAX_CHAIN {
            return None;
        }
        let id = self.pair_buckets.add(&mut self.pairs, pair)?;
        let wide = self.wide.get_mut(wide)?;
        wide.slots.insert(slot);
        wide.count += 1;
        Some(id)
    }

    /// Takes a pair out; it is in no order any more.
    pub(super) fn remove(&mut self, id: u32) {
        let Some(&pair) = self.pairs.get(id) else {
            return;
        };
        self.pair_buckets.unlink(&mut self.pairs, id);
        self.pairs.remove(id);
        if pair.is_wide() {
            self.remove_wide(pair.hash(), pair.slot());
            return;
        }
        let mut id = self.pair_buckets.first(block_key(pair.hash()));
        while let Some(other) = self.pairs.get(id) {
            if other.hash() == pair.hash() && !other.is_wide() {
                return;
            }
            id = other.next;
        }
        self.blocks = self.blocks.saturating_sub(1);
    }

    fn remove_wide(&mut self, hash: BlockHash, slot: u16) {
        let Some(id) = self.wide_id(block_key(hash), hash) else {
            return;
        };
        let Some(wide) = self.wide.get_mut(id) else {
            return;
        };
        wide.slots.remove(slot);
        wide.count = wide.count.saturating_sub(1);
        if wide.count >= NARROW_BELOW {
            return;
        }
        let slots = wide.slots;
        self.wide_buckets.unlink(&mut self.wide, id);
        self.wide.remove(id);
        for slot in slots.iter() {
            if let Some(id) = self.find_in(pair_key(hash, slot.0), hash, slot.0 | WIDE_BIT) {
                self.reseat(id, slot.0);
            }
        }
    }

    /// Turns a narrow block wide.
    fn widen(&mut self, hash: BlockHash) -> Option<u32> {
        let slots = self.of_block(hash);
        let wide = Wide {
            hash,
            slots,
            next: NIL,
            count: slots.len(),
        };
        let wide = self.wide_buckets.add(&mut self.wide, wide)?;
        for slot in slots.iter() {
            if let Some(id) = self.find_in(block_key(hash), hash, slot.0) {
                self.reseat(id, slot.0 | WIDE_BIT);
            }
        }
        Some(wide)
    }

    /// Moves a pair to the bucket of its other seat.
    fn reseat(&mut self, id: u32, seat: u16) {
        self.pair_buckets.unlink(&mut self.pairs, id);
        if let Some(pair) = self.pairs.get_mut(id) {
            pair.seat = seat;
        }
        self.pair_buckets.link(&mut self.pairs, id);
    }
}
