//! What this VM leaves to the one that comes after it, and takes from the one before.
//!
//! Two values. *Learned figures* are words of eight bytes, little-endian: version, time; bytes per token, the
//! traffic's figures; how many models, and hash and ratio of each; then hash and figures of each endpoint.
//! *Pairs* are what endpoints hold, as [`Handover`] has it.
//!
//! Invariant: bytes that say nothing change nothing, and a figure outside its bounds stays as it was.
//!
//! Cost: figures O(endpoints + models), some 50 bytes each; pairs O([`MAX_PAIRS`]).

use super::Pool;
use crate::clock::Millis;
use crate::config::Config;
use crate::endpoints::Slot;
use crate::exchange::handover::{Handover, is_recent};
use crate::exchange::{Outbox, What, u64_at};
use crate::learn::Visit;
use crate::telemetry::Telemetry;

/// Pairs that are left at most, the newest of each endpoint.
pub const MAX_PAIRS: u32 = 64 * 1024;
/// Pairs of one entry.
const PAIRS_AN_ENTRY: usize = 1024;

const VERSION: u64 = u64::from_le_bytes(*b"learned1");
/// Figures of an endpoint of which nothing was learned.
const NOTHING: [f64; 5] = [0.0, 0.0, 1.0, 0.0, 0.0];
const ENDPOINT_WORDS: usize = 1 + NOTHING.len();
/// More models than anybody remembers.
const MANY_MODELS: u64 = 1024;

/// Words that are read one after the other.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    /// Sets the figures that `visit` shows, as far as words and bounds allow.
    fn set(&mut self, visit: impl FnOnce(&mut Visit<'_>)) {
        visit(&mut |figure, bounds| {
            let told = self.next().map(f64::from_bits);
            *figure = told.filter(|told| bounds.contains(told)).unwrap_or(*figure);
        });
    }
}

/// When learned figures were written; `None` = they are none.
#[must_use]
pub fn learned_at(bytes: &[u8]) -> Option<Millis> {
    (bytes.len() >= 16 && u64_at(bytes, 0) == VERSION).then(|| Millis(u64_at(bytes, 8)))
}

impl Pool {
    /// Whether there are endpoints for the first time, so that what was left about them can be taken.
    pub fn begins(&mut self) -> bool {
        !self.table.is_empty() && !core::mem::replace(&mut self.has_begun, true)
    }

    /// What was learned, with the endpoints of which something was.
    pub fn leave_learned(&mut self, now: Millis) -> Vec<u8> {
        let mut bytes = [VERSION, now.0].map(u64::to_le_bytes).concat();
        let write = |bytes: &mut Vec<u8>, word: u64| bytes.extend(word.to_le_bytes());
        self.bytes_per_token
            .visit(&mut |figure, _| write(&mut bytes, figure.to_bits()));
        self.traffic
            .visit(&mut |figure, _| write(&mut bytes, figure.to_bits()));
        let models = self.bytes_per_token.models();
        write(&mut bytes, u64::try_from(models.len()).unwrap_or(0));
        for model in models {
            write(&mut bytes, model);
            write(&mut bytes, self.bytes_per_token.of(model).to_bits());
        }
        for endpoint in self.table.iter_mut() {
            let mut figures = Vec::with_capacity(NOTHING.len());
            endpoint.visit(&mut |figure, _| figures.push(*figure));
            if figures != NOTHING {
                write(&mut bytes, endpoint.name_hash);
                for figure in figures {
                    write(&mut bytes, figure.to_bits());
                }
            }
        }
        bytes
    }

    /// Starts with what another VM had learned.
    pub fn take_learned(&mut self, bytes: &[u8], config: &Config, now: Millis) {
        if !learned_at(bytes).is_some_and(|at| is_recent(at, now)) {
            return;
        }
        let mut words = Words(bytes.get(16..).unwrap_or_default());
        words.set(|visit| self.bytes_per_token.visit(visit));
        words.set(|visit| self.traffic.visit(visit));
        for _ in 0..words.next().unwrap_or(0).min(MANY_MODELS) {
            let Some(model) = words.next() else { break };
            words.set(|visit| self.bytes_per_token.visit_model(model, visit));
        }
        for row in words.0.chunks_exact(8 * ENDPOINT_WORDS) {
            let mut row = Words(row);
            let slot = row.next().and_then(|name| self.table.slot_of_name(name));
            if let Some(endpoint) = slot.and_then(|slot| self.table.get_mut(slot)) {
                row.set(|visit| endpoint.visit(visit));
            }
        }
        let slots: Vec<Slot> = self.table.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.fit(slot, config);
        }
    }

    /// What endpoints hold: of each the newest pairs, its share of [`MAX_PAIRS`]. The oldest are told first, so
    /// that recording them gives the same order of use.
    #[must_use]
    pub fn leave_pairs(&self, vm: u64, now: Millis) -> Vec<u8> {
        let mut log = Outbox::new(usize::MAX);
        let pairs = u64::from(self.index.stats().pairs.max(MAX_PAIRS));
        for (slot, endpoint) in self.table.iter() {
            let share = u64::from(self.index.held_blocks(slot)) * u64::from(MAX_PAIRS) / pairs;
            let newest = self.index.newest(slot, now);
            let newest: Vec<_> = newest.take(usize::try_from(share).unwrap_or(0)).collect();
            for blocks in newest.chunks(PAIRS_AN_ENTRY).rev() {
                log.tell(What::Recorded, endpoint.name_hash, blocks);
            }
        }
        Handover::write(log, vm, now)
    }

    /// Starts with what endpoints held, as another VM knew it, and folds in a first part.
    pub fn take_pairs(&mut self, bytes: Vec<u8>, telemetry: &mut Telemetry, now: Millis) {
        self.handover = Handover::read(bytes, now);
        self.fold_handover(telemetry, now);
    }

    /// Folds in the next part of what was left.
    pub fn fold_handover(&mut self, telemetry: &mut Telemetry, now: Millis) {
        let (table, index) = (&self.table, &mut self.index);
        let more = self.handover.as_mut().is_some_and(|handover| {
            handover
                .fold(&mut |entry| super::workers::fold(entry, table, index, telemetry, now))
        });
        if !more {
            self.handover = None;
        }
    }
}

#[cfg(test)]
mod tests;
