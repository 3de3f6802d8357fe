//! The prefix index as plainly as can be: lists that are searched from end to end.

use std::collections::BTreeSet;

use warmroute::clock::Millis;
use warmroute::config::IndexOptions;
use warmroute::endpoints::Slot;
use warmroute::prefix::{EXPIRED_PER_RECORD, LATELY_S, RecordState, Recorded};
use warmroute::request::BlockHash;

use crate::subject::Subject;

#[derive(Clone)]
struct Entry {
    hash: BlockHash,
    used_s: u64,
    claims: u32,
    confirmed: bool,
}

/// One list per slot, newest first; every question is answered by looking at everything.
pub struct Naive {
    lists: Vec<Vec<Entry>>,
    capacity: Vec<usize>,
    max_pairs: usize,
    ttl_s: u64,
    latest_s: u64,
    evictions: u64,
    expired: u64,
}

impl Naive {
    pub fn new(options: &IndexOptions, slots: usize) -> Self {
        Self {
            lists: vec![Vec::new(); slots],
            capacity: vec![0; slots],
            max_pairs: options.max_pairs as usize,
            ttl_s: options.ttl.as_secs(),
            latest_s: 0,
            evictions: 0,
            expired: 0,
        }
    }

    fn pairs(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    fn is_old(&self, entry: &Entry, now_s: u64) -> bool {
        now_s - entry.used_s >= self.ttl_s
    }

    fn place(&self, slot: usize, hash: BlockHash) -> Option<usize> {
        self.lists[slot].iter().position(|entry| entry.hash == hash)
    }

    /// The slot whose last entry is the oldest.
    fn oldest(&self) -> Option<usize> {
        (0..self.lists.len())
            .filter(|&slot| !self.lists[slot].is_empty())
            .min_by_key(|&slot| (self.lists[slot].last().unwrap().used_s, slot))
    }

    /// Drops the last entry of the slot unless it is of the path that is being recorded.
    fn evict(&mut self, slot: usize, done: &[BlockHash], own: usize) -> bool {
        let Some(last) = self.lists[slot].last() else {
            return false;
        };
        if slot == own && done.last() == Some(&last.hash) {
            return false;
        }
        self.lists[slot].pop();
        self.evictions += 1;
        true
    }

    fn has_room(&mut self, slot: usize, done: &[BlockHash]) -> bool {
        while self.lists[slot].len() >= self.capacity[slot] {
            if !self.evict(slot, done, slot) {
                return false;
            }
        }
        while self.pairs() >= self.max_pairs {
            let Some(oldest) = self.oldest() else {
                return false;
            };
            if !self.evict(oldest, done, slot) {
                return false;
            }
        }
        true
    }
}

impl Subject for Naive {
    fn matches(&mut self, blocks: &[BlockHash], now: Millis) -> Vec<(Slot, u32)> {
        let now_s = self.latest_s.max(now.0 / 1000);
        let mut found = Vec::new();
        for (slot, list) in self.lists.iter().enumerate() {
            let held = |hash: &&BlockHash| {
                list.iter()
                    .any(|entry| entry.hash == **hash && !self.is_old(entry, now_s))
            };
            let depth = blocks.iter().take_while(held).count();
            if depth > 0 {
                found.push((Slot(slot as u16), depth as u32));
            }
        }
        found
    }

    fn record(
        &mut self,
        blocks: &[BlockHash],
        slot: Slot,
        state: RecordState,
        now: Millis,
    ) -> Recorded {
        self.latest_s = self.latest_s.max(now.0 / 1000);
        for _ in 0..EXPIRED_PER_RECORD {
            let Some(oldest) = self.oldest() else { break };
            if !self.is_old(self.lists[oldest].last().unwrap(), self.latest_s) {
                break;
            }
            self.lists[oldest].pop();
            self.expired += 1;
        }
        let own = usize::from(slot.0);
        let evictions = self.evictions;
        let mut new_blocks = 0;
        let mut lately_used = 0;
        for (place, &hash) in blocks.iter().take(self.capacity[own]).enumerate() {
            let mut entry = Entry {
                hash,
                used_s: self.latest_s,
                claims: 0,
                confirmed: false,
            };
            if let Some(at) = self.place(own, hash) {
                let old = self.lists[own].remove(at);
                let is_repeated = place > 0 && blocks[place - 1] == hash;
                if lately_used as usize == place
                    && !is_repeated
                    && self.latest_s - old.used_s < u64::from(LATELY_S)
                {
                    lately_used += 1;
                }
                if self.is_old(&old, self.latest_s) {
                    new_blocks += 1;
                } else {
                    entry.claims = old.claims;
                    entry.confirmed = old.confirmed;
                }
            } else if self.has_room(own, &blocks[..place]) {
                new_blocks += 1;
            } else {
                break;
            }
            match state {
                RecordState::Tentative => entry.claims += 1,
                RecordState::Confirmed => entry.confirmed = true,
            }
            self.lists[own].insert(place, entry);
        }
        Recorded {
            new_blocks,
            lately_used,
            evicted: (self.evictions - evictions) as u32,
        }
    }

    fn confirm(&mut self, blocks: &[BlockHash], slot: Slot, now: Millis) -> u32 {
        self.latest_s = self.latest_s.max(now.0 / 1000);
        let own = usize::from(slot.0);
        let mut place = 0;
        for &hash in blocks {
            let Some(at) = self.place(own, hash) else {
                continue;
            };
            if self.is_old(&self.lists[own][at], self.latest_s) {
                continue;
            }
            self.lists[own].remove(at);
            self.lists[own].insert(
                place,
                Entry {
                    hash,
                    used_s: self.latest_s,
                    claims: 0,
                    confirmed: true,
                },
            );
            place += 1;
        }
        place as u32
    }

    fn withdraw(&mut self, blocks: &[BlockHash], slot: Slot) {
        let list = &mut self.lists[usize::from(slot.0)];
        for entry in list
            .iter_mut()
            .filter(|entry| blocks.contains(&entry.hash) && !entry.confirmed)
        {
            entry.claims -= 1;
        }
        list.retain(|entry| entry.confirmed || entry.claims > 0);
    }

    fn trim(&mut self, blocks: &[BlockHash], slot: Slot, keep: u32) {
        let gone: Vec<_> = blocks.iter().skip(keep as usize).collect();
        self.lists[usize::from(slot.0)].retain(|entry| !gone.contains(&&entry.hash));
    }

    fn set_capacity_blocks(&mut self, slot: Slot, blocks: u32) {
        let own = usize::from(slot.0);
        self.capacity[own] = blocks as usize;
        let over = self.lists[own].len().saturating_sub(blocks as usize);
        self.lists[own].truncate(blocks as usize);
        self.evictions += over as u64;
    }

    fn remove(&mut self, slot: Slot) {
        self.lists[usize::from(slot.0)].clear();
        self.capacity[usize::from(slot.0)] = 0;
    }

    fn held_blocks(&self, slot: Slot) -> u32 {
        self.lists[usize::from(slot.0)].len() as u32
    }

    fn counts(&self) -> (u32, u32, u64, u64) {
        let blocks: BTreeSet<_> = self
            .lists
            .iter()
            .flatten()
            .map(|entry| entry.hash)
            .collect();
        (
            self.pairs() as u32,
            blocks.len() as u32,
            self.evictions,
            self.expired,
        )
    }
}
