//! How pairs go: when an engine shows or says that it holds less, by what was used longest ago when room is wanted,
//! and by age.
//!
//! Cost: O(1) a pair; ages at most [`EXPIRED_PER_RECORD`] pairs at a time.

use super::arena::NIL;
use super::{EXPIRED_PER_RECORD, Index, Room};
use crate::endpoints::Slot;
use crate::request::BlockHash;

impl Index {
    /// The engine held only the first `keep` of these blocks: the rest goes from this endpoint, confirmed or not.
    pub fn trim(&mut self, blocks: &[BlockHash], slot: Slot, keep: u32) {
        for &hash in blocks.iter().skip(keep as usize) {
            if let Some(id) = self.holders.find(hash, slot.0) {
                self.drop_pair(id);
            }
        }
    }

    /// Sets how many blocks an endpoint may hold; an endpoint that was never given any holds none. When it shrinks,
    /// what is over goes at once, oldest first: in time proportional to what goes.
    pub fn set_capacity_blocks(&mut self, slot: Slot, blocks: u32) {
        self.recency.set_capacity(slot, blocks);
        for _ in blocks..self.recency.held(slot.0) {
            self.drop_pair(self.recency.oldest_of(slot.0));
            self.evictions += 1;
        }
    }

    /// Forgets all that an endpoint holds, in time proportional to it.
    pub fn clear(&mut self, slot: Slot) {
        for _ in 0..self.recency.held(slot.0) {
            self.drop_pair(self.recency.oldest_of(slot.0));
        }
    }

    /// Forgets all that an endpoint holds, and its capacity.
    pub fn remove(&mut self, slot: Slot) {
        self.clear(slot);
        self.recency.set_capacity(slot, 0);
    }

    /// Makes room for one more pair of the slot; `None` when only the path itself, down to `last`, could go.
    pub(super) fn make_room(&mut self, slot: u16, last: u32) -> Option<Room> {
        while self.recency.held(slot) >= self.recency.capacity(slot) {
            self.evict(self.recency.oldest_of(slot), last)?;
        }
        let mut room = Room::Own;
        while self.holders.len() >= self.max_pairs {
            let (oldest, _) = self.recency.oldest(&self.holders)?;
            self.evict(oldest, last)?;
            room = Room::Others;
        }
        Some(room)
    }

    fn evict(&mut self, id: u32, last: u32) -> Option<()> {
        if id == NIL || id == last {
            return None;
        }
        self.drop_pair(id);
        self.evictions += 1;
        Some(())
    }

    /// Clears away expired pairs, oldest first, a bounded number.
    pub(super) fn sweep(&mut self) {
        for _ in 0..EXPIRED_PER_RECORD {
            if self
                .recency
                .oldest_bound_s()
                .is_some_and(|used_s| !self.is_expired(used_s, self.latest_s))
            {
                return;
            }
            match self.recency.oldest(&self.holders) {
                Some((id, used_s)) if self.is_expired(used_s, self.latest_s) => {
                    self.drop_pair(id);
                    self.expired += 1;
                }
                _ => return,
            }
        }
    }

    pub(super) fn drop_pair(&mut self, id: u32) {
        self.recency.take(&mut self.holders, id);
        self.holders.remove(id);
    }
}
