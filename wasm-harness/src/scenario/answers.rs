//! What engines and Envoy's admin interface answer to the plugin's own calls.

use serde_json::{Value, json};

use crate::host::{Callout, HeaderMap, Health as HostHealth, UpstreamHost, header, header_map};
use warmroute_scenario::{Callouts, Health, Host};

/// A host as the gateway keeps it.
pub(super) fn upstream_host(host: &Host) -> UpstreamHost {
    UpstreamHost {
        address: host.address.clone(),
        health: match host.health {
            Health::Healthy => HostHealth::Healthy,
            Health::Degraded => HostHealth::Degraded,
            Health::Unhealthy => HostHealth::Unhealthy,
        },
        metrics: host.metrics_text().map(String::into_bytes),
    }
}

/// The answer to a callout; `None` = none comes.
pub(super) fn answer(
    callouts: Callouts,
    cluster: &str,
    hosts: &[Host],
    call: &Callout,
) -> Option<(HeaderMap, Vec<u8>)> {
    let status = |code: &str| header_map(&[(":status", code)]);
    match callouts {
        Callouts::Never => return None,
        Callouts::Refused => return Some((status("503"), b"no healthy upstream".to_vec())),
        Callouts::Answered => {}
    }
    let path = header(&call.headers, ":path").unwrap_or_default();
    if path.starts_with(b"/clusters") {
        return Some((
            status("200"),
            clusters(cluster, hosts).to_string().into_bytes(),
        ));
    }
    let aim = header(&call.headers, "x-gateway-destination-endpoint").unwrap_or_default();
    let host = hosts
        .iter()
        .find(|host| host.address.as_bytes() == aim && host.health != Health::Unhealthy);
    match host {
        Some(host) => Some((
            status("200"),
            host.metrics_text().unwrap_or_default().into_bytes(),
        )),
        None => Some((status("503"), b"upstream connect error".to_vec())),
    }
}

/// `GET /clusters?format=json` of Envoy's admin interface.
fn clusters(cluster: &str, hosts: &[Host]) -> Value {
    let statuses: Vec<Value> = cluster_names(cluster, hosts)
        .into_iter()
        .map(|name| {
            let hosts = hosts.iter().filter(|host| host.is_in(name, cluster));
            json!({ "name": name, "host_statuses": hosts.map(host_status).collect::<Vec<_>>() })
        })
        .collect();
    json!({ "cluster_statuses": statuses })
}

/// The gateway's cluster and those that hosts name.
pub(super) fn cluster_names<'a>(cluster: &'a str, hosts: &'a [Host]) -> Vec<&'a str> {
    let named = hosts.iter().filter_map(|host| host.cluster.as_deref());
    let mut names: Vec<&str> = named.chain([cluster]).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn host_status(host: &Host) -> Value {
    let (address, port) = host
        .address
        .rsplit_once(':')
        .unwrap_or((&host.address, "0"));
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let mut health = json!({ "eds_health_status": "HEALTHY" });
    if host.health == Health::Unhealthy {
        health["failed_active_health_check"] = json!(true);
    }
    json!({
        "address": { "socket_address": { "address": address, "port_value": port.parse::<u16>().unwrap_or(0) } },
        "health_status": health,
        "hostname": host.hostname.as_deref().unwrap_or_default(),
    })
}
