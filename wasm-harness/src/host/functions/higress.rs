//! What only Higress has: the host list, the override, Redis.

use serde::Serialize;
use serde_json::json;
use serde_json::ser::{PrettyFormatter, Serializer};

use crate::host::call::{Answer, Call};
use crate::host::gateway::{Health, UpstreamHost};
use crate::host::pairs;
use crate::host::redis::RedisClient;
use crate::host::state::{Deferred, RedisCall};
use crate::host::status::Status;

/// The hosts of the stream's cluster; null and 0 without hosts, cluster or stream.
pub(in crate::host) fn get_upstream_hosts(call: &mut Call<'_, '_>) -> Answer {
    let state = call.state();
    let hosts = state.stream().and_then(|stream| {
        let gateway = state.gateway.lock();
        gateway
            .clusters
            .get(&stream.spec.cluster)
            .map(|cluster| cluster.hosts.clone())
    });
    let hosts = hosts.unwrap_or_default();
    call.give_bytes(0, &host_list(&hosts))
}

/// The bytes of a list of hosts; none without hosts.
pub(crate) fn host_list(hosts: &[UpstreamHost]) -> Vec<u8> {
    if hosts.is_empty() {
        return Vec::new();
    }
    let pairs: Vec<_> = hosts
        .iter()
        .map(|host| (host.address.clone().into_bytes(), describe(host)))
        .collect();
    pairs::encode(&pairs)
}

/// A host as pretty-printed JSON; text that is no UTF-8 cannot be told.
fn describe(host: &UpstreamHost) -> Vec<u8> {
    let health = match host.health {
        Health::Healthy => "Healthy",
        Health::Degraded => "Degraded",
        Health::Unhealthy => "Unhealthy",
    };
    let told = match host.metrics.as_deref().map(std::str::from_utf8) {
        None => json!({ "health_status": health }),
        Some(Ok(metrics)) => json!({ "health_status": health, "metrics": metrics }),
        Some(Err(_)) => return br#"{"error": "Failed to get host info"}"#.to_vec(),
    };
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    // Writing a value of strings into memory has no way to fail.
    let _ = told.serialize(&mut serializer);
    text.push(b'\n');
    text
}

/// Kept as it is: whether it names a usable host shows only when the request is forwarded.
pub(in crate::host) fn set_upstream_override_host(call: &mut Call<'_, '_>) -> Answer {
    let address = call.bytes(0)?;
    if let Some(stream) = call.state().stream_mut() {
        stream.seen.override_host = Some(address);
    }
    Ok(())
}

pub(in crate::host) fn redis_init(call: &mut Call<'_, '_>) -> Answer {
    let (cluster, user, password) = (call.text(0)?, call.text(2)?, call.text(4)?);
    let timeout_ms = call.word(6);
    let state = call.state();
    if !state.gateway.lock().clusters.contains_key(&cluster) {
        return Err(Status::BAD_ARGUMENT.into());
    }
    state
        .redis_clients
        .retain(|client| client.cluster != cluster);
    let client = RedisClient::new(cluster, user, password, timeout_ms);
    state.redis_clients.push(client);
    Ok(())
}

/// Refused before the cluster was initialised by this VM.
pub(in crate::host) fn redis_call(call: &mut Call<'_, '_>) -> Answer {
    let (cluster, query) = (call.text(0)?, call.bytes(2)?);
    let state = call.state();
    if state
        .redis_clients
        .iter()
        .all(|client| client.cluster != cluster)
    {
        return Err(Status::BAD_ARGUMENT.into());
    }
    let (id, context) = (state.next_token(), state.effective_context);
    if state.gateway.redis(&cluster).is_some() {
        state.deferred.push_back(Deferred::Redis(id));
    }
    state.redis_calls.push(RedisCall {
        id,
        context,
        cluster,
        query,
    });
    Ok(call.give_word(4, id)?)
}
