//! What the workers of one process tell each other, through the host's shared data.
//!
//! A gateway runs one VM a worker thread, and each sees a share of the traffic. Every VM owns its keys and
//! nobody waits for anybody:
//!
//! - *head*: what it has in flight at each endpoint, and how far its log reaches;
//! - *log*: the prefixes that it recorded or took back, in block hashes; a ring of [`RING`] segments.
//!
//! A record is told from the block before the first one that was not used lately: what others were told a
//! moment ago is not told again: of quick turns and shared heads only what is new.
//!
//! Invariants
//! - what a VM reads of another is folded in once a tick, in order; where the ring has gone over something it
//!   had not read, the gap is counted and the reading goes on behind it;
//! - before a decision, what was not read yet is looked through for blocks of the prompt at hand, and those are
//!   folded in at once. The tick does it again, in order, so nothing depends on what was picked out;
//! - counts of a VM that is silent for [`EXPIRY_MS`] do not count; it died, or was rebuilt. Its log is read for as long
//!   as a [`handover`] would be;
//! - any bytes can be read: another version, or nonsense, is as if nothing were there.
//!
//! Cost: a head is 32 bytes and 44 an endpoint in use; reading it O(endpoints in use). Folding costs one
//! index record a told block: at most [`FOLD_BLOCKS`] a decision, and a look at each entry in the last
//! [`LOOK_SEGMENTS`] segments of each other VM; the rest is done by ticks,
//! [`FOLD_BLOCKS_A_TICK`] each.

pub mod handover;
pub mod members;
mod reader;
mod wire;

use crate::clock::Millis;
use crate::request::BlockHash;

pub use reader::{Member, Sought};
pub use wire::{Count, Entry, Told, What};
pub(crate) use wire::{u16_at, u32_at, u64_at};

/// Format of heads and segments. Versions do not read each other.
const VERSION: u8 = 3;
/// Segments of a log.
pub const RING: u32 = 8;
/// A segment is full from this size on, bytes.
const SEGMENT_BYTES: usize = 8 * 1024;
/// Blocks folded in at a decision.
pub const FOLD_BLOCKS: usize = 512;
/// Blocks folded in at a tick: all that a ring can hold of a few busy workers, or what many replicas told.
pub const FOLD_BLOCKS_A_TICK: usize = 8 * 1024;
/// Segments of another's log that are looked through at a decision.
pub const LOOK_SEGMENTS: u32 = 2;
/// A VM that is silent this long no longer counts.
pub const EXPIRY_MS: u64 = 2_000;
/// Other VMs that are listened to.
pub const MAX_MEMBERS: usize = 256;

const HEAD_BYTES: usize = 32;
const SEGMENT_HEADER_BYTES: usize = 24;

/// One worker's exchange about one cluster.
#[derive(Debug)]
pub struct Exchange {
    is_on: bool,
    has_news: bool,
    /// What this worker tells.
    pub outbox: Outbox,
    /// The workers that it listens to.
    pub members: Vec<Member>,
}

impl Exchange {
    /// An exchange that tells and hears nothing when it is off.
    #[must_use]
    pub fn new(is_on: bool) -> Self {
        Self {
            is_on,
            has_news: false,
            outbox: Outbox::default(),
            members: Vec::new(),
        }
    }

    /// Whether there is anybody to tell.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds an entry to the log.
    pub fn tell(&mut self, what: What, name_hash: u64, uncached_tokens: u32, blocks: &[BlockHash]) {
        if self.is_on {
            self.outbox.tell(what, name_hash, uncached_tokens, blocks);
            self.has_news = true;
        }
    }

    /// Notes that a count changed.
    pub fn touch(&mut self) {
        self.has_news = self.is_on;
    }

    /// Whether there is something to tell since the last call.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Listens to these workers from now on as well.
    pub fn listen(&mut self, vms: impl Iterator<Item = u64>) {
        for vm in vms {
            if self.members.len() < MAX_MEMBERS && self.members.iter().all(|member| member.vm != vm)
            {
                self.members.push(Member::new(vm));
            }
        }
    }

    /// Workers of this process that are heard, this one among them, and the log entries that they have told in all;
    /// the count wraps.
    #[must_use]
    pub fn told_by_workers(&self) -> (usize, u32) {
        let members = self.members.iter();
        let others = members.filter(|member| !members::stands_for_replicas(member.vm));
        others.fold((1, self.outbox.next), |(workers, told), member| {
            (workers.saturating_add(1), told.wrapping_add(member.reached))
        })
    }

    /// A worker that is listened to.
    pub fn member(&mut self, vm: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.vm == vm)
    }
}

/// A replica among those that share a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaPlace {
    /// Its number, below `of`.
    pub number: u16,
    /// How many there are, this one among them; 0 = nobody told.
    pub of: u16,
}

/// This VM's side: its log.
#[derive(Debug)]
pub struct Outbox {
    /// This replica's place among all; set only in the log that stands for the others.
    pub replica_place: ReplicaPlace,
    segment_bytes: usize,
    next: u32,
    segment: u32,
    first: u32,
    entries: Vec<u8>,
    changed: bool,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new(SEGMENT_BYTES)
    }
}

impl Outbox {
    /// An empty log whose segments are full from so many bytes on.
    #[must_use]
    pub fn new(segment_bytes: usize) -> Self {
        Self {
            replica_place: ReplicaPlace::default(),
            segment_bytes,
            next: 0,
            segment: 0,
            first: 0,
            entries: Vec::new(),
            changed: false,
        }
    }

    /// Whether the next entry begins another segment.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.segment_bytes
    }

    /// Adds an entry.
    pub fn tell(&mut self, what: What, name_hash: u64, uncached_tokens: u32, blocks: &[BlockHash]) {
        self.advance();
        Told::write(what, name_hash, uncached_tokens, blocks, &mut self.entries);
    }

    /// Adds an entry of another log.
    pub fn repeat(&mut self, entry: Entry<'_>) {
        self.advance();
        self.entries.extend_from_slice(entry.bytes);
    }

    fn advance(&mut self) {
        if self.is_full() {
            self.segment = self.segment.wrapping_add(1);
            self.first = self.next;
            self.entries.clear();
        }
        self.next = self.next.wrapping_add(1);
        self.changed = true;
    }

    /// The present segment and its place in the ring, when it changed since the last call. Call it after
    /// every entry: a segment that fills up is not shown again.
    pub fn segment(&mut self, vm: u64) -> Option<(u32, Vec<u8>)> {
        if !core::mem::take(&mut self.changed) {
            return None;
        }
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER_BYTES + self.entries.len());
        bytes.extend([VERSION, 0, 0, 0]);
        bytes.extend(vm.to_le_bytes());
        bytes.extend(self.segment.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.entries);
        Some((self.segment % RING, bytes))
    }

    /// The head.
    #[must_use]
    pub fn head(&self, vm: u64, counts: impl Iterator<Item = Count>, now: Millis) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 8 * Count::BYTES);
        bytes.extend([VERSION, 0, 0, 0]);
        bytes.extend(vm.to_le_bytes());
        bytes.extend(now.0.to_le_bytes());
        bytes.extend(self.next.to_le_bytes());
        bytes.extend(self.segment.to_le_bytes());
        bytes.extend(self.replica_place.number.to_le_bytes());
        bytes.extend(self.replica_place.of.to_le_bytes());
        for count in counts {
            count.write(&mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
