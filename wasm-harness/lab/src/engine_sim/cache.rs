//! The prefix cache of one engine: blocks by chained hash, least recently used out first.
//!
//! Invariants
//! - never more than `capacity` blocks, pinned ones included;
//! - a pinned block (a running request reads it) is never evicted;
//! - of one prompt, the tail becomes idle before the head, so suffixes leave first, as in vLLM.
//!
//! Cost: O(log blocks) a block touched.

use std::collections::{BTreeMap, HashMap};

struct Block {
    pins: u32,
    /// Key in `idle` while `pins` is 0.
    stamp: u64,
}

/// A bounded set of prompt blocks.
pub(crate) struct BlockCache {
    capacity: usize,
    blocks: HashMap<u64, Block>,
    /// Blocks that nobody pins, oldest first.
    idle: BTreeMap<u64, u64>,
    clock: u64,
}

impl BlockCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            blocks: HashMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
        }
    }

    /// How many blocks from the head of `chain` are held. Does not touch recency.
    pub(crate) fn matched(&self, chain: &[u64]) -> usize {
        chain
            .iter()
            .take_while(|hash| self.blocks.contains_key(hash))
            .count()
    }

    /// Holds `chain` for a running request, evicting idle blocks as needed. Returns how many
    /// blocks from its head are pinned: fewer than all when pinned blocks fill the cache.
    pub(crate) fn pin(&mut self, chain: &[u64]) -> usize {
        for (held, &hash) in chain.iter().enumerate() {
            if let Some(block) = self.blocks.get_mut(&hash) {
                if block.pins == 0 {
                    self.idle.remove(&block.stamp);
                }
                block.pins += 1;
                continue;
            }
            if self.blocks.len() >= self.capacity {
                let Some((_, oldest)) = self.idle.pop_first() else {
                    return held;
                };
                self.blocks.remove(&oldest);
            }
            self.blocks.insert(hash, Block { pins: 1, stamp: 0 });
        }
        chain.len()
    }

    /// Lets go of what [`Self::pin`] held.
    pub(crate) fn unpin(&mut self, chain: &[u64]) {
        for hash in chain.iter().rev() {
            let Some(block) = self.blocks.get_mut(hash) else {
                continue;
            };
            block.pins = block.pins.saturating_sub(1);
            if block.pins == 0 {
                self.idle.remove(&block.stamp);
                self.clock += 1;
                block.stamp = self.clock;
                self.idle.insert(self.clock, *hash);
            }
        }
    }

    /// Share of the cache that running requests hold, 0 to 1.
    pub(crate) fn usage(&self) -> f64 {
        let pinned = self.blocks.len() - self.idle.len();
        pinned as f64 / self.capacity.max(1) as f64
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.idle.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::BlockCache;

    fn run(cache: &mut BlockCache, chain: &[u64]) {
        let held = cache.pin(chain);
        cache.unpin(&chain[..held]);
    }

    #[test]
    fn the_tail_of_the_oldest_prompt_leaves_first() {
        let mut cache = BlockCache::new(6);
        run(&mut cache, &[1, 2, 3]);
        run(&mut cache, &[11, 12, 13]);
        run(&mut cache, &[21, 22]);
        assert_eq!(cache.matched(&[1, 2, 3]), 1);
        assert_eq!(cache.matched(&[11, 12, 13]), 3);
        assert_eq!(cache.matched(&[21, 22]), 2);
    }

    #[test]
    fn use_renews_and_reading_does_not() {
        let mut cache = BlockCache::new(4);
        run(&mut cache, &[1, 2]);
        run(&mut cache, &[11, 12]);
        assert_eq!(cache.matched(&[1, 2]), 2);
        run(&mut cache, &[21]);
        assert_eq!(cache.matched(&[1, 2]), 1, "a look did not renew it");
        run(&mut cache, &[1]);
        run(&mut cache, &[31, 32]);
        assert_eq!(cache.matched(&[1]), 1);
        assert_eq!(cache.matched(&[11, 12]), 0);
    }

    #[test]
    fn pinned_blocks_stay_and_bound_the_rest() {
        let mut cache = BlockCache::new(3);
        assert_eq!(cache.pin(&[1, 2]), 2);
        assert_eq!(cache.pin(&[11, 12, 13]), 1);
        assert!((cache.usage() - 1.0).abs() < 1e-9);
        cache.unpin(&[11]);
        assert_eq!(cache.pin(&[21]), 1);
        assert_eq!(cache.matched(&[1, 2]), 2);
        assert_eq!(cache.matched(&[11]), 0);
    }

    #[test]
    fn a_block_shared_by_two_requests_is_idle_after_both() {
        let mut cache = BlockCache::new(2);
        cache.pin(&[1]);
        cache.pin(&[1]);
        cache.unpin(&[1]);
        assert!(cache.usage() > 0.4);
        cache.unpin(&[1]);
        assert!(cache.usage() < 1e-9);
        cache.clear();
        assert_eq!(cache.matched(&[1]), 0);
    }
}
