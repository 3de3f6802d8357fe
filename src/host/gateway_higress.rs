//! Higress: two host calls more than stock Envoy, hosts with their metrics and the override of the choice.
//!
//! Source: Higress's gateway and its `wasm-go` SDK.

use std::rc::Rc;

use super::abi::{self, Map};
use super::root::Worker;
use crate::clock::Millis;
use crate::config::{EndpointSource, Plugin};
use crate::endpoints::load::Load;
use crate::endpoints::own::Ending;
use crate::engine::Engine;
use crate::response::orca;

/// The header that names a pick (Endpoint Picker Protocol 1.0); this gateway does not read it.
const PICK_HEADER: &str = "x-gateway-destination-endpoint";
/// The header that narrows the choice.
pub const SUBSET_HEADER: &str = "x-gateway-destination-endpoint-subset";
/// Asks an engine for its load, and its answer.
const LOAD_FORMAT_HEADER: &str = "endpoint-load-metrics-format";
const LOAD_HEADER: &str = "endpoint-load-metrics";
/// What one callback can bring past the budget before the body is let go: the gateway answers 413 itself
/// where its buffer holds more than its limit.
const ONE_CALLBACK_BYTES: u32 = 1 << 20;
/// How often levels are handed on and memory is looked at.
const TICK_MS: u32 = 500;

/// Whether this gateway can do what a configuration asks.
///
/// # Errors
/// What it cannot do, and what to write instead.
pub fn check(plugin: &Plugin) -> Result<(), &'static str> {
    let asks_admin = plugin
        .configs()
        .any(|(_, config)| matches!(config.endpoints, EndpointSource::Admin { .. }));
    if asks_admin {
        return Err("endpoints.admin: this gateway lists its hosts itself; leave endpoints out");
    }
    Ok(())
}

/// A configuration begins its work in a VM.
pub fn start(_root: u32, _worker: &Rc<Worker>) {
    let _ = abi::set_tick_period_ms(TICK_MS);
}

/// A configuration ends.
pub fn stop(_root: u32) {}

/// Time passed: ask for a fresh VM when this one has grown too large.
pub fn tick(worker: &Worker) {
    let threshold = worker
        .plugin
        .configs()
        .map(|(_, config)| config.vm_rebuild_threshold_bytes)
        .filter(|bytes| *bytes > 0)
        .min();
    let Some(threshold) = threshold else { return };
    let memory = abi::property("plugin_vm_memory")
        .and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
    if memory.is_some_and(|bytes| bytes >= threshold) {
        let _ = abi::set_property("wasm_need_rebuild", b"true");
    }
}

/// Where a request is going, as the route says.
pub struct Position {
    pub route: Vec<u8>,
    pub cluster: String,
    pub authority: Vec<u8>,
    pub consumer: Vec<u8>,
}

impl Position {
    /// Reads it; route, authority and consumer only where rules ask for them.
    pub fn read(has_rules: bool) -> Self {
        let cluster = abi::property("cluster_name").unwrap_or_default();
        let for_rules = |value: fn() -> Option<Vec<u8>>| {
            if has_rules {
                value().unwrap_or_default()
            } else {
                Vec::new()
            }
        };
        Self {
            route: for_rules(|| abi::property("route_name")),
            cluster: String::from_utf8_lossy(&cluster).into_owned(),
            authority: for_rules(|| abi::header(Map::RequestHeaders, ":authority")),
            consumer: for_rules(|| abi::header(Map::RequestHeaders, "x-mse-consumer")),
        }
    }
}

/// Takes away a pick that the client itself sent: nothing behind this gateway may take it for ours. The
/// removal must not make the gateway match routes anew.
pub fn strip_client_pick() {
    if abi::header(Map::RequestHeaders, PICK_HEADER).is_some() {
        let _ = abi::set_property("clear_route_cache", b"off");
        let _ = abi::remove_header(Map::RequestHeaders, PICK_HEADER);
    }
}

/// The gateway itself knows its clusters.
pub fn watch(_worker: &Worker, _engine: usize, _cluster: &str) {}

/// Brings an engine's view of the request's cluster up to date.
pub fn refresh(_worker: &Worker, _index: usize, engine: &mut Engine, cluster: &str, now: Millis) {
    if engine.config.endpoints != EndpointSource::Gateway {
        return;
    }
    match abi::upstream_hosts() {
        Ok(raw) => engine.take_gateway_hosts(cluster, &raw, now),
        Err(_) => engine.listing_failed(),
    }
}

/// Hands the pick over; this gateway takes one address.
pub fn steer(addresses: &str) -> Result<(), abi::Status> {
    abi::override_host(addresses.split(',').next().unwrap_or_default())
}

/// Lets the gateway hold a body of this size, and what comes in the callback that ends the holding: its own
/// default is 32 KiB.
pub fn raise_buffer_limit(bytes: u32) {
    let bytes = bytes.saturating_add(ONE_CALLBACK_BYTES);
    let _ = abi::set_property("set_decoder_buffer_limit", bytes.to_string().as_bytes());
}

/// Asks the engine for its load; `true` when the client had not asked itself. The header must not make the
/// gateway match routes anew.
pub fn ask_for_load() -> bool {
    abi::header(Map::RequestHeaders, LOAD_FORMAT_HEADER).is_none()
        && abi::set_property("clear_route_cache", b"off").is_ok()
        && abi::set_header(Map::RequestHeaders, LOAD_FORMAT_HEADER, b"JSON").is_ok()
}

/// What the engine said of its load; taken out of the answer when the client did not ask.
pub fn told_load(client_asked: bool) -> Option<Load> {
    let value = abi::header(Map::ResponseHeaders, LOAD_HEADER)?;
    if !client_asked {
        let _ = abi::remove_header(Map::ResponseHeaders, LOAD_HEADER);
    }
    orca::parse(&value)
}

/// A property that is a number: decimal here, or eight bytes.
pub fn integer(bytes: &[u8]) -> Option<u32> {
    if let Some(number) = core::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
    {
        return Some(number);
    }
    u32::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// This gateway does not tell.
pub fn how_it_ended() -> Ending {
    Ending::Unknown
}
