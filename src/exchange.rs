//! What the workers of one process tell each other, through the host's shared data.
//!
//! A gateway runs one VM a worker thread, and each sees a share of the traffic. Every VM owns its keys and
//! nobody waits for anybody:
//!
//! - *head*: what it has in flight at each endpoint, and how far its log reaches;
//! - *log*: the prefixes that it recorded or took back, in block hashes; a ring of [`RING`] segments.
//!
//! A record is told from the block before the first one that was not used lately: what others were told a
//! moment ago is not told again, so a conversation's next turn costs its new blocks only.
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
//! [`LOOK_SEGMENTS`] segments of each other VM; the rest is done by ticks.

pub mod handover;
pub mod members;
mod wire;

use crate::clock::Millis;
use crate::request::BlockHash;

pub use wire::{Count, Entry, Told, What};
pub(crate) use wire::{u16_at, u32_at, u64_at};

/// Format of heads and segments. Versions do not read each other.
const VERSION: u8 = 2;
/// Segments of a log.
pub const RING: u32 = 8;
/// A segment is full from this size on, bytes.
const SEGMENT_BYTES: usize = 8 * 1024;
/// Blocks folded in at a decision.
pub const FOLD_BLOCKS: usize = 512;
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
    pub fn tell(&mut self, what: What, name_hash: u64, blocks: &[BlockHash]) {
        if self.is_on {
            self.outbox.tell(what, name_hash, blocks);
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

    /// A worker that is listened to.
    pub fn member(&mut self, vm: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.vm == vm)
    }
}

/// This VM's side: its log.
#[derive(Debug)]
pub struct Outbox {
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
    pub fn tell(&mut self, what: What, name_hash: u64, blocks: &[BlockHash]) {
        self.advance();
        Told::write(what, name_hash, blocks, &mut self.entries);
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
        bytes.extend([0; 4]);
        for count in counts {
            count.write(&mut bytes);
        }
        bytes
    }
}

/// Another VM, as far as it was read.
#[derive(Debug)]
pub struct Member {
    /// The VM.
    pub vm: u64,
    /// What it has in flight.
    pub counts: Vec<Count>,
    /// When it last spoke.
    pub at: Millis,
    /// Version of the head that was read last, as the host counts.
    pub version: Option<u32>,
    reached: u32,
    newest: u32,
    segment: u32,
    next: u32,
    /// How far the present segment was read: its number, bytes, and the number of the entry there.
    place: (u32, usize, u32),
    is_new: bool,
}

impl Member {
    /// A VM of which nothing was read yet.
    #[must_use]
    pub fn new(vm: u64) -> Self {
        Self {
            vm,
            counts: Vec::new(),
            at: Millis(0),
            version: None,
            reached: 0,
            newest: 0,
            segment: 0,
            next: 0,
            place: (0, 0, 0),
            is_new: true,
        }
    }

    /// Reads a head; `false` when it says nothing.
    pub fn read_head(&mut self, bytes: &[u8]) -> bool {
        let Some((header, counts)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return false;
        };
        if header.first() != Some(&VERSION) || u64_at(header, 4) != self.vm {
            return false;
        }
        self.at = Millis(u64_at(header, 12));
        self.reached = u32_at(header, 20);
        let segment = u32_at(header, 24);
        if self.is_new {
            // What it told before we listened: as much as its ring still has.
            self.is_new = false;
            self.segment = segment.saturating_sub(RING - 1);
        }
        if segment.wrapping_sub(self.segment) >= RING {
            self.segment = segment.wrapping_sub(RING - 1);
        }
        self.newest = segment;
        self.counts.clear();
        self.counts.extend(Count::read_all(counts));
        true
    }

    /// Whether it has been silent so long that it need not be asked again.
    #[must_use]
    pub fn is_forgotten(&self, now: Millis) -> bool {
        now.since(self.at) > 30 * EXPIRY_MS
    }

    /// Whether it spoke once and is silent for so long that its place can be given up.
    #[must_use]
    pub fn is_gone(&self, now: Millis) -> bool {
        self.at != Millis(0) && self.is_forgotten(now)
    }

    /// Whether its counts still stand.
    #[must_use]
    pub fn is_alive(&self, now: Millis) -> bool {
        now.since(self.at) < EXPIRY_MS
    }

    /// The place in the ring of the segment to read next; `None` when all was read.
    #[must_use]
    pub fn wanted(&self) -> Option<u32> {
        (self.next != self.reached).then_some(self.segment % RING)
    }

    /// Places in the ring of the newest segments that were not read yet, oldest first.
    pub fn unread(&self) -> impl Iterator<Item = u32> + use<> {
        let behind = self.newest.wrapping_sub(self.segment).min(RING);
        let newest = self.newest;
        let count = if self.next == self.reached {
            0
        } else {
            behind.saturating_add(1).min(LOOK_SEGMENTS)
        };
        (0..count)
            .rev()
            .map(move |back| newest.wrapping_sub(back) % RING)
    }

    /// What is in a segment from where it was read up to: the segment's number, the first entry's, and entries.
    fn open<'a>(&self, bytes: &'a [u8]) -> Option<(u32, u32, &'a [u8])> {
        let (header, entries) = bytes.split_first_chunk::<SEGMENT_HEADER_BYTES>()?;
        if header.first() != Some(&VERSION) || u64_at(header, 4) != self.vm {
            return None;
        }
        let (segment, number) = (u32_at(header, 12), u32_at(header, 16));
        // Entries are only ever added behind what was read.
        Some(match entries.get(self.place.1..) {
            Some(rest) if self.place.0 == segment => (segment, self.place.2, rest),
            _ => (segment, number, entries),
        })
    }

    /// Looks through a segment without reading on: hands records not read yet to `fold`, as far as they are in
    /// `sought`, until it has no `budget` of blocks left.
    pub fn look_through(
        &self,
        bytes: &[u8],
        sought: &Sought,
        budget: &mut usize,
        fold: &mut dyn FnMut(Told),
    ) {
        let Some((_, mut number, mut entries)) = self.open(bytes) else {
            return;
        };
        while let Some((entry, rest)) = Entry::read(entries)
            && *budget > 0
        {
            let is_unread = number.wrapping_sub(self.next) < u32::MAX / 2;
            let told = entry.told_while(|block| is_unread && sought.has(block));
            // The first block is usually one that was told before.
            if told.what == What::Recorded && told.blocks.len() > 1 {
                *budget = budget.saturating_sub(told.blocks.len());
                fold(told);
            }
            entries = rest;
            number = number.wrapping_add(1);
        }
    }

    /// Reads a segment: hands new entries to `fold` until it has no `budget` of blocks left. Returns how many
    /// entries were missed, or `None` when this segment gives nothing more for now.
    pub fn read_segment(
        &mut self,
        bytes: &[u8],
        budget: &mut usize,
        fold: &mut dyn FnMut(Entry<'_>),
    ) -> Option<u32> {
        let (segment, mut number, mut entries) = self.open(bytes)?;
        let whole = bytes.len().saturating_sub(SEGMENT_HEADER_BYTES);
        let mut missed = 0;
        let ahead = number.wrapping_sub(self.next);
        if ahead < u32::MAX / 2 && ahead > 0 {
            missed = ahead;
            self.next = number;
        }
        self.segment = segment;
        while let Some((entry, rest)) = Entry::read(entries) {
            if number == self.next {
                if *budget == 0 {
                    return Some(missed);
                }
                *budget = budget.saturating_sub(entry.blocks().max(1));
                self.next = self.next.wrapping_add(1);
                fold(entry);
            }
            entries = rest;
            number = number.wrapping_add(1);
            self.place = (segment, whole.saturating_sub(entries.len()), number);
        }
        if self.next != self.reached {
            self.segment = segment.wrapping_add(1);
        }
        Some(missed)
    }
}

/// A prompt's blocks, roughly: what it has it knows for sure, what it has not nearly always.
#[derive(Debug)]
pub struct Sought([u64; 64]);

impl Sought {
    /// Of a prompt's blocks. What begins in none of them has none of them: hashes are chained.
    #[must_use]
    pub fn of(blocks: &[BlockHash]) -> Self {
        let mut sought = Self([0; 64]);
        for block in blocks {
            let (word, bit) = Self::place(*block);
            if let Some(word) = sought.0.get_mut(word) {
                *word |= bit;
            }
        }
        sought
    }

    fn has(&self, block: BlockHash) -> bool {
        let (word, bit) = Self::place(block);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn place(block: BlockHash) -> (usize, u64) {
        let [high, low, ..] = block.to_le_bytes();
        (usize::from(high % 64), 1 << (low % 64))
    }
}

#[cfg(test)]
mod tests;
