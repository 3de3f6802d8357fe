//! A set of slots as bits.

use crate::endpoints::{MAX_ENDPOINTS, Slot};

const WORDS: usize = MAX_ENDPOINTS / 64;

/// Slots below [`MAX_ENDPOINTS`]; any other is never in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotSet([u64; WORDS]);

impl SlotSet {
    pub(super) const EMPTY: Self = Self([0; WORDS]);

    #[inline(always)]
    pub(super) fn contains(&self, slot: u16) -> bool {
        self.0
            .get(usize::from(slot >> 6))
            .is_some_and(|word| word >> (slot & 63) & 1 != 0)
    }

    pub(super) fn insert(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot >> 6)) {
            *word |= 1 << (slot & 63);
        }
    }

    pub(super) fn remove(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot >> 6)) {
            *word &= !(1 << (slot & 63));
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, other) in both.0.iter_mut().zip(other.0) {
            *word &= other;
        }
        both
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = *self;
        for (word, other) in left.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        left
    }

    /// The slots, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0
            .iter()
            .zip((0_u16..).step_by(64))
            .flat_map(|(&word, base)| Bits { word, base })
    }
}

struct Bits {
    word: u64,
    base: u16,
}

impl Iterator for Bits {
    type Item = Slot;

    #[inline(always)]
    fn next(&mut self) -> Option<Slot> {
        if self.word == 0 {
            return None;
        }
        let bit = self.word.trailing_zeros() & 63;
        self.word &= self.word - 1;
        Some(Slot(self.base | u16::try_from(bit).unwrap_or(0)))
    }
}
