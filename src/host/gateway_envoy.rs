//! Stock Envoy, Istio, Envoy Gateway: the pick goes into a header that the cluster's policy reads;
//! endpoints and load come through shared data from the VM that asks for all of them.
//!
//! Source: Envoy 1.35 to 1.40, policy `envoy.load_balancing_policies.override_host`.

use core::cell::RefCell;

use hashbrown::HashMap;

use super::abi::{self, Map};
use super::headers::PICK_HEADER;
use super::replicas::stores;
use super::root::Worker;
use super::scraper::{self, Scraper};
use super::shared::Scope;
use crate::clock::Millis;
use crate::config::{EndpointSource, Plugin, ReplicaOptions, StoreKind};
use crate::endpoints::own::Ending;
use crate::engine::Engine;
use crate::replicas::TIMEOUT_MS;
use crate::replicas::etcd::Etcd;
use crate::replicas::store::Query;

/// Response flags of Envoy that speak against the endpoint: no healthy upstream, timeout, reset,
/// connection failure, connection termination.
const UPSTREAM_FAULTS: u32 = 0x2 | 0x4 | 0x10 | 0x20 | 0x40;

/// What the streams of one configuration share on this gateway.
pub struct Shared {
    /// Asks and scrapes, when this VM is the one that does.
    pub scraper: RefCell<Scraper>,
    snapshots: RefCell<HashMap<String, u32>>,
}

impl Shared {
    /// For a configuration.
    pub fn new(plugin: &Plugin) -> Self {
        Self {
            scraper: RefCell::new(Scraper::new(plugin)),
            snapshots: RefCell::default(),
        }
    }
}

/// The replicas' store.
pub type Store = Etcd;

/// Endpoints come by way of the VM that leads.
pub const DISCOVERS: bool = true;

/// A VM is never asked to go here.
pub const REBUILDS: bool = false;

/// Properties that say where a request is going.
pub const CLUSTER_PROPERTY: &str = "xds\0cluster_name";
pub const ROUTE_PROPERTY: &str = "xds\0route_name";

/// Header writes do not match routes anew here.
pub fn keep_route() {}

/// Whether this gateway can do what a configuration asks.
///
/// # Errors
/// What it cannot do, and what to write instead.
pub fn check(plugin: &Plugin) -> Result<(), &'static str> {
    let lacks_endpoints = plugin
        .configs()
        .any(|(_, config)| config.endpoints == EndpointSource::Gateway);
    if lacks_endpoints {
        return Err(
            "endpoints: this gateway lists no hosts to a filter; name them with endpoints.admin or endpoints.static",
        );
    }
    if stores(plugin).any(|store| store != StoreKind::Etcd) {
        return Err("replicas.store: this gateway makes no Redis calls for a filter; use etcd");
    }
    Ok(())
}

/// A configuration begins its work in a VM.
pub fn start(worker: &Worker) {
    let configs = worker.plugin.configs();
    let refresh = configs
        .map(|(_, config)| {
            let replicas = config.replicas.as_ref();
            replicas.map_or(config.metrics.refresh, |r| {
                r.interval.min(config.metrics.refresh)
            })
        })
        .min()
        .unwrap_or_default();
    let period_ms = u32::try_from(refresh.as_millis())
        .unwrap_or(u32::MAX)
        .max(10);
    if abi::set_tick_period_ms(period_ms).is_err() {
        abi::log(
            log::Level::Warn,
            "warmroute: no ticks from this host: endpoints cannot be discovered",
        );
    }
}

/// Time passed.
pub fn tick(_worker: &Worker) {}

/// Time passed for the VM that leads.
pub fn lead(worker: &Worker, now: Millis) {
    scraper::tick(worker, now);
}

/// The replicas' store needs no preparation here.
pub fn connect(_options: &ReplicaOptions) -> Result<(), abi::Status> {
    Ok(())
}

/// Asks the replicas' store.
pub fn ask(options: &ReplicaOptions, query: &Query) -> Result<u32, abi::Status> {
    let headers = [
        (":method", "POST"),
        (":path", query.path),
        (":authority", &options.cluster),
        ("content-type", "application/json"),
    ];
    abi::http_call(&options.cluster, &headers, &query.bytes, TIMEOUT_MS)
}

/// Brings an engine's view of a cluster up to date.
pub fn refresh(worker: &Worker, scope: Scope<'_>, engine: &mut Engine, now: Millis) {
    let key = scope.key(scraper::SNAPSHOT);
    let Some((bytes, version)) = abi::shared(&key) else {
        return;
    };
    let Ok(mut seen) = worker.gateway.snapshots.try_borrow_mut() else {
        return;
    };
    if seen.get(&key) == Some(&version) || !engine.take_snapshot(scope.cluster, &bytes, now) {
        return;
    }
    if seen.len() > crate::discovery::MAX_CLUSTERS {
        seen.clear();
    }
    seen.insert(key, version);
}

/// Hands the pick over: addresses in order of preference.
pub fn steer(addresses: &str) -> Result<(), abi::Status> {
    abi::set_header(Map::RequestHeaders, PICK_HEADER, addresses.as_bytes())
}

/// The buffer limit is the listener's and the virtual host's here.
pub fn raise_buffer_limit(_bytes: u32) {}

/// A property that is a number: eight bytes, little endian.
pub fn integer(bytes: &[u8]) -> Option<u32> {
    let bytes: [u8; 8] = bytes.try_into().ok()?;
    u32::try_from(u64::from_le_bytes(bytes)).ok()
}

/// Whether a request that never saw its answer's end speaks against the endpoint.
pub fn how_it_ended() -> Ending {
    let flags = abi::property("response\0flags")
        .and_then(|bytes| integer(&bytes))
        .unwrap_or(0);
    if flags & UPSTREAM_FAULTS != 0 {
        Ending::Failed
    } else {
        Ending::Unknown
    }
}
