//! The prefix index against a naive one, over random operations; and proof that the comparison can fail.

use core::time::Duration;
use std::collections::BTreeSet;

use warmroute::clock::Millis;
use warmroute::config::IndexOptions;
use warmroute::endpoints::Slot;
use warmroute::prefix::{Depths, EXPIRED_PER_RECORD, Index, LATELY_S, RecordState, Recorded};
use warmroute::request::BlockHash;

/// What is compared: the index, the naive one, and broken ones.
trait Subject {
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
struct Real {
    index: Index,
    depths: Depths,
}

impl Real {
    fn new(options: &IndexOptions) -> Self {
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

#[derive(Clone)]
struct Entry {
    hash: BlockHash,
    used_s: u64,
    claims: u32,
    confirmed: bool,
}

/// One list per slot, newest first; every question is answered by looking at everything.
struct Naive {
    lists: Vec<Vec<Entry>>,
    capacity: Vec<usize>,
    max_pairs: usize,
    ttl_s: u64,
    latest_s: u64,
    evictions: u64,
    expired: u64,
}

impl Naive {
    fn new(options: &IndexOptions, slots: usize) -> Self {
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

/// The sizes that a run plays with.
#[derive(Clone)]
struct World {
    slots: u16,
    max_pairs: u32,
    max_capacity: u32,
    max_depth: usize,
    /// Continuations of each block.
    fan_out: u64,
    max_step_ms: u64,
}

impl World {
    fn options(&self) -> IndexOptions {
        IndexOptions {
            max_pairs: self.max_pairs,
            ttl: Duration::from_secs(20),
            ..IndexOptions::default()
        }
    }

    /// A path of chained hashes; short alphabets make paths meet and part.
    fn path(&self, rng: &mut fastrand::Rng) -> Vec<BlockHash> {
        let mut hash = 1_u64;
        let depth = rng.usize(0..=self.max_depth);
        let next = |_| {
            hash = (hash ^ (rng.u64(0..self.fan_out) + 7))
                .wrapping_mul(0x2545_f491_4f6c_dd1d)
                .rotate_left(23);
            hash
        };
        (0..depth).map(next).collect()
    }
}

/// Plays the same random operations to `subject` and a naive index; the first difference, if there is one.
fn difference(
    world: &World,
    seed: u64,
    operations: u32,
    subject: &mut impl Subject,
) -> Option<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut naive = Naive::new(&world.options(), usize::from(world.slots));
    let mut now_ms = 1_700_000_000_000;
    let mut claims: Vec<(Vec<BlockHash>, Slot)> = Vec::new();
    for slot in 0..world.slots {
        let capacity = rng.u32(0..=world.max_capacity);
        subject.set_capacity_blocks(Slot(slot), capacity);
        naive.set_capacity_blocks(Slot(slot), capacity);
    }
    for operation in 0..operations {
        // Now and then nothing happens for longer than the TTL.
        now_ms += if rng.u16(..) < 200 {
            25_000
        } else {
            rng.u64(0..world.max_step_ms)
        };
        // The clock steps back now and then.
        let now = Millis(now_ms - if rng.u8(..) < 8 { 3000 } else { 0 });
        let slot = Slot(rng.u16(0..world.slots));
        let path = world.path(&mut rng);
        let (real, wanted) = match rng.u8(0..32) {
            0..16 => {
                let state = if rng.bool() {
                    RecordState::Tentative
                } else {
                    RecordState::Confirmed
                };
                let real = format!("{:?}", subject.record(&path, slot, state, now));
                let wanted = format!("{:?}", naive.record(&path, slot, state, now));
                if state == RecordState::Tentative {
                    claims.push((path, slot));
                }
                (real, wanted)
            }
            16..26 if !claims.is_empty() => {
                let (path, slot) = claims.swap_remove(rng.usize(0..claims.len()));
                if rng.bool() {
                    let real = subject.confirm(&path, slot, now);
                    (
                        real.to_string(),
                        naive.confirm(&path, slot, now).to_string(),
                    )
                } else {
                    subject.withdraw(&path, slot);
                    naive.withdraw(&path, slot);
                    Default::default()
                }
            }
            26..29 => {
                let keep = rng.u32(0..=path.len() as u32);
                subject.trim(&path, slot, keep);
                naive.trim(&path, slot, keep);
                Default::default()
            }
            29 | 30 => {
                let capacity = rng.u32(0..=world.max_capacity);
                subject.set_capacity_blocks(slot, capacity);
                naive.set_capacity_blocks(slot, capacity);
                Default::default()
            }
            31 if rng.u8(..) < 64 => {
                let capacity = rng.u32(0..=world.max_capacity);
                subject.remove(slot);
                naive.remove(slot);
                subject.set_capacity_blocks(slot, capacity);
                naive.set_capacity_blocks(slot, capacity);
                Default::default()
            }
            _ => Default::default(),
        };
        if real != wanted {
            return Some(format!(
                "operation {operation} answered {real}, not {wanted}"
            ));
        }
        if subject.counts() != naive.counts() {
            let (real, wanted) = (subject.counts(), naive.counts());
            return Some(format!(
                "operation {operation} left {real:?}, not {wanted:?}"
            ));
        }
        let asked = world.path(&mut rng);
        let later = Millis(now.0 + rng.u64(0..10_000));
        let (real, wanted) = (subject.matches(&asked, later), naive.matches(&asked, later));
        if real != wanted {
            return Some(format!(
                "operation {operation}: matches are {real:?}, not {wanted:?}"
            ));
        }
        for slot in (0..world.slots).map(Slot) {
            if subject.held_blocks(slot) != naive.held_blocks(slot) {
                return Some(format!(
                    "operation {operation}: slot {} holds another number",
                    slot.0
                ));
            }
        }
    }
    None
}

const TINY: World = World {
    slots: 5,
    max_pairs: 24,
    max_capacity: 12,
    max_depth: 9,
    fan_out: 2,
    max_step_ms: 700,
};

#[test]
fn agrees_with_the_naive_index() {
    let worlds = [
        (TINY, 40_000),
        // Capacities bind, the cap does not.
        (
            World {
                max_pairs: 1000,
                max_step_ms: 200,
                ..TINY
            },
            30_000,
        ),
        // The cap binds, capacities do not; long paths.
        (
            World {
                slots: 12,
                max_pairs: 90,
                max_capacity: 90,
                max_depth: 40,
                ..TINY
            },
            12_000,
        ),
        // Blocks with many holders, around where their representation changes.
        (
            World {
                slots: 60,
                max_pairs: 260,
                max_capacity: 12,
                max_depth: 4,
                fan_out: 1,
                max_step_ms: 300,
            },
            16_000,
        ),
        (
            World {
                slots: 200,
                max_pairs: 1500,
                max_capacity: 20,
                max_depth: 8,
                fan_out: 2,
                max_step_ms: 60,
            },
            4_000,
        ),
        // Everything expires all the time.
        (
            World {
                slots: 30,
                max_pairs: 500,
                max_capacity: 40,
                max_step_ms: 9000,
                ..TINY
            },
            10_000,
        ),
    ];
    for (seed, (world, operations)) in worlds.into_iter().enumerate() {
        let mut real = Real::new(&world.options());
        let found = difference(&world, seed as u64, operations, &mut real);
        assert_eq!(found, None, "world {seed}");
    }
}

/// An index with one fault.
struct Broken {
    real: Real,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    CountsBlocksBehindAGap,
    EvictsHeadsFirst,
    ReadingIsUsing,
    WithdrawsForOthers,
    NeverExpires,
    ForgetsTheClaim,
    KeepsWhatIsTrimmed,
    IgnoresCapacity,
    RemembersRemoved,
}

impl Subject for Broken {
    fn matches(&mut self, blocks: &[BlockHash], now: Millis) -> Vec<(Slot, u32)> {
        match self.fault {
            Fault::CountsBlocksBehindAGap => {
                let mut found = self.real.matches(blocks, now);
                for (slot, depth) in &mut found {
                    let held = |block: &&BlockHash| {
                        self.real
                            .matches(&[**block], now)
                            .iter()
                            .any(|of| of.0 == *slot)
                    };
                    *depth = blocks.iter().filter(held).count() as u32;
                }
                found
            }
            Fault::ReadingIsUsing => {
                let found = self.real.matches(blocks, now);
                for (slot, depth) in &found {
                    self.real
                        .confirm(&blocks[..*depth as usize], *slot, Millis(0));
                }
                found
            }
            Fault::NeverExpires => self.real.matches(blocks, Millis(0)),
            _ => self.real.matches(blocks, now),
        }
    }

    fn record(
        &mut self,
        blocks: &[BlockHash],
        slot: Slot,
        state: RecordState,
        now: Millis,
    ) -> Recorded {
        if self.fault == Fault::EvictsHeadsFirst {
            let recorded = self.real.record(blocks, slot, state, now);
            // Uses the blocks once more, from the end on: the head is now what was used longest ago.
            for block in blocks {
                self.real
                    .index
                    .record(&[*block], slot, RecordState::Confirmed, now);
            }
            return recorded;
        }
        self.real.record(blocks, slot, state, now)
    }

    fn confirm(&mut self, blocks: &[BlockHash], slot: Slot, now: Millis) -> u32 {
        self.real.confirm(blocks, slot, now)
    }

    fn withdraw(&mut self, blocks: &[BlockHash], slot: Slot) {
        match self.fault {
            Fault::WithdrawsForOthers => self.real.trim(blocks, slot, 0),
            Fault::ForgetsTheClaim => {}
            _ => self.real.withdraw(blocks, slot),
        }
    }

    fn trim(&mut self, blocks: &[BlockHash], slot: Slot, keep: u32) {
        let keep = if self.fault == Fault::KeepsWhatIsTrimmed {
            keep + 1
        } else {
            keep
        };
        self.real.trim(blocks, slot, keep);
    }

    fn set_capacity_blocks(&mut self, slot: Slot, blocks: u32) {
        let more = u32::from(self.fault == Fault::IgnoresCapacity);
        self.real.set_capacity_blocks(slot, blocks + more);
    }

    fn remove(&mut self, slot: Slot) {
        if self.fault != Fault::RemembersRemoved {
            self.real.remove(slot);
        }
    }

    fn held_blocks(&self, slot: Slot) -> u32 {
        self.real.held_blocks(slot)
    }

    fn counts(&self) -> (u32, u32, u64, u64) {
        self.real.counts()
    }
}

#[test]
fn the_comparison_catches_each_broken_index() {
    let world = World {
        max_pairs: 40,
        ..TINY
    };
    let run = |fault| {
        let real = Real::new(&world.options());
        difference(&world, 7, 5000, &mut Broken { real, fault })
    };
    assert_eq!(run(Fault::Nothing), None);
    for fault in [
        Fault::CountsBlocksBehindAGap,
        Fault::EvictsHeadsFirst,
        Fault::ReadingIsUsing,
        Fault::WithdrawsForOthers,
        Fault::NeverExpires,
        Fault::ForgetsTheClaim,
        Fault::KeepsWhatIsTrimmed,
        Fault::IgnoresCapacity,
        Fault::RemembersRemoved,
    ] {
        assert!(run(fault).is_some(), "{fault:?} went unnoticed");
    }
}
