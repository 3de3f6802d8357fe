//! Buckets of chained nodes that grow one bucket at a time (linear hashing, Litwin 1980).
//!
//! Invariants
//! - a node stands in the bucket that its key names for the present number of buckets;
//! - at most one node to a bucket on average; a record adds nothing to a chain of [`MAX_CHAIN`], so that prompts
//!   built to collide lose their own blocks and cost us no time.
//!
//! Cost: a look-up reads one head and, on average, less than two nodes. An insertion splits at most one bucket:
//! there is no moment at which everything is hashed again, and no second table beside the first.

use super::arena::{Arena, Chained, NIL, Segments};

/// Nodes in one bucket at most. An honest bucket of many endpoints' blocks stays under half of it.
pub(super) const MAX_CHAIN: u32 = 128;

const FIRST_BUCKETS: u32 = 256;

pub(super) struct Directory {
    heads: Segments<u32>,
    /// The least power of two that covers all buckets, minus 1.
    mask: u32,
    nodes: u32,
}

impl Directory {
    pub(super) fn new() -> Self {
        Self {
            heads: Segments::filled(FIRST_BUCKETS, NIL),
            mask: FIRST_BUCKETS - 1,
            nodes: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    #[inline(always)]
    fn bucket(&self, key: u32) -> u32 {
        let wide = key & self.mask;
        if wide < self.heads.len() {
            wide
        } else {
            key & (self.mask >> 1)
        }
    }

    /// The first node of the bucket of `key`, or [`NIL`].
    #[inline(always)]
    pub(super) fn first(&self, key: u32) -> u32 {
        self.heads.get(self.bucket(key)).copied().unwrap_or(NIL)
    }

    /// Puts a new node into its bucket, in front. `None` when ids have run out.
    #[inline(always)]
    pub(super) fn add<T: Chained>(&mut self, arena: &mut Arena<T>, mut node: T) -> Option<u32> {
        let head = self.heads.get_mut(self.bucket(node.key()))?;
        node.set_next(*head);
        let id = arena.insert(node)?;
        *head = id;
        self.count(arena);
        Some(id)
    }

    /// Links a node that is in no bucket into its own, in front.
    pub(super) fn link<T: Chained>(&mut self, arena: &mut Arena<T>, id: u32) {
        let Some(node) = arena.get_mut(id) else {
            return;
        };
        if let Some(head) = self.heads.get_mut(self.bucket(node.key())) {
            node.set_next(*head);
            *head = id;
        }
        self.count(arena);
    }

    #[inline(always)]
    fn count<T: Chained>(&mut self, arena: &mut Arena<T>) {
        self.nodes += 1;
        if self.nodes > self.heads.len() {
            self.split(arena);
        }
    }

    /// Takes a node out of its bucket.
    pub(super) fn unlink<T: Chained>(&mut self, arena: &mut Arena<T>, id: u32) {
        let Some(&node) = arena.get(id) else { return };
        let bucket = self.bucket(node.key());
        let Some(head) = self.heads.get_mut(bucket) else {
            return;
        };
        if *head == id {
            *head = node.next();
            self.nodes = self.nodes.saturating_sub(1);
            return;
        }
        let mut before = *head;
        while let Some(other) = arena.get_mut(before) {
            if other.next() == id {
                other.set_next(node.next());
                self.nodes = self.nodes.saturating_sub(1);
                return;
            }
            before = other.next();
        }
    }

    /// Adds one bucket and gives it its share of the bucket that it splits off from.
    fn split<T: Chained>(&mut self, arena: &mut Arena<T>) {
        let added = self.heads.len();
        if added > self.mask {
            self.mask = (self.mask << 1) | 1;
        }
        let Some(source) = self.heads.get_mut(added & (self.mask >> 1)) else {
            return;
        };
        let mut id = core::mem::replace(source, NIL);
        let mut moved = NIL;
        while let Some(node) = arena.get_mut(id) {
            let next = node.next();
            let head = if node.key() & self.mask == added {
                &mut moved
            } else {
                &mut *source
            };
            node.set_next(*head);
            *head = id;
            id = next;
        }
        self.heads.push(moved, NIL);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.heads.bytes()
    }
}
