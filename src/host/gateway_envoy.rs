//! Stock Envoy, Istio, Envoy Gateway: the pick goes into a header that the cluster's policy reads;
//! endpoints and load come through shared data from the VM that asks for all of them.
//!
//! Source: Envoy 1.35 to 1.40, policy `envoy.load_balancing_policies.override_host`.

use core::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;

use super::abi::{self, Map};
use super::headers::PICK_HEADER;
use super::root::Worker;
use super::scraper::{self, Scraper};
use crate::clock::Millis;
use crate::config::{EndpointSource, Plugin};
use crate::endpoints::own::Ending;
use crate::engine::Engine;

/// Response flags of Envoy that speak against the endpoint: no healthy upstream, timeout, reset,
/// connection failure, connection termination.
const UPSTREAM_FAULTS: u32 = 0x2 | 0x4 | 0x10 | 0x20 | 0x40;

/// What the streams of one configuration share on this gateway.
pub struct Shared {
    /// Asks and scrapes, when this VM is the one that does.
    pub scraper: RefCell<Scraper>,
    snapshots: RefCell<HashMap<String, u32>>,
    watched: RefCell<Vec<(usize, String)>>,
}

impl Shared {
    /// For a configuration.
    pub fn new(plugin: &Plugin) -> Self {
        Self {
            scraper: RefCell::new(Scraper::new(plugin)),
            snapshots: RefCell::default(),
            watched: RefCell::default(),
        }
    }
}

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
    Ok(())
}

/// A configuration begins its work in a VM.
pub fn start(root: u32, worker: &Rc<Worker>) {
    scraper::register(root, worker);
    let refresh = worker
        .plugin
        .configs()
        .map(|(_, config)| config.metrics.refresh)
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

/// A configuration ends.
pub fn stop(root: u32) {
    scraper::unregister(root);
}

/// Time passed.
pub fn tick(worker: &Worker) {
    scraper::tick(worker);
}

/// Tells the VM that scrapes of a cluster it may not know: each VM says each cluster once.
pub fn watch(worker: &Worker, engine: usize, cluster: &str) {
    let shared = &worker.gateway;
    let Ok(mut watched) = shared.watched.try_borrow_mut() else {
        return;
    };
    let is_known = watched
        .iter()
        .any(|(of, name)| *of == engine && name == cluster);
    if is_known || watched.len() >= crate::discovery::MAX_CLUSTERS || cluster.is_empty() {
        return;
    }
    watched.push((engine, cluster.to_owned()));
    drop(watched);
    scraper::announce(&worker.identity, engine, cluster);
}

/// Brings an engine's view of a cluster up to date.
pub fn refresh(worker: &Worker, index: usize, engine: &mut Engine, cluster: &str, now: Millis) {
    let key = worker.identity.rule_key(index, scraper::SNAPSHOT, cluster);
    let Some((bytes, version)) = abi::shared(&key) else {
        return;
    };
    let Ok(mut seen) = worker.gateway.snapshots.try_borrow_mut() else {
        return;
    };
    if seen.get(&key) == Some(&version) || !engine.take_snapshot(cluster, &bytes, now) {
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
