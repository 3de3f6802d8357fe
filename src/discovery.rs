//! Endpoints and their load on a gateway that lists neither: asked from Envoy's admin interface, scraped
//! from the engines, published for all workers.
//!
//! One VM of the process does this for all ([`Lease`]); the others read what it publishes. A machine
//! without I/O: [`Discovery::due`] says which calls to make, the answers come back by name.
//!
//! Invariants
//! - one call a target at a time; one that is never answered is given up after twice its timeout;
//! - a failed listing keeps the endpoints of the last good one; a failed scrape keeps the last load,
//!   whose age then takes its weight away;
//! - what another VM may have overtaken is not published: not what was known when this one led before.
//!
//! Cost: O(endpoints) a tick; a scrape's text is read once, in one pass.

use crate::clock::Millis;
use crate::config::{Config, Disaggregation, EndpointSource, MetricsOptions};
use crate::endpoints::admin_clusters::{self, ClusterHosts};
use crate::endpoints::load::Health;
use crate::endpoints::scan;
use crate::endpoints::snapshot::{self, EndpointSnapshot};
use crate::number::millis;
use crate::telemetry::{Counter, Telemetry};

/// Clusters that one configuration discovers at most.
pub const MAX_CLUSTERS: usize = 64;
/// The admin interface lists all clusters at once, which costs it some: not more often than this.
const LISTING_PERIOD_MS: u64 = 1_000;
/// A static endpoint that refused this many scrapes in a row is taken for down.
const REFUSALS: u32 = 2;

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Envoy's list of clusters, from this cluster.
    List {
        /// Cluster of the admin port.
        cluster: Box<str>,
    },
    /// An engine's metrics.
    Scrape {
        /// Cluster of the endpoint.
        cluster: Box<str>,
        /// The endpoint.
        address: Box<str>,
    },
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// A response.
    Body {
        /// HTTP status; the gateway answers 503 itself when it cannot connect.
        status: u16,
        /// Its body.
        body: &'a [u8],
    },
    /// No response, or the call could not be made.
    Failed,
}

struct Watched {
    row: EndpointSnapshot,
    asked_at: Option<Millis>,
    done_at: Option<Millis>,
    refusals: u32,
}

struct Cluster {
    name: Box<str>,
    watched: Vec<Watched>,
    changed: bool,
}

/// The leader's view of all clusters of one configuration.
pub struct Discovery {
    source: EndpointSource,
    metrics: MetricsOptions,
    disaggregation: Option<Disaggregation>,
    clusters: Vec<Cluster>,
    listing_asked_at: Option<Millis>,
    listing_done_at: Option<Millis>,
    led_at: Option<Millis>,
    /// Others may have published since the last listing here.
    is_old: bool,
}

impl Discovery {
    /// A view that knows the clusters which the configuration names.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut discovery = Self {
            source: config.endpoints.clone(),
            metrics: config.metrics.clone(),
            disaggregation: config.disaggregation.clone(),
            clusters: Vec::new(),
            listing_asked_at: None,
            listing_done_at: None,
            led_at: None,
            is_old: true,
        };
        if let EndpointSource::Admin { of, .. } = &config.endpoints {
            for name in of {
                discovery.watch(name);
            }
        }
        discovery
    }

    /// Adds a cluster that requests go to. Where requests name the endpoints there is nothing to tell of it:
    /// a listing, empty as it would be, takes away what is known.
    pub fn watch(&mut self, name: &str) {
        if matches!(self.source, EndpointSource::Header(_))
            || self.clusters.len() >= MAX_CLUSTERS
            || self.clusters.iter().any(|cluster| &*cluster.name == name)
        {
            return;
        }
        let watched = match &self.source {
            EndpointSource::Static(endpoints) => endpoints
                .iter()
                .map(|endpoint| Watched::new(&endpoint.address, Health::Healthy))
                .collect(),
            _ => Vec::new(),
        };
        self.clusters.push(Cluster {
            name: name.into(),
            // Until it was listed nothing is told of it: as it is, it would tell that everybody left.
            changed: !watched.is_empty(),
            watched,
        });
    }

    /// This VM leads at `now`. Where another may have led meanwhile, what was not published here is old by now,
    /// and what the next listing says is news even where it is what was known here.
    pub fn lead(&mut self, now: Millis) {
        let before = self.led_at.replace(now);
        if before.is_some_and(|at| now.since(at) > LEASE_MS) {
            self.is_old = true;
            for cluster in &mut self.clusters {
                cluster.changed = false;
            }
        }
    }

    /// Sooner than usual while all endpoints of some cluster are down, as they are before the first health
    /// check: until they are seen up again nothing is steered there.
    fn listing_period_ms(&self) -> u64 {
        let refresh_ms = millis(self.metrics.refresh);
        let is_down = |watched: &Watched| watched.row.health == Some(Health::Unhealthy);
        let hopeless =
            |cluster: &Cluster| !cluster.watched.is_empty() && cluster.watched.iter().all(is_down);
        if self.clusters.iter().any(hopeless) {
            refresh_ms
        } else {
            LISTING_PERIOD_MS.max(refresh_ms)
        }
    }

    /// The calls that are due.
    pub fn due(&mut self, now: Millis) -> Vec<Call> {
        let refresh_ms = millis(self.metrics.refresh);
        let given_up_ms = millis(self.metrics.timeout).saturating_mul(2);
        let is_due = |asked: Option<Millis>, done: Option<Millis>, period_ms: u64| {
            asked.is_none_or(|at| now.is_over(at, given_up_ms))
                && done.is_none_or(|at| now.is_over(at, period_ms))
        };
        let mut calls = Vec::new();
        if let EndpointSource::Admin { cluster, .. } = &self.source
            && is_due(
                self.listing_asked_at,
                self.listing_done_at,
                self.listing_period_ms(),
            )
        {
            self.listing_asked_at = Some(now);
            calls.push(Call::List {
                cluster: cluster.as_str().into(),
            });
        }
        for cluster in &mut self.clusters {
            for watched in &mut cluster.watched {
                if is_due(watched.asked_at, watched.done_at, refresh_ms) {
                    watched.asked_at = Some(now);
                    calls.push(Call::Scrape {
                        cluster: cluster.name.clone(),
                        address: watched.row.address.as_str().into(),
                    });
                }
            }
        }
        calls
    }

    /// Takes in what came back.
    pub fn answer(
        &mut self,
        call: &Call,
        answer: Answer<'_>,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        match call {
            Call::List { .. } => {
                self.listing_asked_at = None;
                self.listing_done_at = Some(now);
                let listed = match answer {
                    Answer::Body { status: 200, body } => self.list(body),
                    _ => false,
                };
                telemetry.add(Counter::ListingFailures, u64::from(!listed));
            }
            Call::Scrape { cluster, address } => {
                self.scraped(cluster, address, answer, telemetry, now);
            }
        }
    }

    fn list(&mut self, body: &[u8]) -> bool {
        let is_watched = |name: &str| self.clusters.iter().any(|cluster| &*cluster.name == name);
        let Ok(listing) = admin_clusters::parse(body, is_watched) else {
            return false;
        };
        let is_old = core::mem::take(&mut self.is_old);
        for cluster in &mut self.clusters {
            cluster.changed |= is_old;
            let Some(ClusterHosts { hosts, .. }) =
                listing.iter().find(|listed| *listed.name == *cluster.name)
            else {
                cluster.changed |= !cluster.watched.is_empty();
                cluster.watched.clear();
                continue;
            };
            let mut watched = Vec::with_capacity(hosts.len());
            for host in hosts {
                let known = cluster
                    .watched
                    .iter()
                    .position(|known| known.row.address == host.address);
                let mut entry = match known {
                    Some(at) => cluster.watched.swap_remove(at),
                    None => Watched::new(&host.address, host.health),
                };
                let split = self.disaggregation.as_ref();
                let role =
                    split.map(|split| split.role(&[&host.address, &host.name, &host.sub_zone]));
                cluster.changed |= known.is_none()
                    || entry.row.health != Some(host.health)
                    || entry.row.role != role;
                entry.row.health = Some(host.health);
                entry.row.role = role;
                watched.push(entry);
            }
            // Whoever is left over here is gone from the listing.
            cluster.changed |= !cluster.watched.is_empty();
            cluster.watched = watched;
        }
        true
    }

    fn scraped(
        &mut self,
        cluster: &str,
        address: &str,
        answer: Answer<'_>,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let is_static = matches!(self.source, EndpointSource::Static(_));
        let Some(cluster) = self
            .clusters
            .iter_mut()
            .find(|known| &*known.name == cluster)
        else {
            return;
        };
        let Some(watched) = cluster
            .watched
            .iter_mut()
            .find(|known| known.row.address == address)
        else {
            return;
        };
        let asked_at = watched.asked_at.take();
        watched.done_at = Some(now);
        cluster.changed = true;
        let refused = matches!(
            answer,
            Answer::Failed
                | Answer::Body {
                    status: 503 | 504,
                    ..
                }
        );
        watched.refusals = if refused {
            watched.refusals.saturating_add(1)
        } else {
            0
        };
        if is_static {
            let is_down = watched.refusals >= REFUSALS;
            watched.row.health = Some(if is_down {
                Health::Unhealthy
            } else {
                Health::Healthy
            });
        }
        let load = match answer {
            Answer::Body { status: 200, body } => scan::scan(body),
            _ => Default::default(),
        };
        if load.is_unknown() {
            telemetry.add(Counter::ScrapeFailures, 1);
            return;
        }
        telemetry.add(Counter::Scrapes, 1);
        watched.row.load = load;
        // An answer may lie about for long; what it says is as old as the question.
        watched.row.read_at = asked_at.unwrap_or(now);
    }

    /// What changed since the last call, ready to be published: cluster and bytes.
    ///
    /// Before the first listing that is none: who is there now others may know better.
    pub fn news(&mut self) -> Vec<(Box<str>, Vec<u8>)> {
        let mut news = Vec::new();
        if self.is_old && matches!(self.source, EndpointSource::Admin { .. }) {
            return news;
        }
        for cluster in self.clusters.iter_mut().filter(|cluster| cluster.changed) {
            cluster.changed = false;
            let rows: Vec<_> = cluster
                .watched
                .iter()
                .map(|watched| watched.row.clone())
                .collect();
            news.push((cluster.name.clone(), snapshot::encode(&rows)));
        }
        news
    }
}

impl Watched {
    fn new(address: &str, health: Health) -> Self {
        let row = EndpointSnapshot {
            address: address.into(),
            health: Some(health),
            ..EndpointSnapshot::default()
        };
        Self {
            row,
            asked_at: None,
            done_at: None,
            refusals: 0,
        }
    }
}

/// Who discovers for all: a holder and the moment until which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The VM.
    pub holder: u64,
    /// Until when.
    pub until: Millis,
}

/// A holder that is silent this long loses the lease.
const LEASE_MS: u64 = 2_000;

impl Lease {
    /// What VM `me` should write at `now` to hold the lease, given what stands there (nothing = empty); `None` = another one
    /// holds it. The write must be a compare-and-swap: of several that try, one wins.
    #[must_use]
    pub fn claim(current: &[u8], me: u64, now: Millis) -> Option<Vec<u8>> {
        let held = Self::parse(current);
        let is_free = held.is_none_or(|lease| {
            lease.holder == me || lease.until <= now || lease.until > now.plus(LEASE_MS)
        });
        is_free.then(|| [me.to_le_bytes(), now.plus(LEASE_MS).0.to_le_bytes()].concat())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (holder, until) = bytes.split_first_chunk::<8>()?;
        let until: &[u8; 8] = until.try_into().ok()?;
        Some(Self {
            holder: u64::from_le_bytes(*holder),
            until: Millis(u64::from_le_bytes(*until)),
        })
    }
}
