//! Higress: two host calls more than stock Envoy, hosts with their metrics and the override of the choice.
//!
//! Source: Higress's gateway and its `wasm-go` SDK.

use super::calls::Out;
use super::replicas::stores;
use super::root::{self, Worker};
use super::shared::Scope;
use super::{abi, handover, now, replicas};
use crate::clock::Millis;
use crate::config::{EndpointSource, Plugin, ReplicaOptions, StoreKind};
use crate::endpoints::own::Ending;
use crate::engine::Engine;
use crate::replicas::TIMEOUT_MS;
use crate::replicas::redis::Redis;
use crate::replicas::store::Query;

/// What one callback can bring past the budget before the body is let go: the gateway answers 413 itself
/// where its buffer holds more than its limit.
const ONE_CALLBACK_BYTES: u32 = 1 << 20;
/// How often levels are handed on and memory is looked at.
const TICK_MS: u32 = 500;

/// The replicas' store.
pub type Store = Redis;

/// The gateway itself lists its endpoints.
pub const DISCOVERS: bool = false;

/// A VM that has grown too large is replaced.
pub const REBUILDS: bool = true;

/// Properties that say where a request is going.
pub const CLUSTER_PROPERTY: &str = "cluster_name";
pub const ROUTE_PROPERTY: &str = "route_name";

/// Keeps the gateway from matching routes anew because a header is written.
pub fn keep_route() {
    let _ = abi::set_property("clear_route_cache", b"off");
}

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
    if stores(plugin).any(|store| store != StoreKind::Redis) {
        return Err("replicas.store: this gateway is asked to use redis");
    }
    Ok(())
}

/// A configuration begins its work in a VM.
pub fn start(worker: &Worker) {
    let configs = worker.plugin.configs();
    let intervals = configs.filter_map(|(_, config)| Some(config.replicas.as_ref()?.interval));
    let shortest_ms = intervals.min().map_or(TICK_MS, |interval| {
        u32::try_from(interval.as_millis()).unwrap_or(TICK_MS)
    });
    let _ = abi::set_tick_period_ms(shortest_ms.min(TICK_MS));
}

/// Time passed for the VM that leads.
pub fn lead(_worker: &Worker, _now: Millis) {}

/// Prepares for calls to the replicas' store.
pub fn connect(options: &ReplicaOptions) -> Result<(), abi::Status> {
    let password = options.password.text();
    abi::redis_init(&options.cluster, &options.user, password, TIMEOUT_MS)
}

/// Asks the replicas' store.
pub fn ask(options: &ReplicaOptions, query: &Query) -> Result<u32, abi::Status> {
    abi::redis_call(&options.cluster, &query.bytes)
}

/// The answer to a Redis call.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_redis_call_response(root: u32, token: u32, status: u32, size: u32) {
    let Some(worker) = root::find(root) else {
        return;
    };
    let Some((rule, Out::Store(what))) = worker.answered(token) else {
        return;
    };
    let size = usize::try_from(size).unwrap_or(0);
    let body = if status == 0 && size > 0 {
        abi::buffer(abi::Buffer::RedisAnswer, 0, size).ok()
    } else {
        None
    };
    replicas::answered(
        &worker,
        rule,
        what,
        body.as_deref().map(|body| (0, body)),
        now(),
    );
}

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
        handover::leave(worker, now());
        let _ = abi::set_property("wasm_need_rebuild", b"true");
    }
}

/// Brings an engine's view of the request's cluster up to date.
pub fn refresh(_worker: &Worker, scope: Scope<'_>, engine: &mut Engine, now: Millis) {
    if engine.config.endpoints != EndpointSource::Gateway {
        return;
    }
    match abi::upstream_hosts() {
        Ok(raw) => engine.take_gateway_hosts(scope.cluster, &raw, now),
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
