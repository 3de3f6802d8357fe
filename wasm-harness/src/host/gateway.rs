//! One gateway process: what all its VMs share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::store::{Metrics, Queues, SharedData};

/// Which gateway is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Stock Envoy 1.40.
    Envoy,
    /// Higress, an Envoy fork.
    Higress,
}

/// How the gateway is configured. `Options::new` gives a profile's defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Envoy's plugin setting: without it a header StopIteration stops everything.
    pub allow_on_headers_stop_iteration: bool,
    /// Body bytes that may be held for a paused filter.
    pub buffer_limit_bytes: usize,
    /// Older hosts: the last body callback of a body of several frames lacks the last frame.
    pub cuts_last_frame: bool,
    /// Whether a callout that nobody answers ends with a 504 at its timeout.
    pub callouts_time_out: bool,
    /// Linear memory of one VM at most.
    pub memory_limit_bytes: usize,
    /// Fuel that one callback may burn; past it the guest traps.
    pub fuel_limit: u64,
    /// Lowest log level that is kept (0 = trace).
    pub log_level: u32,
}

impl Options {
    /// The gateway's defaults; on Envoy with the stop switch that the plugin asks for.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self {
            allow_on_headers_stop_iteration: true,
            buffer_limit_bytes: match profile {
                Profile::Envoy => 1 << 20,
                Profile::Higress => 32_768,
            },
            cuts_last_frame: false,
            callouts_time_out: true,
            memory_limit_bytes: 1 << 30,
            fuel_limit: 20_000_000_000,
            log_level: 0,
        }
    }
}

/// A host's health as Higress tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Takes requests.
    #[default]
    Healthy,
    /// Takes requests when nobody better is there.
    Degraded,
    /// Takes none.
    Unhealthy,
}

/// One endpoint of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHost {
    /// `ip:port` or `[v6]:port`.
    pub address: String,
    /// What the gateway thinks of it.
    pub health: Health,
    /// Body of the last health check, any bytes; `None` when the gateway stores none.
    pub metrics: Option<Vec<u8>>,
}

impl UpstreamHost {
    /// A healthy host without metrics.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            health: Health::Healthy,
            metrics: None,
        }
    }
}

/// Whether a cluster takes callouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterState {
    /// Callouts wait for the test's answer.
    #[default]
    Up,
    /// No usable host: a 503 comes right after the guest's call.
    NoHost,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) state: ClusterState,
    pub(super) hosts: Vec<UpstreamHost>,
    pub(super) redis: Option<SocketAddr>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) now_ms: u64,
    pub(super) clusters: BTreeMap<String, Cluster>,
    pub(super) data: SharedData,
    pub(super) queues: Queues,
    pub(super) metrics: Metrics,
}

/// One gateway process. Cloning gives another handle of the same one.
#[derive(Clone)]
pub struct Gateway {
    profile: Profile,
    options: Arc<Options>,
    inner: Arc<Mutex<Inner>>,
}

impl Gateway {
    /// A gateway with its profile's defaults; the clock stands at 1,700,000,000,000 ms.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with_options(profile, Options::new(profile))
    }

    /// A gateway with own options.
    #[must_use]
    pub fn with_options(profile: Profile, options: Options) -> Self {
        let inner = Inner {
            now_ms: 1_700_000_000_000,
            ..Inner::default()
        };
        Self {
            profile,
            options: Arc::new(options),
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Which gateway is played.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock, milliseconds since the epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.lock().now_ms
    }

    /// Sets the clock, also backwards.
    pub fn set_now_ms(&self, now_ms: u64) {
        self.lock().now_ms = now_ms;
    }

    /// Moves the clock; each VM then needs [`super::Vm::poll`].
    pub fn advance(&self, ms: u64) {
        let mut inner = self.lock();
        inner.now_ms = inner.now_ms.saturating_add(ms);
    }

    /// Makes a cluster known, or changes its hosts.
    pub fn set_hosts(&self, cluster: &str, hosts: Vec<UpstreamHost>) {
        self.lock()
            .clusters
            .entry(cluster.to_owned())
            .or_default()
            .hosts = hosts;
    }

    /// Makes a cluster known, or changes how it takes callouts.
    pub fn set_cluster(&self, cluster: &str, state: ClusterState) {
        self.lock()
            .clusters
            .entry(cluster.to_owned())
            .or_default()
            .state = state;
    }

    /// Makes a cluster known as a real Redis: calls to it are answered by that server.
    pub fn set_redis(&self, cluster: &str, address: SocketAddr) {
        let mut inner = self.lock();
        let cluster = inner.clusters.entry(cluster.to_owned()).or_default();
        cluster.redis = Some(address);
    }

    pub(super) fn redis(&self, cluster: &str) -> Option<SocketAddr> {
        self.lock().clusters.get(cluster)?.redis
    }

    /// Forgets a cluster: callouts to it are refused.
    pub fn remove_cluster(&self, cluster: &str) {
        self.lock().clusters.remove(cluster);
    }

    /// Counters and gauges by name, over all VMs.
    #[must_use]
    pub fn metrics(&self) -> BTreeMap<String, u64> {
        self.lock().metrics.values()
    }

    /// What was recorded into a histogram, in order.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Vec<u64> {
        self.lock().metrics.samples(name)
    }

    /// A shared value and its CAS number, as the VMs of `vm_id` see it.
    #[must_use]
    pub fn shared_data(&self, vm_id: &str, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        self.lock().data.get(vm_id, key)
    }
}
