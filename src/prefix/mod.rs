//! Prefix index: which endpoints probably hold a prompt's blocks.
//!
//! One structure for all endpoints of a pool. A *block* is a piece of a prompt, named by a hash that is chained over
//! everything before it. A *pair* is a block that an endpoint (a slot) probably holds. A *path* is a prompt's blocks,
//! head first.
//!
//! Operations
//! - a pick records its path tentatively, so that the siblings of a burst follow; the record is a claim on each pair.
//!   [`Index::confirm`] settles it when the endpoint answered, [`Index::withdraw`] when it did not serve the request;
//! - [`Index::trim`] takes the end of a path away when an engine shows that it held less;
//! - [`Index::set_capacity_blocks`] follows what an engine tells of its cache; [`Index::remove`] forgets an endpoint.
//!
//! Invariants
//! - a match is contiguous from block 0;
//! - an endpoint never has more pairs than its capacity, all together never more than `max_pairs`;
//! - within an endpoint the pair used longest ago goes first, and a path's end goes before its head; over all endpoints
//!   the pair used longest ago goes first, to the second;
//! - reading never changes recency; a pair older than the TTL never counts;
//! - a path's block was never used before the blocks behind it (hashes are chained, so whoever touches a block touches
//!   its path from the head on).
//!
//! Cost: `matches` one look-up a block for all endpoints together, until nobody matches; `record` one look-up a block,
//! and constant work for each new one, whatever the number of holders. Where a path was the last one recorded, its
//! blocks stand in the endpoint's order one behind the other: each is found where the one before it points, without a
//! look-up, and stays where it is. Nothing is ever hashed again in one go.
//!
//! Memory: 32 bytes a pair when each block has one holder, 42 at worst, and a fixed 30 KB. It grows in small
//! segments up to what `max_pairs` needs and no further, however long it runs: [`IndexStats::bytes`] stays under
//! `max_pairs * 42 + 256 KB`.

mod arena;
mod depths;
mod directory;
mod evict;
mod holders;
mod nodes;
mod recency;
mod slot_set;

pub use depths::Depths;

use crate::clock::Millis;
use crate::config::IndexOptions;
use crate::endpoints::Slot;
use crate::request::BlockHash;
use arena::NIL;
use holders::{Holders, Look, Vacancy};
use nodes::Pair;
use recency::Recency;

/// Expired pairs that one record clears away at most.
pub const EXPIRED_PER_RECORD: u32 = 64;

/// Claims that a confirmed pair stands for. A pair with so many claims at once counts as confirmed.
const CONFIRMED: u16 = u16::MAX;

/// How long ago a pair may have been used to count as used lately, seconds.
pub const LATELY_S: u32 = 2;

/// What a record says about the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// The request was sent there; it will be confirmed or withdrawn.
    Tentative,
    /// The endpoint has read them.
    Confirmed,
}

/// What a record changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Pairs that were not there, or had expired.
    pub new_blocks: u32,
    /// Leading blocks that were there and in use within the last [`LATELY_S`] seconds.
    pub lately_used: u32,
    /// Pairs that had to go, of this or another endpoint; expired ones are not counted.
    pub evicted: u32,
}

/// What the index holds and has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// (block, endpoint) pairs.
    pub pairs: u32,
    /// Blocks with at least one holder.
    pub blocks: u32,
    /// Memory taken from the allocator.
    pub bytes: u64,
    /// Pairs that went for want of room, since the start.
    pub evictions: u64,
    /// Pairs that were cleared away because of their age, since the start.
    pub expired: u64,
}

/// Whose pairs went to make room.
enum Room {
    /// None, or the slot's own.
    Own,
    /// Any slot's.
    Others,
}

/// A pair that was used just now.
struct Used {
    id: u32,
    /// The pair behind it in its slot's order.
    older: u32,
    /// Since it was used before; for a new one longer than any TTL.
    age_s: u32,
}

impl Used {
    /// Before the first of a path.
    const fn none(newest: u32) -> Self {
        Self {
            id: NIL,
            older: newest,
            age_s: 0,
        }
    }
}

/// The prefix index of one pool.
pub struct Index {
    holders: Holders,
    recency: Recency,
    max_pairs: u32,
    ttl_s: u32,
    /// The latest time seen. A clock that stepped back stands still here until it has caught up.
    latest_s: u32,
    evictions: u64,
    expired: u64,
}

impl Index {
    /// An empty index. Ages are told to the second, rounded up: a pair counts for up to a second less than the TTL.
    #[must_use]
    pub fn new(options: &IndexOptions) -> Self {
        Self {
            holders: Holders::new(),
            recency: Recency::new(),
            max_pairs: options.max_pairs,
            ttl_s: u32::try_from(options.ttl.as_secs().max(1)).unwrap_or(u32::MAX),
            latest_s: 0,
            evictions: 0,
            expired: 0,
        }
    }

    /// Fills in how many blocks each endpoint holds from the head on, without a gap.
    pub fn matches(&self, blocks: &[BlockHash], now: Millis, depths: &mut Depths) {
        depths.walk(&self.holders, blocks);
        let now_s = self.seconds(now);
        if self
            .recency
            .oldest_bound_s()
            .is_some_and(|used_s| !self.is_expired(used_s, now_s))
        {
            return;
        }
        let expired = |id| {
            self.holders
                .pair(id)
                .is_none_or(|pair| self.is_expired(pair.used_s, now_s))
        };
        for slot in depths.matching_slots().iter() {
            if expired(self.recency.oldest_of(slot.0)) {
                // Times of use never rise along a path: mostly all of it is fresh, or nothing; else the first expired
                // block can be searched for.
                let held = blocks.get(..depths.of(slot) as usize).unwrap_or(blocks);
                let is_fresh = |&hash: &BlockHash| {
                    self.holders
                        .find(hash, slot.0)
                        .is_some_and(|id| !expired(id))
                };
                let fresh = if held.last().is_some_and(is_fresh) {
                    held.len()
                } else if held.first().is_some_and(is_fresh) {
                    held.partition_point(is_fresh)
                } else {
                    0
                };
                depths.set(slot, u32::try_from(fresh).unwrap_or(u32::MAX));
            }
        }
    }

    /// Notes that the endpoint holds these blocks, or will. Of a path longer than the endpoint's capacity only the head
    /// is noted. Makes room first: where the endpoint is full, of its own pairs, else of all.
    ///
    /// A pair with 65,535 claims at once counts as confirmed.
    pub fn record(
        &mut self,
        blocks: &[BlockHash],
        slot: Slot,
        state: RecordState,
        now: Millis,
    ) -> Recorded {
        self.latest_s = self.seconds(now);
        self.sweep();
        let mut recorded = Recorded::default();
        let evictions = self.evictions;
        let capacity = self.recency.capacity(slot.0);
        let claims = match state {
            RecordState::Tentative => 1,
            RecordState::Confirmed => CONFIRMED,
        };
        let mut last = Used::none(self.recency.newest_of(slot.0));
        let mut lately = true;
        for &hash in blocks.iter().take(capacity as usize) {
            let used = match self.use_again(last.older, hash, claims) {
                Some(used) => used,
                None => match self.place(hash, slot.0, last.id, claims) {
                    Some(used) => {
                        recorded.new_blocks += u32::from(used.age_s >= self.ttl_s);
                        used
                    }
                    None => break,
                },
            };
            // A hash twice in a row is one block.
            lately &= used.age_s < LATELY_S && used.id != last.id;
            recorded.lately_used += u32::from(lately);
            last = used;
        }
        recorded.evicted = u32::try_from(self.evictions - evictions).unwrap_or(u32::MAX);
        recorded
    }

    /// Settles a tentative record: the endpoint has read these blocks. Pairs that are gone stay gone (the endpoint may
    /// have been another one since). Returns how many were there.
    pub fn confirm(&mut self, blocks: &[BlockHash], slot: Slot, now: Millis) -> u32 {
        self.latest_s = self.seconds(now);
        let mut confirmed = 0;
        let mut last = Used::none(self.recency.newest_of(slot.0));
        for &hash in blocks {
            let used = match self.use_again(last.older, hash, CONFIRMED) {
                Some(used) => used,
                None => match self.confirm_one(hash, slot.0, last.id) {
                    Some(used) => used,
                    None => continue,
                },
            };
            last = used;
            confirmed += 1;
        }
        confirmed
    }

    /// Takes a tentative record back: pairs that stand on this claim alone go, others stay as they are.
    pub fn withdraw(&mut self, blocks: &[BlockHash], slot: Slot) {
        for &hash in blocks {
            let Some(id) = self.holders.find(hash, slot.0) else {
                continue;
            };
            let Some(pair) = self.holders.pair_mut(id) else {
                continue;
            };
            if pair.claims == CONFIRMED {
                continue;
            }
            pair.claims = pair.claims.saturating_sub(1);
            if pair.claims == 0 {
                self.drop_pair(id);
            }
        }
    }

    /// Pairs of one endpoint, with those that have expired and are not cleared away yet.
    #[must_use]
    pub fn held_blocks(&self, slot: Slot) -> u32 {
        self.recency.held(slot.0)
    }

    /// The blocks that an endpoint holds, used last first, as far as they have not expired. Recording them in this order
    /// gives them the same order again.
    pub fn newest(&self, slot: Slot, now: Millis) -> impl Iterator<Item = BlockHash> {
        let now_s = self.seconds(now);
        let newest = self.holders.pair(self.recency.newest_of(slot.0));
        core::iter::successors(newest, |pair| self.holders.pair(pair.older))
            .take_while(move |pair| !self.is_expired(pair.used_s, now_s))
            .map(Pair::hash)
    }

    /// What the index holds and has dropped.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            pairs: self.holders.len(),
            blocks: self.holders.blocks(),
            bytes: self.holders.bytes() + self.recency.bytes(),
            evictions: self.evictions,
            expired: self.expired,
        }
    }

    fn seconds(&self, now: Millis) -> u32 {
        u32::try_from(now.0 / 1000)
            .unwrap_or(u32::MAX)
            .max(self.latest_s)
    }

    const fn is_expired(&self, used_s: u32, now_s: u32) -> bool {
        now_s.saturating_sub(used_s) >= self.ttl_s
    }

    /// Uses the pair `id` again where it stands, when it is of this block and has not expired.
    #[inline(always)]
    fn use_again(&mut self, id: u32, hash: BlockHash, claims: u16) -> Option<Used> {
        let pair = self.holders.pair_mut(id)?;
        // Nothing was used later than the latest time.
        let age_s = self.latest_s.wrapping_sub(pair.used_s);
        if pair.hash() != hash || age_s >= self.ttl_s {
            return None;
        }
        pair.used_s = self.latest_s;
        pair.claims = pair.claims.saturating_add(claims);
        Some(Used {
            id,
            older: pair.older,
            age_s,
        })
    }

    /// Puts a block's pair behind `before`, wherever it was. `None` when it is new and there is no room.
    #[inline(never)]
    fn place(&mut self, hash: BlockHash, slot: u16, before: u32, claims: u16) -> Option<Used> {
        match self.holders.look(hash, slot) {
            Look::Found(id) => Some(self.touch(id, slot, before, claims)),
            Look::Missing(vacancy) => self.add(hash, slot, vacancy, before, claims),
        }
    }

    /// Confirms a block's pair, wherever it is, and puts it behind `before`.
    #[inline(never)]
    fn confirm_one(&mut self, hash: BlockHash, slot: u16, before: u32) -> Option<Used> {
        let id = self.holders.find(hash, slot)?;
        let used_s = self.holders.pair(id)?.used_s;
        if id == before || self.is_expired(used_s, self.latest_s) {
            return None;
        }
        Some(self.touch(id, slot, before, CONFIRMED))
    }

    /// Puts a pair behind `before` in its slot's order as used now, with more claims: an expired one has lost those that
    /// it had.
    fn touch(&mut self, id: u32, slot: u16, before: u32, claims: u16) -> Used {
        let mut age_s = 0;
        if id != before
            && let Some(pair) = self.holders.pair_mut(id)
        {
            age_s = self.latest_s.saturating_sub(pair.used_s);
            if age_s >= self.ttl_s {
                pair.claims = 0;
            }
            pair.used_s = self.latest_s;
            pair.claims = pair.claims.saturating_add(claims);
            self.recency.take(&mut self.holders, id);
            self.recency
                .put_behind(&mut self.holders, before, id, slot, self.latest_s);
        }
        Used {
            id,
            older: self.holders.pair(id).map_or(NIL, |pair| pair.older),
            age_s,
        }
    }

    /// Adds a pair behind `before`, as used now. `None` when there is no room.
    #[inline(always)]
    fn add(
        &mut self,
        hash: BlockHash,
        slot: u16,
        vacancy: Vacancy,
        before: u32,
        claims: u16,
    ) -> Option<Used> {
        let vacancy = match self.make_room(slot, before)? {
            Room::Own => vacancy,
            // A pair of the same block may have gone.
            Room::Others => match self.holders.look(hash, slot) {
                Look::Missing(vacancy) => vacancy,
                Look::Found(_) => return None,
            },
        };
        let pair = Pair::new(hash, slot, self.latest_s, claims);
        let id = self.holders.add(pair, vacancy)?;
        let older = self
            .recency
            .put_behind(&mut self.holders, before, id, slot, self.latest_s);
        Some(Used {
            id,
            older,
            age_s: u32::MAX,
        })
    }
}
