//! The endpoints of one cluster, by address and by slot.
//!
//! Invariants
//! - an address has one slot while it is listed; a slot that was freed is reused with a new generation,
//!   so that what is still on its way to the old endpoint changes nothing at the new one;
//! - at most [`MAX_ENDPOINTS`]: further addresses are not taken in;
//! - a listing is whole: what it does not name has left.
//!
//! Cost: a listing O(endpoints), one hash look-up each, and a sort where somebody came or left; everything else O(1).

use hashbrown::HashMap;

use super::endpoint::{Endpoint, Others};
use super::load::Health;
use super::{MAX_ENDPOINTS, Slot};

/// The endpoints of one cluster.
#[derive(Debug, Default)]
pub struct Table {
    slots: Vec<Option<Endpoint>>,
    by_address: HashMap<Box<str>, Slot>,
    by_name: HashMap<u64, Slot>,
    free: Vec<Slot>,
    is_unordered: bool,
    listing: u32,
    generation: u32,
}

impl Table {
    /// Starts a whole listing.
    pub fn begin_listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// Names an endpoint in the listing; `true` when it is new. `None` when the table is full.
    pub fn list(&mut self, address: &str, health: Health) -> Option<(Slot, bool)> {
        if let Some(&slot) = self.by_address.get(address) {
            let listing = self.listing;
            let endpoint = self.get_mut(slot)?;
            endpoint.health = health;
            endpoint.listing = listing;
            return Some((slot, false));
        }
        let slot = self.vacant()?;
        self.generation = self.generation.wrapping_add(1);
        let mut endpoint = Endpoint::new(address, self.generation);
        endpoint.health = health;
        endpoint.listing = self.listing;
        self.by_name.insert(endpoint.name_hash, slot);
        self.is_unordered = true;
        *self.slots.get_mut(usize::from(slot.0))? = Some(endpoint);
        self.by_address.insert(address.into(), slot);
        Some((slot, true))
    }

    /// Ends the listing: whoever it did not name has left. Calls `left` for each.
    pub fn end_listing(&mut self, mut left: impl FnMut(Slot, &Endpoint)) {
        for (at, place) in self.slots.iter_mut().enumerate() {
            let Ok(at) = u16::try_from(at) else { continue };
            if place
                .as_ref()
                .is_some_and(|endpoint| endpoint.listing != self.listing)
                && let Some(endpoint) = place.take()
            {
                self.by_address.remove(&endpoint.address);
                self.by_name.remove(&endpoint.name_hash);
                self.free.push(Slot(at));
                self.is_unordered = true;
                left(Slot(at), &endpoint);
            }
        }
        self.put_in_order();
    }

    /// Numbers the endpoints where somebody came or left.
    pub fn put_in_order(&mut self) {
        if !core::mem::take(&mut self.is_unordered) {
            return;
        }
        let mut named: Vec<(u64, Slot)> = self.by_name.iter().map(|(n, s)| (*n, *s)).collect();
        named.sort_unstable();
        for (order, (_, slot)) in (0..).zip(named) {
            if let Some(endpoint) = self.get_mut(slot) {
                endpoint.order = order;
            }
        }
    }

    fn vacant(&mut self) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() >= MAX_ENDPOINTS {
            return None;
        }
        let slot = Slot(u16::try_from(self.slots.len()).ok()?);
        self.slots.push(None);
        Some(slot)
    }

    /// The endpoint in a slot.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&Endpoint> {
        self.slots.get(usize::from(slot.0))?.as_ref()
    }

    /// The endpoint in a slot.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Endpoint> {
        self.slots.get_mut(usize::from(slot.0))?.as_mut()
    }

    /// The slot of an address.
    #[must_use]
    pub fn slot_of(&self, address: &str) -> Option<Slot> {
        self.by_address.get(address).copied()
    }

    /// The slot of an address, by its hash.
    #[must_use]
    pub fn slot_of_name(&self, name_hash: u64) -> Option<Slot> {
        self.by_name.get(&name_hash).copied()
    }

    /// Forgets what other workers have in flight.
    pub fn clear_others(&mut self) {
        for endpoint in self.slots.iter_mut().flatten() {
            endpoint.others = Others::default();
        }
    }

    /// All endpoints.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Endpoint)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(at, place)| Some((Slot(u16::try_from(at).ok()?), place.as_ref()?)))
    }

    /// All endpoints.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        self.slots.iter_mut().flatten()
    }

    /// How many endpoints there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.by_address.len()).unwrap_or(u32::MAX)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }
}

#[cfg(test)]
mod tests;
