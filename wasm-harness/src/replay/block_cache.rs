//! A prefix cache: blocks with least-recently-used eviction, tails before heads.

use std::collections::{BTreeMap, HashMap};

/// Which blocks are held, and in which order they go.
#[derive(Clone, Debug)]
pub struct BlockCache {
    capacity: usize,
    turn: u64,
    turn_of: HashMap<u64, u64>,
    by_turn: BTreeMap<u64, u64>,
}

impl BlockCache {
    /// A cache of `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            turn: 0,
            turn_of: HashMap::new(),
            by_turn: BTreeMap::new(),
        }
    }

    /// How many of `blocks` are held, contiguous from the first.
    #[must_use]
    pub fn matched(&self, blocks: &[u64]) -> usize {
        blocks
            .iter()
            .take_while(|block| self.turn_of.contains_key(block))
            .count()
    }

    /// Whether a block is held.
    #[must_use]
    pub fn holds(&self, block: u64) -> bool {
        self.turn_of.contains_key(&block)
    }

    /// Holds `blocks` from now on, as the newest; the first of them is the last to go.
    pub fn record(&mut self, blocks: &[u64]) {
        for block in blocks.iter().rev() {
            self.turn += 1;
            if let Some(old) = self.turn_of.insert(*block, self.turn) {
                self.by_turn.remove(&old);
            }
            self.by_turn.insert(self.turn, *block);
        }
        while self.turn_of.len() > self.capacity {
            if let Some((_, block)) = self.by_turn.pop_first() {
                self.turn_of.remove(&block);
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.turn_of.clear();
        self.by_turn.clear();
    }

    /// Blocks held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.turn_of.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turn_of.is_empty()
    }
}
