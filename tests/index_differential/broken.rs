//! Indexes with one fault each, which the comparison has to find.

use warmroute::clock::Millis;
use warmroute::endpoints::Slot;
use warmroute::prefix::{RecordState, Recorded};
use warmroute::request::BlockHash;

use crate::subject::{Real, Subject};

/// An index with one fault.
pub struct Broken {
    pub real: Real,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
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
