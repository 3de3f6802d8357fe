//! Plays a scenario on the built artifact in the harness.

use std::collections::BTreeMap;

use super::answers;
use super::model::{Action, Callouts, GatewayKind, Host, Request, Response, Scenario};
use crate::host::{
    Abi, Artifact, Fault, Gateway, HeaderMap, HostError, Nth, Options, Profile, Seen, StreamId,
    StreamSpec, Trap, Vm,
};

/// What came of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether the plugin took its configuration.
    pub accepted: bool,
    /// By the request's name.
    pub requests: BTreeMap<String, RequestOutcome>,
    /// Counters and gauges by full name.
    pub metrics: BTreeMap<String, u64>,
    /// All streams have ended, and time has passed since for a tick.
    pub all_ended: bool,
    /// Traps, violations of the host's rules, steps that name a request that is not there.
    pub errors: Vec<String>,
}

/// What came of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Where the plugin steered it; `None` = left to the gateway.
    pub picked: Option<String>,
    /// Body bytes at the upstream are those that the client sent.
    pub body_untouched: bool,
    /// Sent whole, neither forwarded whole nor answered.
    pub hangs: bool,
    /// Status of a local reply.
    pub local_reply: Option<u32>,
    /// What the access log was told.
    pub access_log: Option<String>,
    /// Request headers at the upstream.
    pub upstream_headers: BTreeMap<String, String>,
    /// Response headers at the client.
    pub downstream_headers: BTreeMap<String, String>,
}

struct Player<'a> {
    scenario: &'a Scenario,
    artifact: &'a Artifact,
    config: String,
    gateway: Gateway,
    /// One a worker.
    vms: Vec<Vm>,
    hosts: Vec<Host>,
    callouts: Callouts,
    has_lost_streams: bool,
    open: BTreeMap<String, Open<'a>>,
    outcome: Outcome,
}

struct Open<'a> {
    worker: usize,
    stream: StreamId,
    request: &'a Request,
    body: Vec<u8>,
    sent: usize,
}

/// Time that passes after the last step, when all streams have ended: every VM has ticked then.
const AFTERWARDS_MS: u64 = 1_000;

/// Plays a scenario; the gateway is the one whose ABI the artifact exports (0.2.100 = Higress).
///
/// # Errors
/// The artifact does not come up at all. A trap later is part of the outcome.
pub fn run_in_harness(scenario: &Scenario, artifact: &Artifact) -> Result<Outcome, HostError> {
    let (profile, kind) = if artifact.abi() == Abi::V0_2_100 {
        (Profile::Higress, GatewayKind::Higress)
    } else {
        (Profile::Envoy, GatewayKind::Envoy)
    };
    let mut options = Options::new(profile);
    options.cuts_last_frame = scenario.gateway.cuts_last_frame;
    options.buffer_limit_bytes = scenario
        .gateway
        .buffer_limit_bytes
        .unwrap_or(options.buffer_limit_bytes);
    let gateway = Gateway::with_options(profile, options);
    let vms = (0..scenario.gateway.workers.max(1))
        .map(|_| Vm::new(artifact, &gateway))
        .collect::<Result<_, _>>()?;
    let mut player = Player {
        scenario,
        artifact,
        config: scenario.config_text(kind),
        gateway,
        vms,
        hosts: Vec::new(),
        callouts: scenario.gateway.callouts,
        has_lost_streams: false,
        open: BTreeMap::new(),
        outcome: Outcome::default(),
    };
    if let Err(trap) = player.play() {
        player.outcome.errors.push(trap.to_string());
    }
    Ok(player.finish())
}

pub(super) fn header_pairs(first: &[(&str, &str)], more: &BTreeMap<String, String>) -> HeaderMap {
    let mut map = crate::host::header_map(first);
    let more = more.iter().filter(|(name, _)| *name != ":authority");
    map.extend(more.map(|(name, value)| {
        (
            name.to_ascii_lowercase().into_bytes(),
            value.clone().into_bytes(),
        )
    }));
    map
}

impl<'a> Player<'a> {
    fn play(&mut self) -> Result<(), Trap> {
        self.set_hosts(&self.scenario.hosts);
        self.gateway.set_cluster(
            &self.scenario.gateway.admin_cluster,
            crate::host::ClusterState::Up,
        );
        self.outcome.accepted = true;
        for vm in &mut self.vms {
            self.outcome.accepted &= vm.start(&self.config)?;
        }
        if !self.outcome.accepted {
            return Ok(());
        }
        self.pass_time(0)?;
        let start_ms = self.gateway.now_ms();
        for step in &self.scenario.steps {
            let target_ms = start_ms.saturating_add(step.at_ms.unwrap_or(0));
            self.pass_time(target_ms.saturating_sub(self.gateway.now_ms()))?;
            self.act(&step.action)?;
            self.answer_callouts()?;
        }
        Ok(())
    }

    /// Time moves in steps of at most 50 ms, so that answers come close to their calls.
    fn pass_time(&mut self, mut ms: u64) -> Result<(), Trap> {
        loop {
            for vm in &mut self.vms {
                vm.poll()?;
            }
            self.answer_callouts()?;
            if ms == 0 {
                return Ok(());
            }
            let step = ms.min(50);
            self.gateway.advance(step);
            ms -= step;
        }
    }

    /// Answers what waits; a plugin that calls again in every answer is stopped after 1,000.
    fn answer_callouts(&mut self) -> Result<(), Trap> {
        for vm in &mut self.vms {
            for _ in 0..1000 {
                let Some(call) = vm.callouts().first().cloned() else {
                    break;
                };
                let cluster = &self.scenario.gateway.cluster;
                let Some((headers, body)) =
                    answers::answer(self.callouts, cluster, &self.hosts, &call)
                else {
                    break;
                };
                vm.answer_callout(call.id, headers, &body)?;
            }
            if self.callouts != Callouts::Never && !vm.callouts().is_empty() {
                self.outcome
                    .errors
                    .push("the plugin calls again and again in its own answers".to_owned());
            }
        }
        Ok(())
    }

    fn set_hosts(&mut self, hosts: &[Host]) {
        let cluster = &self.scenario.gateway.cluster;
        let mut names = answers::cluster_names(cluster, hosts);
        names.extend(answers::cluster_names(cluster, &self.hosts));
        for name in names {
            let hosts = hosts.iter().filter(|host| host.is_in(name, cluster));
            self.gateway
                .set_hosts(name, hosts.map(answers::upstream_host).collect());
        }
        self.hosts = hosts.to_vec();
    }

    /// A fresh VM for a worker; the streams of the one before are lost, as they stand.
    fn rebuild(&mut self, worker: usize) -> Result<(), Trap> {
        let fresh = match Vm::new(self.artifact, &self.gateway) {
            Ok(fresh) => fresh,
            Err(error) => {
                self.outcome.errors.push(error.to_string());
                return Ok(());
            }
        };
        if worker >= self.vms.len() {
            self.outcome.errors.push(format!("no worker {worker}"));
        }
        let (lost, kept): (BTreeMap<_, _>, _) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(_, open)| open.worker == worker);
        self.open = kept;
        self.has_lost_streams |= !lost.is_empty();
        self.note_open(lost);
        if let Some(vm) = self.vms.get_mut(worker) {
            *vm = fresh;
            self.outcome.accepted &= vm.start(&self.config)?;
        }
        Ok(())
    }

    fn act(&mut self, action: &'a Action) -> Result<(), Trap> {
        match action {
            Action::Request(request) => self.request(request),
            Action::Finish(name) => self.with_open(name, |player, mut open| {
                player.send(&mut open, true)?;
                player.open.insert(name.clone(), open);
                Ok(())
            }),
            Action::Response(response) => {
                self.with_open(&response.to, |player, open| player.respond(open, response))
            }
            Action::Abort(name) => self.with_open(name, |player, open| player.close(&open)),
            Action::Hosts(hosts) => {
                self.set_hosts(hosts);
                Ok(())
            }
            Action::Fault {
                function,
                nth,
                status,
            } => {
                for vm in &mut self.vms {
                    vm.add_fault(Fault {
                        function: function.clone(),
                        nth: nth.map_or(Nth::Every, Nth::Only),
                        status: *status,
                    });
                }
                Ok(())
            }
            Action::ClearFaults => {
                self.vms.iter_mut().for_each(Vm::clear_faults);
                Ok(())
            }
            Action::Callouts(callouts) => {
                self.callouts = *callouts;
                Ok(())
            }
            Action::Rebuild(worker) => self.rebuild(*worker),
            Action::Wait => Ok(()),
        }
    }

    fn with_open(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut Self, Open<'a>) -> Result<(), Trap>,
    ) -> Result<(), Trap> {
        let Some(open) = self.open.remove(name) else {
            self.outcome.errors.push(format!(
                "a step names the request {name}, which is not open"
            ));
            return Ok(());
        };
        act(self, open)
    }

    fn request(&mut self, request: &'a Request) -> Result<(), Trap> {
        let setup = &self.scenario.gateway;
        let spec = StreamSpec {
            route: request.route.as_ref().unwrap_or(&setup.route).clone(),
            cluster: request.cluster.as_ref().unwrap_or(&setup.cluster).clone(),
            ..StreamSpec::default()
        };
        let worker = request.worker;
        let Some(vm) = self.vms.get_mut(worker) else {
            self.outcome.errors.push(format!("no worker {worker}"));
            return Ok(());
        };
        let stream = vm.open_stream(spec)?;
        let body = request
            .body
            .as_ref()
            .map(super::Body::bytes)
            .unwrap_or_default();
        let first = [
            (":method", &*request.method),
            (":path", &*request.path),
            (":authority", request.authority()),
        ];
        let mut headers = header_pairs(&first, &request.headers);
        if request.body.is_some() && !request.chunked {
            headers.push((
                b"content-length".to_vec(),
                body.len().to_string().into_bytes(),
            ));
        }
        let ends = body.is_empty() && request.trailers.is_none();
        vm.request_headers(stream, headers, ends)?;
        let mut open = Open {
            worker,
            stream,
            request,
            body,
            sent: 0,
        };
        if !ends {
            self.send(&mut open, false)?;
        }
        self.open.insert(request.name.clone(), open);
        Ok(())
    }

    /// Sends body chunks by the request's plan; all of them when `rest`, else up to where it holds.
    fn send(&mut self, open: &mut Open<'a>, rest: bool) -> Result<(), Trap> {
        let Some(vm) = self.vms.get_mut(open.worker) else {
            return Ok(());
        };
        for (range, last) in open.request.plan(open.sent, open.body.len(), rest) {
            open.sent = range.end;
            let chunk = open.body.get(range).unwrap_or_default();
            vm.request_body(open.stream, chunk, last)?;
        }
        match &open.request.trailers {
            Some(trailers) if open.sent == open.body.len() => {
                vm.request_trailers(open.stream, header_pairs(&[], trailers))
            }
            _ => Ok(()),
        }
    }

    fn respond(&mut self, open: Open<'a>, response: &Response) -> Result<(), Trap> {
        let Some(vm) = self.vms.get_mut(open.worker) else {
            return Ok(());
        };
        let picked = vm.seen(open.stream).and_then(|seen| seen.picked.as_deref());
        let picked = picked.map(|list| first_of(list).to_owned());
        let served_by = response.served_by.clone().or(picked);
        vm.update_spec(open.stream, |spec| {
            spec.upstream_address = served_by;
            spec.attempts = response.attempts.unwrap_or(1);
        });
        let headers = header_pairs(
            &[(":status", &response.status.to_string())],
            &response.headers,
        );
        let ends = response.body.is_empty() && !response.goes_on;
        vm.response_headers(open.stream, headers, ends)?;
        for (place, chunk) in response.body.iter().enumerate() {
            let last = place + 1 == response.body.len() && !response.goes_on;
            vm.response_body(open.stream, chunk.as_bytes(), last)?;
        }
        if response.goes_on {
            self.open.insert(open.request.name.clone(), open);
            return Ok(());
        }
        self.close(&open)
    }

    fn close(&mut self, open: &Open<'a>) -> Result<(), Trap> {
        let Some(vm) = self.vms.get_mut(open.worker) else {
            return Ok(());
        };
        let hangs = vm.hangs(open.stream);
        let logged = access_log(vm, open.stream);
        let seen = vm.close(open.stream)?;
        self.note(open, &seen, hangs, logged);
        Ok(())
    }

    fn note(&mut self, open: &Open<'a>, seen: &Seen, hangs: bool, access_log: Option<String>) {
        let text = |map: &Option<HeaderMap>| {
            let pairs = map.iter().flatten();
            pairs
                .map(|(name, value)| (lossy(name), lossy(value)))
                .collect()
        };
        let sent = open.body.get(..open.sent).unwrap_or_default();
        let whole = seen.upstream.ended;
        let body = &seen.upstream.body;
        let request = RequestOutcome {
            picked: seen.picked.as_deref().map(|list| first_of(list).to_owned()),
            body_untouched: if whole {
                body == sent
            } else {
                sent.starts_with(body)
            },
            hangs,
            access_log,
            local_reply: seen.local_reply.as_ref().map(|reply| reply.status),
            upstream_headers: text(&seen.upstream.headers),
            downstream_headers: text(&seen.downstream.headers),
        };
        self.outcome
            .requests
            .insert(open.request.name.clone(), request);
    }

    fn note_open(&mut self, streams: BTreeMap<String, Open<'a>>) {
        for open in streams.into_values() {
            let Some(vm) = self.vms.get_mut(open.worker) else {
                continue;
            };
            let hangs = vm.hangs(open.stream);
            let logged = access_log(vm, open.stream);
            if let Some(seen) = vm.seen(open.stream).cloned() {
                self.note(&open, &seen, hangs, logged);
            }
        }
    }

    /// Streams that are still open are noted as they stand.
    fn finish(mut self) -> Outcome {
        self.outcome.all_ended =
            self.outcome.errors.is_empty() && self.open.is_empty() && !self.has_lost_streams;
        if self.outcome.all_ended && self.outcome.accepted {
            self.vms.iter_mut().for_each(Vm::clear_faults);
            if let Err(trap) = self.pass_time(AFTERWARDS_MS) {
                self.outcome.errors.push(trap.to_string());
            }
        }
        let open = std::mem::take(&mut self.open);
        self.note_open(open);
        for vm in &self.vms {
            self.outcome.errors.extend_from_slice(vm.violations());
        }
        self.outcome.metrics = self.gateway.metrics();
        self.outcome
    }
}

/// The property that access logs read.
fn access_log(vm: &mut Vm, stream: StreamId) -> Option<String> {
    let mut logged = None;
    vm.update_spec(stream, |spec| {
        logged = spec
            .properties
            .get("warmroute_decision")
            .map(|value| lossy(value));
    });
    logged
}

/// The endpoint that is tried first; the others are for retries.
pub(super) fn first_of(list: &str) -> &str {
    list.split(',').next().unwrap_or(list).trim()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
