//! How replicas that share a store split endpoints among themselves for what they have not heard of each other yet.
//!
//! Word of a request reaches the other replicas an interval later. Those that decide within it see the same idle
//! endpoints and would all send there. So each owns a part of the endpoints, by the order of their addresses' hashes, and
//! assumes that every other one has sent, since the interval began, some requests more than it did itself, evenly to the
//! endpoints that are the other's.
//!
//! Parts are of all endpoints. Where few of them may be picked a replica may own none of those, and where lists differ
//! for a while the borders between parts do: then the split helps less, and costs as much as it assumes unheard.
//!
//! Cost: O(1).

use crate::clock::Millis;
use crate::exchange::ReplicaPlace;

/// Requests that others are taken to have sent unheard before a decision, whatever was sent here lately.
const EVER_UNHEARD: f64 = 1.5;
/// Of these, no more are taken to be before one endpoint: where each replica has few, an idle one of another's would be
/// passed over while its own have requests waiting.
const MOST_UNHEARD: f64 = 0.5;
/// More of them say no more.
const MANY: u32 = 64;

/// This replica's side of it.
#[derive(Debug, Default)]
pub struct Split {
    interval_ms: u64,
    place: ReplicaPlace,
    /// Workers of this process, and log entries that they had told when the present interval began.
    workers: usize,
    told: u32,
    began_at: Millis,
    /// Log entries since.
    sent: u32,
}

impl Split {
    /// Nobody else is known yet; they would tell every `interval_ms`.
    pub fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            ..Self::default()
        }
    }

    /// Takes in this replica's place, and how many log entries so many workers of its process have told in all.
    pub fn look(&mut self, place: ReplicaPlace, workers: usize, told: u32, now: Millis) {
        self.place = place;
        if now.is_over(self.began_at, self.interval_ms) || self.workers != workers {
            self.began_at = now;
            self.workers = workers;
            self.told = told;
        }
        self.sent = told.wrapping_sub(self.told).min(MANY);
    }

    /// Requests that were probably sent unheard to an endpoint, beyond those to one of this replica's own; by the
    /// endpoint's place in the order. 0 while this replica is alone.
    pub fn unheard(&self, order: u32, endpoints: u32) -> f64 {
        // Where replicas outnumber endpoints some own the same one.
        let parts = u32::from(self.place.of).min(endpoints);
        let own = u32::from(self.place.number).checked_rem(parts);
        let scaled = u64::from(order).saturating_mul(u64::from(parts));
        let part = scaled.checked_div(u64::from(endpoints));
        if part == own.map(u64::from) {
            return 0.0;
        }
        let share = f64::from(parts) / f64::from(endpoints);
        (EVER_UNHEARD * share).min(MOST_UNHEARD) + f64::from(self.sent) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(number: u16, of: u16) -> Split {
        let mut split = Split::new(100);
        split.look(ReplicaPlace { number, of }, 4, 0, Millis(1000));
        split
    }

    fn owns(split: &Split, order: u32, endpoints: u32) -> bool {
        split.unheard(order, endpoints) == 0.0
    }

    #[test]
    fn every_endpoint_is_somebodys_and_replicas_that_outnumber_them_share() {
        for (endpoints, of) in [(8, 2), (8, 3), (3, 8), (1, 4), (512, 50)] {
            let owners = |order| (0..of).filter(move |at| owns(&split(*at, of), order, endpoints));
            let counts: Vec<usize> = (0..endpoints).map(|order| owners(order).count()).collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(least >= Some(&1), "{endpoints} {of}: {counts:?}");
            assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= 1)
            );
        }
    }

    #[test]
    fn one_endpoint_more_moves_only_the_borders() {
        let moved = |number| {
            let split = split(number, 2);
            (0..8).filter(move |at| owns(&split, *at, 8) != owns(&split, *at + 1, 9))
        };
        assert!((0..2).map(|number| moved(number).count()).sum::<usize>() <= 2);
    }

    #[test]
    fn alone_nothing_is_unheard() {
        for of in [0, 1] {
            assert!((0..8).all(|order| owns(&split(0, of), order, 8)));
        }
        assert!(owns(&split(1, 2), 0, 0), "there is no endpoint");
    }

    #[test]
    fn others_send_unheard_as_much_as_this_replica_did_in_the_interval() {
        let place = ReplicaPlace { number: 1, of: 2 };
        let mut split = split(1, 2);
        let quiet = split.unheard(0, 8);
        assert_eq!(quiet, EVER_UNHEARD / 4.0);
        split.look(place, 4, 4, Millis(1050));
        assert_eq!(split.unheard(0, 8), quiet + 1.0);
        split.look(place, 4, 5, Millis(1100));
        assert_eq!(split.unheard(0, 8), quiet, "heard of by now");
        split.look(place, 5, 5_000, Millis(1110));
        assert_eq!(
            split.unheard(0, 8),
            quiet,
            "what another worker told before"
        );
        split.look(place, 5, 9_000, Millis(1120));
        assert_eq!(split.unheard(0, 8), quiet + f64::from(MANY) / 4.0);
    }
}
