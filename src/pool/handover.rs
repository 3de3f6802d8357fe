//! What this VM leaves to the one that comes after it, and takes from the one before.
//!
//! Two values. *Learned figures* are words of eight bytes, little-endian: version, time; bytes per token, the
//! traffic's figures; how many models, and hash and ratio of each; then hash and figures of each endpoint.
//! *Pairs* are what endpoints hold, as [`Handover`] has it.
//!
//! Invariant: bytes that say nothing change nothing, and a figure outside its bounds stays as it was.
//!
//! Cost: figures O(endpoints + models), some 50 bytes each; pairs O([`MAX_PAIRS`]).

use core::cell::Cell;

use super::Pool;
use crate::clock::Millis;
use crate::config::Config;
use crate::endpoints::endpoint::{Endpoint, LEARNED_FIGURES};
use crate::endpoints::{MAX_ENDPOINTS, Slot};
use crate::exchange::handover::{Handover, is_recent};
use crate::exchange::{Outbox, What, u64_at};
use crate::learn::Visit;
use crate::telemetry::Telemetry;

/// Pairs that are left at most, the newest of each endpoint.
pub const MAX_PAIRS: u32 = 64 * 1024;
/// Pairs of one entry.
const PAIRS_AN_ENTRY: usize = 1024;

/// Format of learned figures, their number and order among it.
const VERSION: u64 = u64::from_le_bytes(*b"learned1");
/// More models than anybody remembers.
const MANY_MODELS: u64 = 1024;

/// Words that are read one after the other; in a cell, as figures are read by a visitor and what is between them is not.
struct Words<'a>(Cell<&'a [u8]>);

impl Words<'_> {
    fn next(&self) -> Option<u64> {
        let (word, rest) = self.0.get().split_first_chunk::<8>()?;
        self.0.set(rest);
        Some(u64::from_le_bytes(*word))
    }
}

#[inline(never)]
fn write(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

/// Whether something was learned about an endpoint that another VM can use. What engines themselves tell any VM
/// is none of that: else one that served nothing would seem to know as much as others.
fn is_known(endpoint: &Endpoint) -> bool {
    endpoint.rate.tokens_per_ms().is_some()
        || endpoint.queueing.ms() > 0.0
        || endpoint.trust.factor() < 1.0
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
        let mut bytes = Vec::new();
        write(&mut bytes, VERSION);
        write(&mut bytes, now.0);
        let told = &mut |figure: &mut f64, _: &_| write(&mut bytes, figure.to_bits());
        self.bytes_per_token.visit(told);
        self.traffic.visit(told);
        let models = self.bytes_per_token.models();
        write(&mut bytes, u64::try_from(models.len()).unwrap_or(0));
        // The one used last comes last, so that it is that there as well.
        for (model, ratio) in models.rev() {
            write(&mut bytes, model);
            write(&mut bytes, ratio.to_bits());
        }
        for endpoint in self.table.iter_mut().filter(|at| is_known(at)) {
            write(&mut bytes, endpoint.name_hash);
            endpoint.visit(&mut |figure, _| write(&mut bytes, figure.to_bits()));
        }
        bytes
    }

    /// Starts with what another VM had learned.
    pub fn take_learned(&mut self, bytes: &[u8], config: &Config, now: Millis) {
        if !learned_at(bytes).is_some_and(|at| is_recent(at, now)) {
            return;
        }
        let words = Words(Cell::new(bytes.get(16..).unwrap_or_default()));
        let set: &mut Visit<'_> = &mut |figure, bounds| {
            let told = words.next().map(f64::from_bits);
            *figure = told.filter(|told| bounds.contains(told)).unwrap_or(*figure);
        };
        self.bytes_per_token.visit(set);
        self.traffic.visit(set);
        for _ in 0..words.next().unwrap_or(0).min(MANY_MODELS) {
            let Some(model) = words.next() else { break };
            self.bytes_per_token.visit_model(model, set);
        }
        while let Some(name) = words.next() {
            let slot = self.table.slot_of_name(name);
            match slot.and_then(|slot| self.table.get_mut(slot)) {
                Some(endpoint) => endpoint.visit(set),
                None => (0..LEARNED_FIGURES).for_each(|_| _ = words.next()),
            }
        }
        for at in 0..MAX_ENDPOINTS {
            self.fit(Slot(u16::try_from(at).unwrap_or(0)), config);
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
                log.tell(What::Recorded, endpoint.name_hash, 0, blocks);
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
            handover.fold(&mut |entry| {
                super::workers::fold(&entry.told(), table, index, telemetry, now);
            })
        });
        if !more {
            self.handover = None;
        }
    }
}

#[cfg(test)]
mod tests;
