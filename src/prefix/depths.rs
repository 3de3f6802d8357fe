//! How deep each endpoint matches a prompt, and the walk that finds it.

use super::arena::NIL;
use super::holders::{Holders, Kept};
use super::slot_set::SlotSet;
use crate::endpoints::{MAX_ENDPOINTS, Slot};
use crate::request::BlockHash;

/// Match depths in blocks from the head, per slot. Kept by the caller and filled anew by each match, so that a match
/// allocates nothing.
pub struct Depths {
    depth: Vec<u32>,
    matching: SlotSet,
}

impl Default for Depths {
    fn default() -> Self {
        Self {
            depth: vec![0; MAX_ENDPOINTS],
            matching: SlotSet::EMPTY,
        }
    }
}

impl Depths {
    /// No slot matches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks that the slot holds from the head on without a gap.
    #[must_use]
    pub fn of(&self, slot: Slot) -> u32 {
        if self.matching.contains(slot.0) {
            self.get(slot)
        } else {
            0
        }
    }

    /// The slots that hold at least the first block, ascending, with their depths.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, u32)> + '_ {
        self.matching.iter().map(|slot| (slot, self.get(slot)))
    }

    /// The slots that match at all.
    pub(super) const fn matching_slots(&self) -> SlotSet {
        self.matching
    }

    fn get(&self, slot: Slot) -> u32 {
        self.depth.get(usize::from(slot.0)).copied().unwrap_or(0)
    }

    /// Replaces the depth of a slot that matches.
    pub(super) fn set(&mut self, slot: Slot, depth: u32) {
        if depth == 0 {
            self.matching.remove(slot.0);
        } else if let Some(of) = self.depth.get_mut(usize::from(slot.0)) {
            *of = depth;
        }
    }

    fn set_all(&mut self, slots: &SlotSet, depth: u32) {
        for slot in slots.iter() {
            self.set(slot, depth);
        }
    }

    /// Fills in the depths by presence alone.
    pub(super) fn walk(&mut self, holders: &Holders, blocks: &[BlockHash]) {
        self.matching = SlotSet::EMPTY;
        let Some((&head, rest)) = blocks.split_first() else {
            return;
        };
        let mut active = holders.of_block(head);
        self.matching = active;
        let mut count = active.len();
        let mut depth = 1;
        let mut rest = rest.iter();
        while count > 1 {
            let Some(&hash) = rest.next() else { break };
            if let Kept::Some(kept) = holders.keep(hash, &active, count) {
                self.set_all(&active.without(&kept), depth);
                count = kept.len();
                active = kept;
            }
            depth += 1;
        }
        // A single endpoint that is left is asked for alone: mostly the next block stands right behind in its order.
        if let (1, Some(slot)) = (count, active.iter().next()) {
            let mut behind = NIL;
            for &hash in rest {
                let id = match holders.pair(behind).filter(|pair| pair.hash() == hash) {
                    Some(_) => behind,
                    None => match holders.find(hash, slot.0) {
                        Some(id) => id,
                        None => break,
                    },
                };
                behind = holders.pair(id).map_or(NIL, |pair| pair.older);
                depth += 1;
            }
        }
        self.set_all(&active, depth);
    }
}
