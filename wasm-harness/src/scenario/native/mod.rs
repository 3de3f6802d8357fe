//! Plays a scenario on the core, compiled for this machine.
//!
//! Drives engines and sessions in the order of the plugin's own callbacks, without wasm and without a
//! host: what the gateway adapters do between the two is done here in as few words. Hosts go in as the
//! bytes that Higress gives, or through discovery and its published snapshot as on stock Envoy, so that
//! parsing is part of it. One worker; no faults of host functions.

mod stream;

use std::collections::BTreeMap;

use warmroute::clock::Millis;
use warmroute::config::{Config, ConfigId, EndpointSource, Plugin};
use warmroute::discovery::{Answer, Call, Discovery};
use warmroute::engine::Engine;
use warmroute::session::Session;
use warmroute::telemetry::{Counter, Series};
use warmroute_scenario::{
    Action, Callouts, GatewayKind, Host, Outcome, Request, RequestOutcome, Scenario,
};

use super::answers;
use crate::host::{Callout, HeaderMap, header};

const PICK_HEADER: &str = "x-gateway-destination-endpoint";
/// Time moves, and the plugin ticks, in steps of this size.
const TICK_MS: u64 = 50;
/// Time that passes after the last step, when all streams have ended.
const AFTERWARDS_MS: u64 = 1_000;
/// The clock at the start.
const START: Millis = Millis(1_700_000_000_000);

struct Rule {
    id: ConfigId,
    engine: Engine,
    discovery: Discovery,
    snapshots: BTreeMap<String, Vec<u8>>,
}

struct Open<'a> {
    request: &'a Request,
    rule: Option<usize>,
    cluster: String,
    session: Session,
    headers: HeaderMap,
    body: Vec<u8>,
    sent: usize,
    /// What the plugin has not read of the body that came.
    unread: usize,
    asked_for_load: bool,
    outcome: RequestOutcome,
}

struct Player<'a> {
    scenario: &'a Scenario,
    kind: GatewayKind,
    plugin: Plugin,
    rules: Vec<Rule>,
    hosts: Vec<Host>,
    callouts: Callouts,
    now: Millis,
    open: BTreeMap<String, Open<'a>>,
    outcome: Outcome,
}

/// Plays a scenario as the plugin built for `kind` would.
#[must_use]
pub fn run_native(scenario: &Scenario, kind: GatewayKind) -> Outcome {
    let Some(plugin) = Plugin::parse(scenario.config_text(kind).as_bytes())
        .ok()
        .filter(|plugin| plugin.configs().all(|(_, config)| can_do(kind, config)))
    else {
        return Outcome::default();
    };
    let rules = plugin
        .configs()
        .map(|(id, config)| Rule {
            id,
            engine: Engine::new(config.clone(), 7),
            discovery: Discovery::new(config),
            snapshots: BTreeMap::new(),
        })
        .collect();
    let mut player = Player {
        scenario,
        kind,
        plugin,
        rules,
        hosts: scenario.hosts.clone(),
        callouts: scenario.gateway.callouts,
        now: START,
        open: BTreeMap::new(),
        outcome: Outcome {
            accepted: true,
            ..Outcome::default()
        },
    };
    for step in &scenario.steps {
        player.pass_time(START.plus(step.at_ms.unwrap_or(0)));
        player.act(&step.action);
    }
    player.finish()
}

/// What the gateway adapters refuse.
fn can_do(kind: GatewayKind, config: &Config) -> bool {
    match kind {
        GatewayKind::Envoy => config.endpoints != EndpointSource::Gateway,
        GatewayKind::Higress => !matches!(config.endpoints, EndpointSource::Admin { .. }),
    }
}

impl<'a> Player<'a> {
    fn pass_time(&mut self, until: Millis) {
        loop {
            self.tick();
            if self.now >= until {
                return;
            }
            self.now = self.now.plus(TICK_MS.min(until.since(self.now)));
        }
    }

    fn tick(&mut self) {
        if self.kind == GatewayKind::Envoy {
            self.discover();
        }
        let mut levels = BTreeMap::new();
        for rule in &mut self.rules {
            flush(&mut rule.engine, &mut self.outcome);
            for (gauge, level) in rule.engine.gauges(0, self.now) {
                *levels.entry(gauge.name().to_owned()).or_insert(0) += level;
            }
        }
        for rule in &mut self.rules {
            rule.engine.by_endpoint(&mut |address, _, inflight, tally| {
                *levels.entry(Series::Inflight.of(address)).or_insert(0) += u64::from(inflight);
                for (series, by) in [
                    (Series::Requests, tally.requests),
                    (Series::Failures, tally.failures),
                    (Series::HitTokens, tally.hit_tokens),
                ] {
                    let counted = self.outcome.metrics.entry(series.of(address));
                    *counted.or_insert(0) += by;
                }
            });
        }
        self.outcome.metrics.extend(levels);
    }

    /// Makes and answers the calls that are due, and publishes what they told.
    fn discover(&mut self) {
        for rule in &mut self.rules {
            for call in rule.discovery.due(self.now) {
                let cluster = &self.scenario.gateway.cluster;
                let callout = callout(&call);
                let answered = answers::answer(self.callouts, cluster, &self.hosts, &callout);
                let Some((headers, body)) = answered else {
                    continue;
                };
                let status = header(&headers, ":status")
                    .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
                    .unwrap_or(0);
                let answer = Answer::Body {
                    status,
                    body: &body,
                };
                rule.discovery
                    .answer(&call, answer, &mut rule.engine.telemetry, self.now);
            }
            for (cluster, bytes) in rule.discovery.news() {
                rule.snapshots.insert(cluster.into(), bytes);
            }
        }
    }

    fn act(&mut self, action: &'a Action) {
        match action {
            Action::Request(request) => self.request(request),
            Action::Finish(name) => self.with_open(name, |player, mut open| {
                player.send(&mut open, true);
                player.open.insert(name.clone(), open);
            }),
            Action::Response(response) => {
                self.with_open(&response.to, |player, open| player.respond(open, response));
            }
            Action::Abort(name) => self.with_open(name, Self::close),
            Action::Hosts(hosts) => self.hosts.clone_from(hosts),
            Action::Callouts(callouts) => self.callouts = *callouts,
            Action::Wait => {}
            Action::Fault { .. } | Action::ClearFaults | Action::Rebuild(_) => self
                .outcome
                .errors
                .push("a step that only a VM can play".to_owned()),
        }
    }

    fn with_open(&mut self, name: &str, act: impl FnOnce(&mut Self, Open<'a>)) {
        match self.open.remove(name) {
            Some(open) => act(self, open),
            None => self.outcome.errors.push(format!(
                "a step names the request {name}, which is not open"
            )),
        }
    }

    fn finish(mut self) -> Outcome {
        self.outcome.all_ended = self.outcome.errors.is_empty() && self.open.is_empty();
        if self.outcome.all_ended {
            self.pass_time(self.now.plus(AFTERWARDS_MS));
        }
        for open in std::mem::take(&mut self.open).into_values() {
            self.note(open);
        }
        self.tick();
        self.outcome
    }
}

fn flush(engine: &mut Engine, outcome: &mut Outcome) {
    let names: Vec<String> = Counter::all().map(Counter::name).collect();
    engine.telemetry.drain(
        |place, by| {
            if let Some(name) = names.get(place) {
                *outcome.metrics.entry(name.clone()).or_insert(0) += by;
            }
        },
        |_, _| {},
    );
}

fn callout(call: &Call) -> Callout {
    let (cluster, path, address) = match call {
        Call::List { cluster } => (cluster, "/clusters?format=json", "admin"),
        Call::Scrape { cluster, address } => (cluster, "/metrics", &**address),
    };
    Callout {
        id: 0,
        context: 0,
        cluster: cluster.to_string(),
        headers: crate::host::header_map(&[(":path", path), (PICK_HEADER, address)]),
        body: Vec::new(),
        trailers: HeaderMap::new(),
        timeout_ms: 0,
        sent_at_ms: 0,
    }
}
