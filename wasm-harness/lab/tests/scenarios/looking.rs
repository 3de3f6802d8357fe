//! Waiting until Envoy and the plugin have seen what a scenario changed.

use std::collections::BTreeSet;

use serde_json::Value;
use warmroute_scenario::{Callouts, GatewayKind, Health, Host};

use crate::bootstrap;
use crate::player::{Player, until};

impl Player<'_> {
    /// Waits until Envoy sees all hosts as they are, and the plugin has read this and all metrics since.
    pub(crate) async fn look_around(&mut self) -> anyhow::Result<()> {
        until("Envoy sees the hosts", || async {
            let listing = self.envoy.admin("/clusters?format=json").await?;
            Ok(self.is_seen(&serde_json::from_str(&listing)?))
        })
        .await?;
        let (sources, of) = self.watched();
        if sources == 0 {
            return Ok(());
        }
        let (begun, _) = self.engines.listings();
        if self.callouts == Callouts::Never {
            return until("a listing is asked for", || async {
                let (asked, answered) = self.engines.listings();
                Ok(asked > answered)
            })
            .await;
        }
        self.listed_since(begun).await?;
        let default = &self.scenario.gateway.cluster;
        let is_read = |host: &&Host| {
            host.health != Health::Unhealthy && of.iter().any(|name| host.is_in(name, default))
        };
        let answered = self.callouts == Callouts::Answered;
        let hosts = self.hosts.iter().filter(|host| answered && is_read(host));
        let before: Vec<(&str, u64)> = hosts
            .map(|host| (&*host.address, self.engines.scrapes(&host.address)))
            .collect();
        until("scrapes", || async {
            let mut before = before.iter();
            Ok(before.all(|(address, count)| self.engines.scrapes(address) >= count + 2))
        })
        .await?;
        if before.is_empty() {
            self.listed_since(self.engines.listings().0).await?;
        }
        Ok(())
    }

    /// Waits until a listing is answered that began when so many had begun before it.
    async fn listed_since(&self, begun: u64) -> anyhow::Result<()> {
        until("a listing", || async {
            Ok(self.engines.listings().1 > begun)
        })
        .await
    }

    /// How many rules list endpoints by the admin interface, and the clusters that they watch.
    fn watched(&self) -> (usize, BTreeSet<String>) {
        let text = self.scenario.config_text(GatewayKind::Envoy);
        let config: Value = serde_json::from_str(&text).unwrap_or_default();
        let rules = config["_rules_"].as_array().cloned().unwrap_or_default();
        let mut watched = self.asked_clusters.clone();
        let mut count = 0;
        for rule in rules.iter().chain([&config]) {
            let Some(admin) = rule.pointer("/endpoints/admin") else {
                continue;
            };
            count += 1;
            let of = admin["of"].as_array().cloned().unwrap_or_default();
            let of = admin["of"]
                .as_str()
                .map(str::to_owned)
                .into_iter()
                .chain(of.iter().filter_map(|name| Some(name.as_str()?.to_owned())));
            watched.extend(of);
        }
        (count, watched)
    }

    fn is_seen(&self, listing: &Value) -> bool {
        let default = &self.scenario.gateway.cluster;
        bootstrap::clusters(self.scenario).into_iter().all(|name| {
            let clusters = listing["cluster_statuses"].as_array();
            let mut clusters = clusters.into_iter().flatten();
            let cluster = clusters.find(|cluster| cluster["name"] == name);
            let statuses = cluster.and_then(|cluster| cluster["host_statuses"].as_array());
            let seen: BTreeSet<(String, bool)> = statuses.into_iter().flatten().map(seen).collect();
            let hosts = self.hosts.iter().filter(|host| host.is_in(&name, default));
            let wanted: BTreeSet<(String, bool)> = hosts
                .map(|host| (host.address.clone(), host.health != Health::Unhealthy))
                .collect();
            seen == wanted
        })
    }
}

/// Address and health of a host in Envoy's list.
fn seen(status: &Value) -> (String, bool) {
    let address = &status["address"]["socket_address"];
    let ip = address["address"].as_str().unwrap_or_default();
    let is_up = status["health_status"]["failed_active_health_check"] != true;
    (format!("{ip}:{}", address["port_value"]), is_up)
}
