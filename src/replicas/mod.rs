//! One view over all replicas of a gateway, on a store that is there already.
//!
//! One VM of each process, the leader, speaks for it. Every interval it puts what its workers have in flight and
//! what they recorded since (read from the exchange's shared values) into the store as one message, and reads the
//! messages of the others. What it read it publishes to its workers as one more member of the exchange: the sum of
//! what the other replicas have in flight, and their records as one log. So workers read on as they did, at a cost
//! that does not depend on the number of replicas.
//!
//! ```text
//! workers' heads, logs -> gathered -> message -> put -> store -> read -> others -> head, log -> workers
//! ```
//!
//! A machine without I/O: [`Replicas::due`] says which calls to make, the answers come back by kind.
//!
//! Invariants
//! - nothing waits for the store: a call a kind at a time, given up when unanswered; what a failed put held is not
//!   told again, and readers count it as missed;
//! - what a replica has in flight counts while it is not silent, see [`others`];
//! - a message, what one reading brings, replicas and clusters are bounded.
//!
//! Cost: per interval two calls, O(own new records), and O(records of all others).

mod base64;
pub mod etcd;
mod gathered;
pub mod message;
mod others;
pub mod redis;
pub mod store;

use crate::clock::Millis;
use crate::config::ReplicaOptions;
use crate::exchange::members::{REPLICAS_BIT, stands_for_replicas};
use crate::exchange::{EXPIRY_MS, Entry, Member, Outbox};
use crate::number::millis;
use crate::pick::rendezvous;
use crate::telemetry::{Counter, Telemetry};
use gathered::Gathered;
use message::Header;
use others::Others;
use store::{Query, Store, Trouble, What};

/// How long a call may take; one that is never answered is given up after twice that.
pub const TIMEOUT_MS: u32 = 1_000;
/// Clusters that are told at most.
const MAX_CLUSTERS: usize = 64;
/// Segment of the log that workers read: the ring of them holds what some fifty replicas tell in an interval.
const INBOX_SEGMENT_BYTES: usize = 64 * 1024;
/// The same trouble is said again when it came back after so long.
const QUIET_MS: u64 = 60_000;
/// Kinds of trouble that are said at most.
const MAX_SAID: usize = 8;

/// What a cluster is called among replicas: those of the same rule of the same configuration are one.
#[must_use]
pub fn scope(rule: u64, cluster: &str) -> u64 {
    let bytes = cluster.bytes().map(u64::from);
    bytes.fold(rule, rendezvous::weight)
}

/// Writes a cluster's segment of the log, at its place in the ring, or its head where there is no place.
pub type Write<'a> = dyn FnMut(&str, Option<u32>, &[u8]) + 'a;

/// The leader's side, for one rule of a configuration.
#[derive(Debug)]
pub struct Replicas<S> {
    store: S,
    interval_ms: u64,
    rule: u64,
    header: Header,
    clusters: Vec<Cluster>,
    others: Others,
    calls: [Call; 3],
    led_at: Millis,
    was_bare: bool,
    said: Vec<(Trouble, Millis)>,
    news: Option<String>,
}

/// When a kind of call was made last, and whether its answer is awaited.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    asked_at: Option<Millis>,
    is_out: bool,
}

impl Call {
    fn is_due(&self, interval_ms: u64, now: Millis) -> bool {
        let wait_ms = if self.is_out {
            2 * u64::from(TIMEOUT_MS)
        } else {
            // Ticks come a little early or late.
            interval_ms - interval_ms / 4
        };
        self.asked_at.is_none_or(|at| now.is_over(at, wait_ms))
    }
}

#[derive(Debug)]
struct Cluster {
    name: Box<str>,
    scope: u64,
    gathered: Gathered,
    inbox: Outbox,
    full: Vec<(u32, Vec<u8>)>,
}

impl Cluster {
    /// Tells the workers what another replica told.
    fn repeat(&mut self, entry: Entry<'_>, member: u64) {
        // A segment is shown before it is left.
        if self.inbox.is_full() {
            self.full.extend(self.inbox.segment(member));
        }
        self.inbox.repeat(entry);
    }
}

impl<S: Store> Replicas<S> {
    /// For a `rule` of the configuration in the VM `leader` of the gateway process `process`.
    #[must_use]
    pub fn new(options: &ReplicaOptions, rule: u64, process: u64, leader: u64) -> Self {
        Self {
            store: S::new(&options.group),
            interval_ms: millis(options.interval),
            rule,
            header: Header {
                process,
                leader,
                number: 0,
                at: Millis(0),
            },
            clusters: Vec::new(),
            others: Others::new(process),
            calls: [Call::default(); 3],
            led_at: Millis(0),
            was_bare: false,
            said: Vec::new(),
            news: None,
        }
    }

    /// The member of the exchange that stands for the other replicas.
    #[must_use]
    pub fn member(&self) -> u64 {
        REPLICAS_BIT | self.header.leader
    }

    /// This VM leads at `now`, with these clusters. One that did not lead for a while begins at the present.
    pub fn lead<'a>(&mut self, clusters: impl Iterator<Item = &'a str>, now: Millis) {
        if now.since(self.led_at) >= EXPIRY_MS {
            self.store.skip();
        }
        self.led_at = now;
        for name in clusters {
            if self.clusters.len() < MAX_CLUSTERS && self.clusters.iter().all(|c| &*c.name != name)
            {
                self.clusters.push(Cluster {
                    name: name.into(),
                    scope: scope(self.rule, name),
                    gathered: Gathered::default(),
                    inbox: Outbox::new(INBOX_SEGMENT_BYTES),
                    full: Vec::new(),
                });
            }
        }
    }

    /// The name of a cluster, by its place.
    #[must_use]
    pub fn cluster(&self, place: usize) -> Option<&str> {
        self.clusters.get(place).map(|cluster| &*cluster.name)
    }

    /// Reads these workers of a cluster, and no others.
    pub fn listen(&mut self, place: usize, members: impl Iterator<Item = u64>) {
        if let Some(cluster) = self.clusters.get_mut(place) {
            let workers: Vec<u64> = members.filter(|vm| !stands_for_replicas(*vm)).collect();
            cluster.gathered.listen(&workers);
        }
    }

    /// A worker of a cluster, by their places.
    pub fn worker(&mut self, place: usize, worker: usize) -> Option<&mut Member> {
        let cluster = self.clusters.get_mut(place)?;
        cluster.gathered.workers.get_mut(worker)
    }

    /// Takes in a segment of a worker's log; `false` when it gave nothing more.
    pub fn hear(
        &mut self,
        place: usize,
        worker: usize,
        bytes: &[u8],
        telemetry: &mut Telemetry,
    ) -> bool {
        let Some(cluster) = self.clusters.get_mut(place) else {
            return false;
        };
        let missed = cluster.gathered.hear(worker, bytes);
        telemetry.add(Counter::ReplicaGaps, u64::from(missed.unwrap_or(0)));
        missed.is_some()
    }

    /// The calls that are due.
    pub fn due(&mut self, telemetry: &mut Telemetry, now: Millis) -> Vec<Query> {
        let mut queries = Vec::new();
        for what in [What::Keep, What::Put, What::Read] {
            let is_due = |call: &Call| call.is_due(self.interval_ms, now);
            if !self.calls.get(what as usize).is_some_and(is_due) {
                continue;
            }
            let query = match what {
                What::Keep => self.store.keep(now),
                What::Put => self.put(now),
                What::Read => self.store.read(),
            };
            if let (Some(query), Some(call)) = (query, self.calls.get_mut(what as usize)) {
                if call.is_out {
                    telemetry.add(Counter::ReplicaFailures, 1);
                }
                *call = Call {
                    asked_at: Some(now),
                    is_out: true,
                };
                telemetry.add(Counter::ReplicaCalls, 1);
                let size = u64::try_from(query.bytes.len()).unwrap_or(0);
                telemetry.add(Counter::ReplicaBytesOut, size);
                queries.push(query);
            }
        }
        queries
    }

    /// The next message; nothing when there is as little to tell as the last time.
    fn put(&mut self, now: Millis) -> Option<Query> {
        self.header.at = now;
        let mut bytes = message::begin(&self.header);
        for cluster in &mut self.clusters {
            let counts = cluster.gathered.counts(now);
            let (first, entries) = cluster.gathered.take();
            if !(counts.is_empty() && entries.is_empty()) {
                message::add(&mut bytes, cluster.scope, first, &counts, &entries);
            }
        }
        let is_bare = message::is_bare(&bytes);
        // Without a place to read from one is put in any case: its answer tells where that is.
        let was_bare = core::mem::replace(&mut self.was_bare, is_bare);
        if was_bare && is_bare && self.store.read().is_some() {
            return None;
        }
        let (process, number) = (self.header.process, self.header.number);
        let query = self.store.put(process, number, &bytes);
        if query.is_some() {
            self.header.number = number.wrapping_add(1);
        } else {
            self.was_bare = false;
        }
        query
    }

    /// Takes in what came back, `None` = no answer, or the call could not be made.
    pub fn answer(
        &mut self,
        what: What,
        answer: Option<(u32, &[u8])>,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        if let Some(call) = self.calls.get_mut(what as usize) {
            call.is_out = false;
        }
        let outcome = match answer {
            None => Err(Trouble("it cannot be reached".to_owned())),
            Some((status, body)) => {
                let size = u64::try_from(body.len()).unwrap_or(0);
                telemetry.add(Counter::ReplicaBytesIn, size);
                let member = self.member();
                let (others, clusters) = (&mut self.others, &mut self.clusters);
                self.store.answer(what, status, body, &mut |message| {
                    others.take(message, telemetry, now, &mut |scope, entry| {
                        if let Some(cluster) = clusters.iter_mut().find(|c| c.scope == scope) {
                            cluster.repeat(entry, member);
                        }
                    });
                })
            }
        };
        if let Err(trouble) = outcome {
            telemetry.add(Counter::ReplicaFailures, 1);
            self.say(trouble, now);
        }
    }

    fn say(&mut self, trouble: Trouble, now: Millis) {
        let is_room = self.said.len() < MAX_SAID;
        let known = self.said.iter_mut().find(|(said, _)| *said == trouble);
        let is_new = match known {
            Some((_, at)) => now.since(core::mem::replace(at, now)) >= QUIET_MS,
            None if is_room => {
                self.said.push((trouble.clone(), now));
                true
            }
            None => false,
        };
        if is_new {
            let Trouble(why) = trouble;
            self.news = Some(format!("the replicas' store: {why}; going on without"));
        }
    }

    /// Trouble that was not said yet, for the log.
    pub fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Shows the workers of the process what is known: each cluster's new segments, then its head.
    pub fn publish(&mut self, now: Millis, write: &mut Write<'_>) {
        let member = self.member();
        for cluster in &mut self.clusters {
            for (place, bytes) in cluster.full.drain(..).chain(cluster.inbox.segment(member)) {
                write(&cluster.name, Some(place), &bytes);
            }
            let counts = self.others.counts(cluster.scope, now);
            cluster.inbox.replica_place = self.others.replica_place(cluster.scope, now);
            let head = cluster.inbox.head(member, counts.into_iter(), now);
            write(&cluster.name, None, &head);
        }
    }

    /// Other replicas that are not silent.
    #[must_use]
    pub fn alive(&self, now: Millis) -> usize {
        self.others.alive(now)
    }
}

#[cfg(test)]
mod tests;
