//! Plays a scenario's steps against a real Envoy.
//!
//! Time: what a file says in simulated milliseconds is real here up to [`SLEPT_MS`] between two steps. A
//! longer gap, the time before the first step, and the time after the endpoints or the plugin's own calls
//! changed stand for the plugin looking around: they last until it has done so.
//!
//! Nothing waits for a fixed time for something to be so: it is polled until [`PATIENCE`] ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::net::TcpStream;
use warmroute_lab::envoy::{Envoy, EnvoyOptions};
use warmroute_lab::stage::{PATIENCE, through_plugin};
use warmroute_scenario::{
    Action, Callouts, GatewayKind, Health, Host, Outcome, Request, RequestOutcome, Response,
    Scenario, first_of,
};

use crate::bootstrap::{self, PICK_COPY_HEADER};
use crate::engines::{Arrival, Engines};
use crate::wire::Wire;

/// Gaps between steps up to this are slept.
const SLEPT_MS: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(15);

/// A file's text, with every host's address in it replaced by that of a server of ours.
async fn with_servers(text: &str) -> anyhow::Result<(Scenario, Engines)> {
    let mut engines = Engines::start().await?;
    let hosts = bootstrap::all_hosts(&Scenario::parse(text)?);
    let addresses: BTreeSet<&str> = hosts.iter().map(|host| host.address.as_str()).collect();
    let mut text = text.to_owned();
    // Backwards, so that no address is replaced as the beginning of a longer one.
    for address in addresses.into_iter().rev() {
        text = text.replace(address, &engines.add().await?);
    }
    Ok((Scenario::parse(&text)?, engines))
}

/// Plays a file. Counters that it expects are waited for so long.
///
/// # Errors
/// The file cannot be read, or nothing starts. Whatever happens later is part of the outcome.
pub async fn play(
    name: &str,
    text: &str,
    patience: Duration,
) -> anyhow::Result<(Scenario, Outcome)> {
    let (scenario, engines) = with_servers(text).await?;
    engines.set_hosts(&scenario.hosts);
    engines.set_callouts(scenario.gateway.callouts);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("scenario-{name}"));
    std::fs::create_dir_all(&folder)?;
    let configuration = serde_json::from_str(&scenario.config_text(GatewayKind::Envoy))?;
    let hosts = scenario.hosts.iter();
    let addresses = hosts.map(|host| host.address.clone()).collect();
    let options = EnvoyOptions {
        concurrency: u32::try_from(scenario.gateway.workers.max(1))?,
        health_check_interval: Some("0.1s".into()),
        ..EnvoyOptions::new(addresses, through_plugin(configuration))
    };
    tell(&scenario, &scenario.hosts, &folder)?;
    let admin = Mutex::new(None);
    let started = Envoy::start_edited(&options, |config| {
        *admin.lock().expect("nobody else") = admin_address(config);
        bootstrap::edit(config, &scenario, engines.door, &folder);
    });
    let envoy = match started.await {
        Ok(envoy) => envoy,
        Err(error) if format!("{error:#}").contains("configuration refused") => {
            return Ok((scenario, Outcome::default()));
        }
        Err(error) => return Err(error),
    };
    let admin = admin.into_inner().expect("nobody else");
    engines.set_admin(admin.context("an admin address")?);
    let mut player = Player {
        scenario: &scenario,
        hosts: scenario.hosts.clone(),
        callouts: scenario.gateway.callouts,
        engines,
        envoy,
        folder,
        open: BTreeMap::new(),
        asked_clusters: BTreeSet::new(),
        begun: 0,
        outcome: Outcome {
            accepted: true,
            ..Outcome::default()
        },
    };
    if let Err(error) = player.steps().await {
        let log = player.envoy.log();
        let error = format!("{error:#}; Envoy says: {log}");
        player.outcome.errors.push(error);
    }
    let outcome = player.finish(patience).await?;
    Ok((scenario, outcome))
}

fn admin_address(config: &Value) -> Option<SocketAddr> {
    let address = config.pointer("/admin/address/socket_address")?;
    let ip = address["address"].as_str()?;
    let port = address["port_value"].as_u64()?;
    format!("{ip}:{port}").parse().ok()
}

/// Writes what Envoy reads of clusters that change, at once for whoever reads it.
fn tell(scenario: &Scenario, hosts: &[Host], folder: &std::path::Path) -> anyhow::Result<()> {
    if !bootstrap::is_changing(scenario) {
        return Ok(());
    }
    let default = &scenario.gateway.cluster;
    for name in bootstrap::clusters(scenario) {
        let file = bootstrap::discovery_file(&name, hosts, default);
        let written = folder.join("written");
        std::fs::write(&written, file.to_string())?;
        std::fs::rename(written, folder.join(format!("{name}.json")))?;
    }
    Ok(())
}

struct Open<'a> {
    request: &'a Request,
    wire: Wire,
    hangs: bool,
    local_reply: Option<u32>,
}

struct Player<'a> {
    scenario: &'a Scenario,
    hosts: Vec<Host>,
    callouts: Callouts,
    engines: Engines,
    envoy: Envoy,
    folder: PathBuf,
    open: BTreeMap<String, Open<'a>>,
    asked_clusters: BTreeSet<String>,
    /// Requests that were begun.
    begun: u64,
    outcome: Outcome,
}

impl<'a> Player<'a> {
    async fn steps(&mut self) -> anyhow::Result<()> {
        let (mut at_ms, mut has_changed) = (0, true);
        for (place, step) in self.scenario.steps.iter().enumerate() {
            let gap_ms = step.at_ms.map_or(0, |next| next.saturating_sub(at_ms));
            at_ms += gap_ms;
            let step_text = format!("step {}", place + 1);
            if gap_ms > SLEPT_MS || (gap_ms > 0 && has_changed) {
                self.look_around().await.context(step_text.clone())?;
                has_changed = false;
            } else {
                tokio::time::sleep(Duration::from_millis(gap_ms)).await;
            }
            has_changed |= matches!(step.action, Action::Hosts(_) | Action::Callouts(_));
            self.act(&step.action).await.context(step_text)?;
        }
        Ok(())
    }

    /// Waits until Envoy sees all hosts as they are, and the plugin has read this and all metrics since.
    async fn look_around(&mut self) -> anyhow::Result<()> {
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

    async fn act(&mut self, action: &'a Action) -> anyhow::Result<()> {
        match action {
            Action::Request(request) => self.request(request).await,
            Action::Finish(name) => {
                let mut open = self.take(name)?;
                open.wire.send(open.request, true).await;
                self.arrive(&mut open).await?;
                self.open.insert(name.clone(), open);
                Ok(())
            }
            Action::Response(response) => self.respond(response).await,
            Action::Abort(name) => {
                let open = self.take(name)?;
                self.note(&open);
                drop(open);
                let left = self.open.len() as u64;
                self.until_stat("http.gateway.downstream_rq_active", |now| now == left)
                    .await
            }
            Action::Hosts(hosts) => {
                self.hosts.clone_from(hosts);
                self.engines.set_hosts(hosts);
                tell(self.scenario, hosts, &self.folder)
            }
            Action::Callouts(callouts) => {
                self.callouts = *callouts;
                self.engines.set_callouts(*callouts);
                Ok(())
            }
            Action::Wait => Ok(()),
            Action::Fault { .. } | Action::ClearFaults | Action::Rebuild(_) => {
                bail!("a step that no real Envoy can play")
            }
        }
    }

    fn take(&mut self, name: &str) -> anyhow::Result<Open<'a>> {
        let open = self.open.remove(name);
        open.with_context(|| format!("a step names the request {name}, which is not open"))
    }

    async fn request(&mut self, request: &'a Request) -> anyhow::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let setup = &self.scenario.gateway;
        let cluster = request.cluster.as_ref().unwrap_or(&setup.cluster);
        self.asked_clusters.insert(cluster.clone());
        let way = bootstrap::way(request, setup);
        let stream = self.connect(request.worker).await?;
        let wire = Wire::open(stream, request, number, &way)?;
        let mut open = Open {
            request,
            wire,
            hangs: false,
            local_reply: None,
        };
        open.wire.send(request, false).await;
        self.begun += 1;
        let begun = self.begun;
        self.until_stat("http.gateway.downstream_rq_total", |count| count >= begun)
            .await?;
        if open.wire.is_whole() {
            self.arrive(&mut open).await?;
        }
        self.open.insert(request.name.clone(), open);
        Ok(())
    }

    /// A connection that this worker serves. The kernel chooses who takes one, so as many are made as it
    /// needs; they stay open until the right one is there, or the kernel might choose alike again.
    async fn connect(&self, worker: usize) -> anyhow::Result<TcpStream> {
        let mut others = Vec::new();
        loop {
            let before = self.connections().await?;
            let stream = TcpStream::connect(self.envoy.listener_addr).await?;
            let sum = |counts: &BTreeMap<usize, u64>| counts.values().sum::<u64>();
            until("a worker takes a connection", || async {
                Ok(sum(&self.connections().await?) > sum(&before))
            })
            .await?;
            if self.connections().await?.get(&worker) > before.get(&worker) {
                return Ok(stream);
            }
            others.push(stream);
            ensure!(others.len() < 64, "worker {worker} takes no connection");
        }
    }

    /// Connections that each worker has taken.
    async fn connections(&self) -> anyhow::Result<BTreeMap<usize, u64>> {
        let stats = self.envoy.stats().await?.into_iter();
        let of_worker = |(name, count): (String, u64)| {
            let name = name.strip_prefix("listener.")?;
            let name = name.strip_suffix(".downstream_cx_total")?;
            let (_, worker) = name.split_once(".worker_")?;
            Some((worker.parse().ok()?, count))
        };
        Ok(stats.filter_map(of_worker).collect())
    }

    /// Waits until a request that was sent whole has come to a host whole, or was answered without.
    async fn arrive(&self, open: &mut Open<'a>) -> anyhow::Result<()> {
        let (wire, engines) = (&open.wire, &self.engines);
        let there = until("it comes to a host", || async {
            let got = wire.got();
            if let (Some(error), None) = (&got.error, got.status) {
                bail!("{error}");
            }
            Ok(engines.has_whole(&wire.number) || got.ended)
        });
        let there = there.await.with_context(|| open.request.name.clone());
        open.hangs = match there {
            Err(error) if !error.is::<NotInTime>() => return Err(error),
            there => there.is_err(),
        };
        if self.engines.arrivals(&open.wire.number).is_empty() {
            open.local_reply = open.wire.got().status.map(u32::from);
        }
        Ok(())
    }

    async fn respond(&mut self, response: &Response) -> anyhow::Result<()> {
        let mut open = self.take(&response.to)?;
        let body = response.body.concat();
        self.engines.answer(&open.wire.number, response);
        let wire = &open.wire;
        let answered = until("its answer", || async {
            let got = wire.got();
            if let Some(error) = got.error.filter(|_| got.status != Some(101)) {
                bail!("{error}");
            }
            let is_there = got.body.len() >= body.len() && got.status.is_some();
            Ok(got.ended || (response.goes_on && is_there) || got.status == Some(101))
        });
        answered.await.with_context(|| response.to.clone())?;
        let got = open.wire.got();
        ensure!(
            got.status == Some(response.status),
            "{}: the client got {:?}: {}; it came to {:?}",
            response.to,
            got.status,
            String::from_utf8_lossy(&got.body),
            self.engines
                .arrivals(&open.wire.number)
                .iter()
                .map(|arrival| &arrival.at)
                .collect::<Vec<_>>()
        );
        // The gateway's own answer, where no host was there to give one.
        let is_own = open.local_reply.take().is_some();
        let has_body = !is_own && open.request.method != "HEAD";
        ensure!(
            !has_body || got.body == body.as_bytes(),
            "{}: the answer's body was changed: {:?}",
            response.to,
            String::from_utf8_lossy(&got.body)
        );
        if response.goes_on {
            self.open.insert(response.to.clone(), open);
        } else {
            self.note(&open);
        }
        Ok(())
    }

    fn note(&mut self, open: &Open<'a>) {
        let name = &open.request.name;
        let arrivals = self.engines.arrivals(&open.wire.number);
        let first = arrivals.first().cloned().unwrap_or_default();
        let pick = first.headers.get(PICK_COPY_HEADER).map(String::as_str);
        let picked = pick.filter(|list| !matches!(*list, "" | "-"));
        let picked = picked.map(|list| first_of(list).to_owned());
        if let Some(picked) = &picked
            && *picked != first.at
        {
            let error = format!("{name}: {picked} was picked, {} was asked", first.at);
            self.outcome.errors.push(error);
        }
        let sent = open.wire.sent_body();
        let is_untouched = |arrival: &Arrival| {
            if arrival.ended {
                arrival.body == sent
            } else {
                sent.starts_with(&arrival.body)
            }
        };
        let mut upstream_headers = first.headers.clone();
        upstream_headers.remove(PICK_COPY_HEADER);
        let outcome = RequestOutcome {
            picked,
            body_untouched: arrivals.iter().all(is_untouched),
            hangs: open.hangs,
            local_reply: open.local_reply,
            upstream_headers,
            downstream_headers: open.wire.got().headers,
        };
        self.outcome.requests.insert(name.clone(), outcome);
    }

    async fn until_stat(&self, name: &str, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
        until(name, || async {
            let stats = self.envoy.stats().await?;
            Ok(wanted(stats.get(name).copied().unwrap_or(0)))
        })
        .await
    }

    /// Requests that are still open are noted as they stand; counters are given time to be as expected.
    async fn finish(mut self, patience: Duration) -> anyhow::Result<Outcome> {
        self.outcome.all_ended = self.outcome.errors.is_empty() && self.open.is_empty();
        for open in std::mem::take(&mut self.open).into_values() {
            self.note(&open);
        }
        let mut wanted = self.scenario.expect.metrics.clone();
        if self.outcome.all_ended {
            wanted.insert("warmroute_inflight".into(), 0);
            wanted.insert("warmroute_backlog_tokens".into(), 0);
        }
        let deadline = Instant::now() + patience;
        loop {
            let stats = self.envoy.stats().await?.into_iter();
            self.outcome.metrics = stats
                .filter_map(|(name, count)| {
                    Some((name.strip_prefix("wasmcustom.")?.to_owned(), count))
                })
                .collect();
            let now = |name| self.outcome.metrics.get(name).copied().unwrap_or(0);
            if wanted.iter().all(|(name, count)| now(name) == *count) || Instant::now() > deadline {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if self.envoy.log().contains("Wasm VM failed") {
            self.outcome.errors.push(self.envoy.log());
        }
        Ok(self.outcome)
    }
}

/// Address and health of a host in Envoy's list.
fn seen(status: &Value) -> (String, bool) {
    let address = &status["address"]["socket_address"];
    let ip = address["address"].as_str().unwrap_or_default();
    let is_up = status["health_status"]["failed_active_health_check"] != true;
    (format!("{ip}:{}", address["port_value"]), is_up)
}

/// What was waited for did not come.
#[derive(Debug)]
struct NotInTime(String);

impl std::fmt::Display for NotInTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not within {PATIENCE:?}: {}", self.0)
    }
}

impl std::error::Error for NotInTime {}

async fn until<F>(what: &str, is_so: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await? {
        if Instant::now() > deadline {
            return Err(NotInTime(what.to_owned()).into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
