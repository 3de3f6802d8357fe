//! One order of use per slot, and which slot has the oldest of all.
//!
//! Invariants
//! - along a slot's order the time of use never rises from newest to oldest;
//! - every block of a path stands right behind the block before it when the path was recorded last, so what is oldest
//!   is always the end of a path: suffixes go before heads.
//!
//! Cost: placing and taking out touch two neighbours each. The slot with the oldest entry is remembered while its oldest is
//! as old as when it was chosen; choosing anew reads all slots once.

use super::arena::NIL;
use super::holders::Holders;
use crate::endpoints::{MAX_ENDPOINTS, Slot};

#[derive(Clone, Copy)]
pub(super) struct Lane {
    newest: u32,
    oldest: u32,
    held: u32,
    capacity: u32,
}

impl Lane {
    const EMPTY: Self = Self {
        newest: NIL,
        oldest: NIL,
        held: 0,
        capacity: 0,
    };
}

pub(super) struct Recency {
    lanes: Vec<Lane>,
    /// A slot and the time of use of its oldest pair: no pair is older. `None` = to be chosen.
    oldest: Option<(u16, u32)>,
}

impl Recency {
    pub(super) const fn new() -> Self {
        Self {
            lanes: Vec::new(),
            oldest: None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.lanes.capacity() * size_of::<Lane>()) as u64
    }

    pub(super) fn held(&self, slot: u16) -> u32 {
        self.lanes
            .get(usize::from(slot))
            .map_or(0, |lane| lane.held)
    }

    pub(super) fn capacity(&self, slot: u16) -> u32 {
        self.lanes
            .get(usize::from(slot))
            .map_or(0, |lane| lane.capacity)
    }

    pub(super) fn set_capacity(&mut self, slot: Slot, blocks: u32) {
        let at = usize::from(slot.0);
        if at >= MAX_ENDPOINTS {
            return;
        }
        if self.lanes.len() <= at {
            self.lanes.resize(at + 1, Lane::EMPTY);
        }
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.capacity = blocks;
        }
    }

    /// The slot's oldest pair, or [`NIL`].
    pub(super) fn oldest_of(&self, slot: u16) -> u32 {
        self.lanes
            .get(usize::from(slot))
            .map_or(NIL, |lane| lane.oldest)
    }

    /// A time that no pair's last use lies before, when it is known without looking.
    pub(super) const fn oldest_bound_s(&self) -> Option<u32> {
        match self.oldest {
            Some((_, used_s)) => Some(used_s),
            None => None,
        }
    }

    /// The pair used longest ago (to the second; among equals, of the lowest slot) and its time.
    pub(super) fn oldest(&mut self, holders: &Holders) -> Option<(u32, u32)> {
        if let Some((slot, used_s)) = self.oldest {
            let id = self.oldest_of(slot);
            if holders.pair(id).is_some_and(|pair| pair.used_s == used_s) {
                return Some((id, used_s));
            }
        }
        if holders.len() == 0 {
            self.oldest = None;
            return None;
        }
        let mut found: Option<(u32, u16, u32)> = None;
        for (lane, slot) in self.lanes.iter().zip(0_u16..) {
            let Some(pair) = holders.pair(lane.oldest) else {
                continue;
            };
            if found.is_none_or(|(used_s, ..)| pair.used_s < used_s) {
                found = Some((pair.used_s, slot, lane.oldest));
            }
        }
        self.oldest = found.map(|(used_s, slot, _)| (slot, used_s));
        found.map(|(used_s, _, id)| (id, used_s))
    }

    /// Takes a pair out of its slot's order.
    pub(super) fn take(&mut self, holders: &mut Holders, id: u32) {
        let Some(&pair) = holders.pair(id) else {
            return;
        };
        let Some(lane) = self.lanes.get_mut(usize::from(pair.slot())) else {
            return;
        };
        match holders.pair_mut(pair.newer) {
            Some(newer) => newer.older = pair.older,
            None => lane.newest = pair.older,
        }
        match holders.pair_mut(pair.older) {
            Some(older) => older.newer = pair.newer,
            None => lane.oldest = pair.newer,
        }
        lane.held = lane.held.saturating_sub(1);
    }

    /// The slot's newest pair, or [`NIL`].
    pub(super) fn newest_of(&self, slot: u16) -> u32 {
        self.lanes
            .get(usize::from(slot))
            .map_or(NIL, |lane| lane.newest)
    }

    /// Puts a pair that is in no order, used at `used_s`, right behind `before`, or first of all when that is [`NIL`].
    /// Returns the pair behind it.
    #[inline]
    pub(super) fn put_behind(
        &mut self,
        holders: &mut Holders,
        before: u32,
        id: u32,
        slot: u16,
        used_s: u32,
    ) -> u32 {
        let Some(lane) = self.lanes.get_mut(usize::from(slot)) else {
            return NIL;
        };
        if lane.held == 0 {
            self.oldest = match self.oldest {
                Some((chosen, at_s)) if (at_s, chosen) < (used_s, slot) => Some((chosen, at_s)),
                Some(_) => Some((slot, used_s)),
                None if holders.len() == 1 => Some((slot, used_s)),
                None => None,
            };
        }
        let after = match holders.pair_mut(before) {
            Some(before) => core::mem::replace(&mut before.older, id),
            None => core::mem::replace(&mut lane.newest, id),
        };
        match holders.pair_mut(after) {
            Some(after) => after.newer = id,
            None => lane.oldest = id,
        }
        if let Some(pair) = holders.pair_mut(id) {
            pair.newer = before;
            pair.older = after;
        }
        lane.held = lane.held.saturating_add(1);
        after
    }
}
