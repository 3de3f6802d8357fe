//! Envoy's admin answer `GET /clusters?format=json`: the endpoints of each cluster and their health.
//!
//! Shape as Envoy 1.40 writes it (`envoy.admin.v3.Clusters`); flags that are false are left out there.
//! `health_status.failed_active_health_check` is what an active check sets: `eds_health_status` stays
//! `HEALTHY` meanwhile, and speaks only of what discovery said.
//!
//! Cost: one typed pass; strings are borrowed where they hold no escapes; what is not needed is skipped.

use std::borrow::Cow;

use serde::Deserialize;

use crate::endpoints::MAX_ENDPOINTS;
use crate::endpoints::load::Health;

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterHosts {
    /// Its name.
    pub name: String,
    /// Its first [`MAX_ENDPOINTS`] endpoints.
    pub hosts: Vec<ListedHost>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedHost {
    /// `ip:port`, `[v6]:port`.
    pub address: String,
    /// Its health.
    pub health: Health,
    /// The host name that it was configured with, or resolved from; empty = none.
    pub name: String,
    /// The sub-zone of its locality, which serves as its role's label; empty = none.
    pub sub_zone: String,
}

/// The endpoints of the clusters that `wanted` says yes to.
///
/// # Errors
/// When the bytes are not such an answer: serde's message says where.
pub fn parse(
    json: &[u8],
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<Vec<ClusterHosts>, serde_json::Error> {
    let answer: Answer<'_> = serde_json::from_slice(json)?;
    let clusters = answer.cluster_statuses.into_iter();
    Ok(clusters
        .filter(|cluster| wanted(&cluster.name))
        .map(|cluster| ClusterHosts {
            name: cluster.name.into_owned(),
            hosts: cluster
                .host_statuses
                .iter()
                .filter_map(|host| {
                    Some(ListedHost {
                        address: address(host)?,
                        health: host.health_status.health(),
                        name: host.hostname.clone().into_owned(),
                        sub_zone: host.locality.sub_zone.clone().into_owned(),
                    })
                })
                .take(MAX_ENDPOINTS)
                .collect(),
        })
        .collect())
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default, borrow)]
    cluster_statuses: Vec<Cluster<'a>>,
}

#[derive(Deserialize)]
struct Cluster<'a> {
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    host_statuses: Vec<Host<'a>>,
}

#[derive(Deserialize)]
struct Host<'a> {
    #[serde(default, borrow)]
    address: Address<'a>,
    #[serde(default, borrow)]
    health_status: HealthStatus<'a>,
    #[serde(default, borrow)]
    hostname: Cow<'a, str>,
    #[serde(default, borrow)]
    locality: Locality<'a>,
}

#[derive(Default, Deserialize)]
struct Locality<'a> {
    #[serde(default, borrow)]
    sub_zone: Cow<'a, str>,
}

/// Pipes and internal addresses have no socket address.
#[derive(Default, Deserialize)]
struct Address<'a> {
    #[serde(borrow)]
    socket_address: Option<SocketAddress<'a>>,
}

#[derive(Deserialize)]
struct SocketAddress<'a> {
    #[serde(default, borrow)]
    address: Cow<'a, str>,
    port_value: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HealthStatus<'a> {
    failed_active_health_check: bool,
    failed_outlier_check: bool,
    failed_active_degraded_check: bool,
    pending_dynamic_removal: bool,
    pending_active_hc: bool,
    excluded_via_immediate_hc_fail: bool,
    active_hc_timeout: bool,
    #[serde(borrow)]
    eds_health_status: Cow<'a, str>,
}

impl HealthStatus<'_> {
    fn health(&self) -> Health {
        let eds = self.eds_health_status.as_ref();
        let unhealthy = self.failed_active_health_check
            || self.failed_outlier_check
            || self.pending_active_hc
            || self.excluded_via_immediate_hc_fail
            || self.active_hc_timeout
            || matches!(eds, "UNHEALTHY" | "TIMEOUT");
        if unhealthy {
            Health::Unhealthy
        } else if self.pending_dynamic_removal || eds == "DRAINING" {
            Health::Draining
        } else if self.failed_active_degraded_check || eds == "DEGRADED" {
            Health::Degraded
        } else {
            Health::Healthy
        }
    }
}

/// The address as the gateway spells it in `upstream.address`.
fn address(host: &Host<'_>) -> Option<String> {
    let socket = host.address.socket_address.as_ref()?;
    let (ip, port) = (socket.address.as_ref(), socket.port_value?);
    if ip.is_empty() {
        return None;
    }
    Some(if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    })
}
