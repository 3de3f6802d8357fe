//! One configuration at work in one worker: its pools by cluster, its counts, its generator.
//!
//! Invariants
//! - clusters never mix: each has its own pool;
//! - at most [`MAX_POOLS`] clusters are remembered; the one longest unused goes first, and requests
//!   still out in it change nothing when they end.
//!
//! Cost: a pool is one hash look-up away.

use core::num::NonZeroUsize;
use std::rc::Rc;

use lru::LruCache;

use crate::clock::Millis;
use crate::config::{Config, EndpointSource};
use crate::endpoints::gateway_hosts::{self, Hosts};
use crate::endpoints::load::Health;
use crate::endpoints::snapshot;
use crate::number::millis;
use crate::pool::{Figures, Listed, Pool};
use crate::report::{Decisions, Report};
use crate::request::PromptPlan;
use crate::telemetry::{Counter, Gauge, Tally, Telemetry};

/// Clusters with a pool at most.
pub const MAX_POOLS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// One configuration at work.
pub struct Engine {
    /// The configuration.
    pub config: Config,
    /// What was counted.
    pub telemetry: Telemetry,
    pub(crate) plan: Rc<PromptPlan>,
    rng: fastrand::Rng,
    pools: LruCache<Box<str>, Pool>,
    decisions: Decisions,
}

impl Engine {
    /// An engine without endpoints; `seed` decides exact ties.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            plan: Rc::new(PromptPlan::new(&config.prompt)),
            config,
            telemetry: Telemetry::default(),
            rng: fastrand::Rng::with_seed(seed),
            pools: LruCache::new(MAX_POOLS),
            decisions: Decisions::default(),
        }
    }

    /// The pool of a cluster, made when it is new. A static list of endpoints is in it from the start.
    pub fn pool(
        &mut self,
        cluster: &str,
    ) -> Option<(&mut Pool, &Config, &mut Telemetry, &mut fastrand::Rng)> {
        if !self.pools.contains(cluster) {
            let mut pool = Pool::new(&self.config);
            if let EndpointSource::Static(endpoints) = &self.config.endpoints {
                let listed = endpoints.iter().map(|endpoint| Listed {
                    address: &endpoint.address,
                    health: Health::Healthy,
                    role: None,
                    said: None::<Figures>,
                });
                pool.list(listed, &self.config, &mut self.telemetry, Millis(0));
                pool.listed_at = None;
            }
            self.pools.put(cluster.into(), pool);
        }
        let pool = self.pools.get_mut(cluster)?;
        Some((pool, &self.config, &mut self.telemetry, &mut self.rng))
    }

    /// The clusters that have a pool.
    #[must_use]
    pub fn clusters(&self) -> Vec<Box<str>> {
        self.pools.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether the listing of a cluster is older than a refresh.
    pub fn is_listing_due(&mut self, cluster: &str, now: Millis) -> bool {
        let refresh_ms = millis(self.config.metrics.refresh);
        let listed_at = self.pools.get(cluster).and_then(|pool| pool.listed_at);
        listed_at.is_none_or(|at| now.is_over(at, refresh_ms))
    }

    /// Takes in a cluster's hosts as Higress gives them, with the text of their metrics.
    pub fn take_gateway_hosts(&mut self, cluster: &str, raw: &[u8], now: Millis) {
        let Some((pool, config, telemetry, _)) = self.pool(cluster) else {
            return;
        };
        let listed = Hosts::new(raw).filter_map(|(address, json)| {
            let address = core::str::from_utf8(address).ok()?;
            let info = gateway_hosts::host_info(json);
            Some(Listed {
                address,
                health: info.health.unwrap_or(Health::Healthy),
                role: None,
                said: info.metrics,
            })
        });
        pool.list(listed, config, telemetry, now);
    }

    /// Takes in a cluster's endpoints as another VM published them; `false` when the bytes say nothing.
    pub fn take_snapshot(&mut self, cluster: &str, bytes: &[u8], now: Millis) -> bool {
        let Ok(rows) = snapshot::decode(bytes) else {
            self.telemetry.add(Counter::ListingFailures, 1);
            return false;
        };
        let Some((pool, config, telemetry, _)) = self.pool(cluster) else {
            return false;
        };
        let listed: Vec<_> = rows
            .iter()
            .map(|row| Listed {
                address: &row.address,
                health: row.health.unwrap_or(Health::Healthy),
                role: row.role,
                said: pool
                    .is_news(&row.address, row.read_at, now)
                    .then(|| Figures(row.load.clone(), row.read_at)),
            })
            .collect();
        pool.list(listed.into_iter(), config, telemetry, now);
        true
    }

    /// Whether a decision falls into the logged sample.
    pub fn is_sampled(&mut self) -> bool {
        let rate = self.config.debug.sample_rate;
        rate > 0.0 && self.rng.f64() < rate
    }

    /// Keeps a decision for the report, where there is one.
    pub fn decided(&mut self, cluster: &str, note: Option<&str>, now: Millis) {
        if let (Some(_), Some(note)) = (&self.config.debug.page, note) {
            self.decisions.keep(cluster, note, now);
        }
    }

    /// What this worker knows and has decided lately, as JSON.
    #[must_use]
    pub fn report(&self, worker: u64, now: Millis) -> String {
        let mut report = Report::default();
        report.open("", '{');
        report.counts(&[("worker", worker), ("time_ms", now.0)]);
        report.open("clusters", '[');
        for (name, pool) in &self.pools {
            report.open("", '{');
            report.text("cluster", name);
            pool.tell(&mut report, now);
            report.close('}');
        }
        report.close(']');
        self.decisions.tell(&mut report, now);
        report.close('}');
        report.0
    }

    /// Notes that the gateway gave no listing: the last one holds.
    pub fn listing_failed(&mut self) {
        self.telemetry.add(Counter::ListingFailures, 1);
    }

    /// Notes that a cluster was looked after: the next time is after another refresh.
    pub fn listing_seen(&mut self, cluster: &str, now: Millis) {
        if let Some((pool, ..)) = self.pool(cluster) {
            pool.listed_at = Some(now);
        }
    }

    /// Hands on each endpoint's address, its hash, its requests in flight, and what was counted there; the
    /// counts start anew.
    pub fn by_endpoint(&mut self, told: &mut dyn FnMut(&str, u64, u32, Tally)) {
        for (_, pool) in &mut self.pools {
            pool.by_endpoint(told);
        }
    }

    /// The present levels, over all pools; `replicas` = others that the rule hears of.
    pub fn gauges(&self, replicas: u64, now: Millis) -> [(Gauge, u64); 6] {
        let (mut endpoints, mut inflight, mut backlog, mut pairs, mut bytes) = (0, 0, 0, 0, 0);
        for (_, pool) in &self.pools {
            for (_, endpoint) in pool.table().iter() {
                endpoints += 1;
                inflight += u64::from(endpoint.own.inflight);
                let tokens = endpoint.own.prefill_tokens(endpoint.prefill_rate(), now);
                backlog += u64::from(crate::number::to_u32(tokens));
            }
            let stats = pool.index().stats();
            pairs += u64::from(stats.pairs);
            bytes += stats.bytes;
        }
        [
            (Gauge::Endpoints, endpoints),
            (Gauge::Inflight, inflight),
            (Gauge::BacklogTokens, backlog),
            (Gauge::IndexPairs, pairs),
            (Gauge::IndexBytes, bytes),
            (Gauge::Replicas, replicas),
        ]
    }
}
