//! What is compared.

use warmroute::clock::Millis;
use warmroute::config::IndexOptions;
use warmroute::endpoints::Slot;
use warmroute::prefix::{Depths, Index, RecordState, Recorded};
use warmroute::request::BlockHash;

/// What is compared: the index, the naive one, and broken ones.
pub trait Subject {
    fn matches(&mut self, blocks: &[BlockHash], now: Millis) -> Vec<(Slot, u32)>;
    fn record(
        &mut self,
        blocks: &[BlockHash],
        slot: Slot,
        state: RecordState,
        now: Millis,
    ) -> Recorded;
    fn confirm(&mut self, blocks: &[BlockHash], slot: Slot, now: Millis) -> u32;
    fn withdraw(&mut self, blocks: &[BlockHash], slot: Slot);
    fn trim(&mut self, blocks: &[BlockHash], slot: Slot, keep: u32);
    fn set_capacity_blocks(&mut self, slot: Slot, blocks: u32);
    fn remove(&mut self, slot: Slot);
    fn held_blocks(&self, slot: Slot) -> u32;
    /// Pairs, distinct blocks, evictions, expired.
    fn counts(&self) -> (u32, u32, u64, u64);
}

/// The index with the scratch that a match fills.
pub struct Real {
    pub index: Index,
    depths: Depths,
}

impl Real {
    pub fn new(options: &IndexOptions) -> Self {
        Self {
            index: Index::new(options),
            depths: Depths::new(),
        }
    }
}

impl Subject for Real {
    fn matches(&mut self, blocks: &[BlockHash], now: Millis) -> Vec<(Slot, u32)> {
        self.index.matches(blocks, now, &mut self.depths);
        let found: Vec<_> = self.depths.iter().collect();
        assert!(
            found
                .iter()
                .all(|&(slot, depth)| self.depths.of(slot) == depth)
        );
        found
    }

    fn record(
        &mut self,
        blocks: &[BlockHash],
        slot: Slot,
        state: RecordState,
        now: Millis,
    ) -> Recorded {
        self.index.record(blocks, slot, state, now)
    }

    fn confirm(&mut self, blocks: &[BlockHash], slot: Slot, now: Millis) -> u32 {
        self.index.confirm(blocks, slot, now)
    }

    fn withdraw(&mut self, blocks: &[BlockHash], slot: Slot) {
        self.index.withdraw(blocks, slot);
    }

    fn trim(&mut self, blocks: &[BlockHash], slot: Slot, keep: u32) {
        self.index.trim(blocks, slot, keep);
    }

    fn set_capacity_blocks(&mut self, slot: Slot, blocks: u32) {
        self.index.set_capacity_blocks(slot, blocks);
    }

    fn remove(&mut self, slot: Slot) {
        self.index.remove(slot);
    }

    fn held_blocks(&self, slot: Slot) -> u32 {
        self.index.held_blocks(slot)
    }

    fn counts(&self) -> (u32, u32, u64, u64) {
        let stats = self.index.stats();
        (stats.pairs, stats.blocks, stats.evictions, stats.expired)
    }
}
