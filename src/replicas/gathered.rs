//! What the workers of this process have in flight and recorded about one cluster, for the other replicas.
//!
//! Invariant: log entries are numbered in one row over all workers; one that did not fit keeps its number, so
//! that readers see what they missed.
//!
//! Cost: O(new log entries) of all workers.

use crate::clock::Millis;
use crate::exchange::{Count, Member};

/// Log entries that wait for the next message, bytes at most.
const MAX_ENTRY_BYTES: usize = 40 * 1024;

/// One cluster's side of what this replica tells.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The workers, as far as they were read.
    pub workers: Vec<Member>,
    first: u32,
    next: u32,
    entries: Vec<u8>,
    is_full: bool,
}

impl Gathered {
    /// Reads these workers from now on, and no others.
    pub fn listen(&mut self, vms: &[u64]) {
        self.workers.retain(|worker| vms.contains(&worker.vm));
        for vm in vms {
            if self.workers.iter().all(|worker| worker.vm != *vm) {
                self.workers.push(Member::new(*vm));
            }
        }
    }

    /// Takes in a segment of a worker's log. Returns how many entries were gone before they were read, or
    /// `None` when it gave nothing more.
    pub fn hear(&mut self, worker: usize, bytes: &[u8]) -> Option<u32> {
        let Self {
            workers,
            next,
            entries,
            is_full,
            ..
        } = self;
        let worker = workers.get_mut(worker)?;
        let mut no_budget = usize::MAX;
        worker.read_segment(bytes, &mut no_budget, &mut |entry| {
            *next = next.wrapping_add(1);
            // What follows a gap would be numbered wrongly: the first that does not fit ends the batch.
            *is_full = *is_full || entries.len() >= MAX_ENTRY_BYTES;
            if !*is_full {
                entries.extend_from_slice(entry.bytes);
            }
        })
    }

    /// The log entries since the last call, and the number of the first.
    pub fn take(&mut self) -> (u32, Vec<u8>) {
        let first = core::mem::replace(&mut self.first, self.next);
        self.is_full = false;
        (first, core::mem::take(&mut self.entries))
    }

    /// What all workers that are not silent have in flight.
    #[must_use]
    pub fn counts(&self, now: Millis) -> Vec<Count> {
        let mut sums = Vec::new();
        for worker in self.workers.iter().filter(|worker| worker.is_alive(now)) {
            for count in &worker.counts {
                add(&mut sums, count);
            }
        }
        sums
    }
}

/// Adds a count to those by endpoint, which stand in order.
#[inline(never)]
pub fn add(sums: &mut Vec<Count>, count: &Count) {
    match sums.binary_search_by_key(&count.name_hash, |sum| sum.name_hash) {
        Ok(at) => {
            if let Some(sum) = sums.get_mut(at) {
                *sum = sum.and(count);
            }
        }
        Err(at) => sums.insert(at, *count),
    }
}
