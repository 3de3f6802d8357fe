//! Another VM's head and log, as far as they were read.
//!
//! Invariant: any bytes can be read. Cost: O(endpoints in use) a head; a step each entry that was not read yet.

use super::wire::{Count, Entry, Told, What, u16_at, u32_at, u64_at};
use super::{
    EXPIRY_MS, HEAD_BYTES, LOOK_SEGMENTS, RING, ReplicaPlace, SEGMENT_HEADER_BYTES, VERSION,
};
use crate::clock::Millis;
use crate::request::BlockHash;

/// More entries than a ring can hold.
const MOST_ENTRIES: u32 = u32::MAX / 4;

/// Another VM, as far as it was read.
#[derive(Debug)]
pub struct Member {
    /// The VM.
    pub vm: u64,
    /// What it has in flight.
    pub counts: Vec<Count>,
    /// When it last spoke.
    pub at: Millis,
    /// Where it stands for all other replicas: this one's place among all.
    pub replica_place: ReplicaPlace,
    /// Version of the head that was read last, as the host counts.
    pub version: Option<u32>,
    /// Number that its next entry will have.
    pub(super) reached: u32,
    /// The segment that it writes.
    newest: u32,
    /// The segment that is read.
    segment: u32,
    /// Number of the entry to read next.
    next: u32,
    place: Place,
    /// Nothing of its log was read yet.
    is_new: bool,
}

/// How far a segment was read.
#[derive(Debug, Default)]
struct Place {
    segment: u32,
    bytes: usize,
    /// Number of the entry there.
    number: u32,
}

impl Member {
    /// A VM of which nothing was read yet.
    #[must_use]
    pub fn new(vm: u64) -> Self {
        Self {
            vm,
            counts: Vec::new(),
            at: Millis(0),
            replica_place: ReplicaPlace::default(),
            version: None,
            reached: 0,
            newest: 0,
            segment: 0,
            next: 0,
            place: Place::default(),
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
        self.replica_place = ReplicaPlace {
            number: u16_at(header, 28),
            of: u16_at(header, 30),
        };
        self.reached = u32_at(header, 20);
        let segment = u32_at(header, 24);
        if self.is_new {
            // What it told before we listened: as much as its ring still has, however long it has told.
            self.segment = segment.saturating_sub(RING - 1);
            if self.reached != 0 {
                self.next = self.reached.wrapping_sub(MOST_ENTRIES);
            }
        }
        if segment.wrapping_sub(self.segment) >= RING {
            self.segment = segment.wrapping_sub(RING - 1);
        }
        self.newest = segment;
        self.counts.clear();
        self.counts.extend(Count::read_all(counts));
        true
    }

    /// Whether it spoke once and is silent for so long that its place can be given up.
    #[must_use]
    pub fn is_gone(&self, now: Millis) -> bool {
        self.at != Millis(0) && now.since(self.at) > 30 * EXPIRY_MS
    }

    /// Whether its counts still stand. It may speak while it is read; a clock that was set back keeps nobody alive.
    #[must_use]
    pub fn is_alive(&self, now: Millis) -> bool {
        self.at.0.abs_diff(now.0) < EXPIRY_MS
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
        Some(match entries.get(self.place.bytes..) {
            Some(rest) if self.place.segment == segment => (segment, self.place.number, rest),
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
        let is_first = core::mem::take(&mut self.is_new);
        if ahead < u32::MAX / 2 && ahead > 0 {
            missed = if is_first { 0 } else { ahead };
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
            self.place = Place {
                segment,
                bytes: whole.saturating_sub(entries.len()),
                number,
            };
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
