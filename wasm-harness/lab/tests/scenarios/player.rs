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
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use warmroute_lab::envoy::{Envoy, EnvoyOptions};
use warmroute_lab::stage::{PATIENCE, through_plugin};
use warmroute_scenario::{Action, Callouts, GatewayKind, Host, Outcome, Request, Scenario};

use crate::bootstrap;
use crate::engines::Engines;
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

/// A request whose answer is not whole.
pub(crate) struct Open<'a> {
    pub(crate) request: &'a Request,
    pub(crate) wire: Wire,
    pub(crate) hangs: bool,
    pub(crate) local_reply: Option<u32>,
}

/// A scenario at play.
pub(crate) struct Player<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) hosts: Vec<Host>,
    pub(crate) callouts: Callouts,
    pub(crate) engines: Engines,
    pub(crate) envoy: Envoy,
    folder: PathBuf,
    pub(crate) open: BTreeMap<String, Open<'a>>,
    pub(crate) asked_clusters: BTreeSet<String>,
    /// Requests that were begun.
    pub(crate) begun: u64,
    pub(crate) outcome: Outcome,
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

    pub(crate) fn take(&mut self, name: &str) -> anyhow::Result<Open<'a>> {
        let open = self.open.remove(name);
        open.with_context(|| format!("a step names the request {name}, which is not open"))
    }

    pub(crate) async fn until_stat(
        &self,
        name: &str,
        wanted: impl Fn(u64) -> bool,
    ) -> anyhow::Result<()> {
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

/// What was waited for did not come.
#[derive(Debug)]
pub(crate) struct NotInTime(String);

impl std::fmt::Display for NotInTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not within {PATIENCE:?}: {}", self.0)
    }
}

impl std::error::Error for NotInTime {}

/// Waits until `is_so` says so.
///
/// # Errors
/// It failed, or did not in [`PATIENCE`] ([`NotInTime`]).
pub(crate) async fn until<F>(what: &str, is_so: impl Fn() -> F) -> anyhow::Result<()>
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
