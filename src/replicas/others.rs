//! The other replicas: what they have in flight, and how far their logs were read.
//!
//! Invariants
//! - a message is taken in once, in order; entries that were missed are counted;
//! - what a replica has in flight counts while it is not silent for [`EXPIRY_MS`], by our own clock: times that
//!   it tells are moved by the difference between its clock and ours;
//! - a process that got another leader is one replica still.
//!
//! Cost: O(counts + entries) a message; a sum O(replicas x endpoints in use).

use super::gathered::add;
use super::message::{self, Header, Section};
use crate::clock::Millis;
use crate::exchange::{Count, EXPIRY_MS, Entry, ReplicaPlace};
use crate::telemetry::{Counter, Telemetry};

/// Replicas that are listened to at most.
pub const MAX_REPLICAS: usize = 64;
/// Clusters of one replica that are listened to at most.
const MAX_SCOPES: usize = 64;

/// A replica that told of no request in a cluster for so long is left none of its endpoints.
const IDLE_MS: u64 = 10_000;

/// All other replicas.
#[derive(Debug)]
pub struct Others {
    own: u64,
    replicas: Vec<Replica>,
}

#[derive(Debug)]
struct Replica {
    header: Header,
    heard_at: Millis,
    clusters: Vec<Heard>,
}

/// One cluster, as one replica told it.
#[derive(Debug)]
struct Heard {
    scope: u64,
    next: u32,
    /// When it told of a request.
    told_at: Millis,
    counts: Vec<Count>,
}

impl Others {
    /// Nobody yet; messages of the process `own` are our own.
    #[must_use]
    pub fn new(own: u64) -> Self {
        Self {
            own,
            replicas: Vec::new(),
        }
    }

    /// Takes in a message: hands each new log entry, with its cluster's scope, to `told`.
    pub fn take(
        &mut self,
        bytes: &[u8],
        telemetry: &mut Telemetry,
        now: Millis,
        told: &mut dyn FnMut(u64, Entry<'_>),
    ) {
        let Some((header, sections)) = message::read(bytes) else {
            telemetry.add(Counter::ReplicaForeign, 1);
            return;
        };
        if header.process == self.own {
            return;
        }
        let Some(replica) = self.replica(&header, now) else {
            telemetry.add(Counter::ReplicaForeign, 1);
            return;
        };
        let ahead = header.number.wrapping_sub(replica.header.number);
        let is_first = replica.heard_at == Millis(0);
        if !is_first && (ahead == 0 || ahead > u32::MAX / 2) {
            return;
        }
        replica.header = header;
        replica.heard_at = now;
        for heard in &mut replica.clusters {
            heard.counts.clear();
        }
        for section in &sections {
            let missed = replica.section(section, now, told);
            telemetry.add(Counter::ReplicaGaps, u64::from(missed));
        }
    }

    /// The replica that a message is from, made when it is new; `None` = there are too many.
    fn replica(&mut self, header: &Header, now: Millis) -> Option<&mut Replica> {
        let is_same = |replica: &Replica| {
            (replica.header.process, replica.header.leader) == (header.process, header.leader)
        };
        if !self.replicas.iter().any(is_same) {
            self.replicas
                .retain(|r| r.header.process != header.process && r.is_alive(now));
            if self.replicas.len() >= MAX_REPLICAS {
                return None;
            }
            self.replicas.push(Replica {
                header: *header,
                heard_at: Millis(0),
                clusters: Vec::new(),
            });
        }
        self.replicas.iter_mut().find(|replica| is_same(replica))
    }

    /// What all replicas that are not silent have in flight in a cluster, by endpoint.
    #[must_use]
    pub fn counts(&self, scope: u64, now: Millis) -> Vec<Count> {
        let mut sums = Vec::new();
        let alive = self.replicas.iter().filter(|replica| replica.is_alive(now));
        for heard in alive.flat_map(|replica| &replica.clusters) {
            if heard.scope == scope {
                for count in &heard.counts {
                    add(&mut sums, count);
                }
            }
        }
        sums
    }

    /// This replica's place among those that send requests to a cluster. All that see the same ones count alike.
    #[must_use]
    pub fn replica_place(&self, scope: u64, now: Millis) -> ReplicaPlace {
        let mut place = ReplicaPlace { number: 0, of: 1 };
        let alive = self.replicas.iter().filter(|replica| replica.is_alive(now));
        for replica in alive.filter(|replica| replica.sends(scope, now)) {
            let is_before = replica.header.process < self.own;
            place.number = place.number.saturating_add(u16::from(is_before));
            place.of = place.of.saturating_add(1);
        }
        place
    }

    /// Replicas that are not silent.
    #[must_use]
    pub fn alive(&self, now: Millis) -> usize {
        self.replicas.iter().filter(|r| r.is_alive(now)).count()
    }
}

impl Replica {
    fn is_alive(&self, now: Millis) -> bool {
        !now.is_over(self.heard_at, EXPIRY_MS)
    }

    fn sends(&self, scope: u64, now: Millis) -> bool {
        let mut heard = self.clusters.iter();
        heard.any(|heard| heard.scope == scope && !now.is_over(heard.told_at, IDLE_MS))
    }

    /// Takes in a section; returns how many entries were missed before it.
    fn section(
        &mut self,
        section: &Section<'_>,
        now: Millis,
        told: &mut dyn FnMut(u64, Entry<'_>),
    ) -> u32 {
        let known = self.clusters.iter().position(|c| c.scope == section.scope);
        if known.is_none() {
            if self.clusters.len() >= MAX_SCOPES {
                return 0;
            }
            self.clusters.push(Heard {
                scope: section.scope,
                next: section.first,
                told_at: Millis(0),
                counts: Vec::new(),
            });
        }
        let Some(heard) = self.clusters.iter_mut().find(|c| c.scope == section.scope) else {
            return 0;
        };
        let here = |at: Millis| {
            if at == Millis(0) {
                return at;
            }
            Millis(now.0.saturating_sub(self.header.at.since(at)))
        };
        heard
            .counts
            .extend(Count::read_all(section.counts).map(|count| Count {
                oldest_at: here(count.oldest_at),
                first_token_at: here(count.first_token_at),
                ..count
            }));
        let missed = section.first.wrapping_sub(heard.next);
        heard.next = section.first;
        if !section.entries.is_empty() {
            heard.told_at = now;
        }
        let mut rest = section.entries;
        while let Some((entry, behind)) = Entry::read(rest) {
            heard.next = heard.next.wrapping_add(1);
            told(section.scope, entry);
            rest = behind;
        }
        missed
    }
}
