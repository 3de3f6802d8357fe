//! How replicas that share a store split endpoints among themselves for what they have not heard of each other yet.
//!
//! Word of a request reaches the other replicas an interval later. Those that decide within it see the same idle
//! endpoints and would all send there. So each endpoint is one replica's own (or that of some, where replicas outnumber
//! endpoints), and every replica takes it that the others send to theirs, at the pace at which it sends itself.
//!
//! Invariant: all replicas that know the same endpoints and each other split them alike. Cost: O(1).

use crate::clock::Millis;
use crate::exchange::Standing;

/// Requests that others are taken to have sent unheard before a decision, whatever was sent here lately.
const EVER_UNHEARD: f64 = 2.0;
/// More requests than this are not sent in an interval: whoever told of them was not listened to before.
const MANY: u32 = 64;

/// This replica's side of it.
#[derive(Debug, Default)]
pub struct Split {
    interval_ms: u64,
    standing: Standing,
    /// Log entries of this process when the present interval began.
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

    /// Takes in where this replica stands, and how many log entries its process has told in all.
    pub fn look(&mut self, standing: Standing, told: u32, now: Millis) {
        self.standing = standing;
        if now.is_over(self.began_at, self.interval_ms) {
            self.began_at = now;
            self.told = told;
        }
        let sent = told.wrapping_sub(self.told);
        self.sent = if sent < MANY { sent } else { 0 };
    }

    /// Parts of the endpoints, where there are so many.
    fn parts(&self, endpoints: u32) -> u32 {
        u32::from(self.standing.of).min(endpoints)
    }

    /// Whether an endpoint is this replica's own, by its place in the order of names.
    pub fn owns(&self, order: u32, endpoints: u32) -> bool {
        let number = u32::from(self.standing.number);
        let parts = self.parts(endpoints);
        order.checked_rem(parts) == number.checked_rem(parts)
    }

    /// Requests that were probably sent unheard to an endpoint of others; 0 while this replica is alone.
    pub fn unheard(&self, endpoints: u32) -> f64 {
        match self.parts(endpoints) {
            0 | 1 => 0.0,
            parts => {
                let share = f64::from(parts) / f64::from(endpoints);
                (EVER_UNHEARD + f64::from(self.sent)) * share
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(number: u16, of: u16) -> Split {
        let mut split = Split::new(100);
        split.look(Standing { number, of }, 0, Millis(1000));
        split
    }

    #[test]
    fn every_endpoint_is_somebodys_and_replicas_that_outnumber_them_share() {
        for (endpoints, of) in [(8, 2), (8, 3), (3, 8), (1, 4)] {
            let owners =
                |order| (0..of).filter(move |number| split(*number, of).owns(order, endpoints));
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
    fn alone_all_is_ours_and_nothing_unheard() {
        for of in [0, 1] {
            let split = split(0, of);
            assert!((0..8).all(|order| split.owns(order, 8)));
            assert_eq!(split.unheard(8), 0.0);
        }
    }

    #[test]
    fn others_send_unheard_as_much_as_this_replica_did_in_the_interval() {
        let standing = Standing { number: 1, of: 2 };
        let mut split = split(1, 2);
        let quiet = split.unheard(8);
        assert_eq!(quiet, EVER_UNHEARD / 4.0);
        split.look(standing, 4, Millis(1050));
        assert_eq!(split.unheard(8), quiet + 1.0);
        split.look(standing, 5, Millis(1100));
        assert_eq!(split.unheard(8), quiet, "heard of by now");
        split.look(standing, 500, Millis(1110));
        assert_eq!(
            split.unheard(8),
            quiet,
            "a worker was not listened to before"
        );
        split.look(standing, 4, Millis(1120));
        assert_eq!(split.unheard(8), quiet, "one left");
    }
}
