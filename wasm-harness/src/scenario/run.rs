//! Plays a scenario on the built artifact in the harness.

use std::collections::BTreeMap;

use serde_json::Value;

use super::answers;
use super::model::{Action, Host, Request, Response, Scenario};
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
    /// Request headers at the upstream.
    pub upstream_headers: BTreeMap<String, String>,
    /// Response headers at the client.
    pub downstream_headers: BTreeMap<String, String>,
}

struct Player<'a> {
    scenario: &'a Scenario,
    gateway: Gateway,
    vm: Vm,
    hosts: Vec<Host>,
    open: BTreeMap<String, Open<'a>>,
    outcome: Outcome,
}

struct Open<'a> {
    stream: StreamId,
    request: &'a Request,
    body: Vec<u8>,
    sent: usize,
}

/// Plays a scenario; the gateway is the one whose ABI the artifact exports (0.2.100 = Higress).
///
/// # Errors
/// The artifact does not come up at all. A trap later is part of the outcome.
pub fn run_in_harness(scenario: &Scenario, artifact: &Artifact) -> Result<Outcome, HostError> {
    let profile = if artifact.abi() == Abi::V0_2_100 {
        Profile::Higress
    } else {
        Profile::Envoy
    };
    let mut options = Options::new(profile);
    options.cuts_last_frame = scenario.gateway.cuts_last_frame;
    options.buffer_limit_bytes = scenario
        .gateway
        .buffer_limit_bytes
        .unwrap_or(options.buffer_limit_bytes);
    let gateway = Gateway::with_options(profile, options);
    let vm = Vm::new(artifact, &gateway)?;
    let mut player = Player {
        scenario,
        gateway,
        vm,
        hosts: Vec::new(),
        open: BTreeMap::new(),
        outcome: Outcome::default(),
    };
    if let Err(trap) = player.play(profile) {
        player.outcome.errors.push(trap.to_string());
    }
    Ok(player.finish())
}

fn config_text(scenario: &Scenario, profile: Profile) -> String {
    let mut config = scenario.config.clone();
    let own = match profile {
        Profile::Envoy => &scenario.config_on_envoy,
        Profile::Higress => &scenario.config_on_higress,
    };
    config.extend(own.clone());
    Value::Object(config).to_string()
}

fn header_pairs(first: &[(&str, &str)], more: &BTreeMap<String, String>) -> HeaderMap {
    let mut map = crate::host::header_map(first);
    map.extend(more.iter().map(|(name, value)| {
        (
            name.to_ascii_lowercase().into_bytes(),
            value.clone().into_bytes(),
        )
    }));
    map
}

impl<'a> Player<'a> {
    fn play(&mut self, profile: Profile) -> Result<(), Trap> {
        self.set_hosts(&self.scenario.hosts);
        self.gateway.set_cluster(
            &self.scenario.gateway.admin_cluster,
            crate::host::ClusterState::Up,
        );
        self.outcome.accepted = self.vm.start(&config_text(self.scenario, profile))?;
        if !self.outcome.accepted {
            return Ok(());
        }
        self.vm.poll()?;
        self.answer_callouts()?;
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
        while ms > 0 {
            let step = ms.min(50);
            self.vm.advance(step)?;
            self.answer_callouts()?;
            ms -= step;
        }
        Ok(())
    }

    /// Answers what waits; a plugin that calls again in every answer is stopped after 1,000.
    fn answer_callouts(&mut self) -> Result<(), Trap> {
        for _ in 0..1000 {
            let Some(call) = self.vm.callouts().first().cloned() else {
                return Ok(());
            };
            let setup = &self.scenario.gateway;
            let Some((headers, body)) =
                answers::answer(setup.callouts, &setup.cluster, &self.hosts, &call)
            else {
                return Ok(());
            };
            self.vm.answer_callout(call.id, headers, &body)?;
        }
        self.outcome
            .errors
            .push("the plugin calls again and again in its own answers".to_owned());
        Ok(())
    }

    fn set_hosts(&mut self, hosts: &[Host]) {
        self.hosts = hosts.to_vec();
        self.gateway.set_hosts(
            &self.scenario.gateway.cluster,
            hosts.iter().map(answers::upstream_host).collect(),
        );
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
                self.with_open(&response.to, |player, open| player.respond(&open, response))
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
                let nth = nth.map_or(Nth::Every, Nth::Only);
                self.vm.add_fault(Fault {
                    function: function.clone(),
                    nth,
                    status: *status,
                });
                Ok(())
            }
            Action::ClearFaults => {
                self.vm.clear_faults();
                Ok(())
            }
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
            route: setup.route.clone(),
            cluster: setup.cluster.clone(),
            ..StreamSpec::default()
        };
        let stream = self.vm.open_stream(spec)?;
        let body = request
            .body
            .as_ref()
            .map(super::Body::bytes)
            .unwrap_or_default();
        let first = [
            (":method", &*request.method),
            (":path", &*request.path),
            (":authority", "llm.example"),
        ];
        let mut headers = header_pairs(&first, &request.headers);
        if request.body.is_some() && !request.chunked {
            headers.push((
                b"content-length".to_vec(),
                body.len().to_string().into_bytes(),
            ));
        }
        let ends = body.is_empty() && request.trailers.is_none();
        self.vm.request_headers(stream, headers, ends)?;
        let mut open = Open {
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
        let total = open.body.len();
        let until = if rest {
            total
        } else {
            open.request.hold_after_bytes.unwrap_or(total).min(total)
        };
        let mut plan = open.request.chunks.iter().copied();
        let mut size = total;
        while open.sent < until {
            size = plan.next().unwrap_or(size).max(1);
            let end = open.sent.saturating_add(size).min(until);
            let chunk = open.body.get(open.sent..end).unwrap_or_default();
            let last = end == total && open.request.trailers.is_none();
            self.vm.request_body(open.stream, chunk, last)?;
            open.sent = end;
        }
        match &open.request.trailers {
            Some(trailers) if until == total => self
                .vm
                .request_trailers(open.stream, header_pairs(&[], trailers)),
            _ => Ok(()),
        }
    }

    fn respond(&mut self, open: &Open<'a>, response: &Response) -> Result<(), Trap> {
        let picked = self
            .vm
            .seen(open.stream)
            .and_then(|seen| seen.picked.as_deref());
        let picked = picked.map(|list| first_of(list).to_owned());
        let served_by = response.served_by.clone().or(picked);
        self.vm
            .update_spec(open.stream, |spec| spec.upstream_address = served_by);
        let headers = header_pairs(
            &[(":status", &response.status.to_string())],
            &response.headers,
        );
        self.vm
            .response_headers(open.stream, headers, response.body.is_empty())?;
        for (place, chunk) in response.body.iter().enumerate() {
            let last = place + 1 == response.body.len();
            self.vm.response_body(open.stream, chunk.as_bytes(), last)?;
        }
        self.close(open)
    }

    fn close(&mut self, open: &Open<'a>) -> Result<(), Trap> {
        let hangs = self.vm.hangs(open.stream);
        let seen = self.vm.close(open.stream)?;
        self.note(open, &seen, hangs);
        Ok(())
    }

    fn note(&mut self, open: &Open<'a>, seen: &Seen, hangs: bool) {
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
            local_reply: seen.local_reply.as_ref().map(|reply| reply.status),
            upstream_headers: text(&seen.upstream.headers),
            downstream_headers: text(&seen.downstream.headers),
        };
        self.outcome
            .requests
            .insert(open.request.name.clone(), request);
    }

    /// Streams that are still open are noted as they stand.
    fn finish(mut self) -> Outcome {
        for open in std::mem::take(&mut self.open).into_values() {
            let hangs = self.vm.hangs(open.stream);
            if let Some(seen) = self.vm.seen(open.stream).cloned() {
                self.note(&open, &seen, hangs);
            }
        }
        self.outcome.errors.extend_from_slice(self.vm.violations());
        self.outcome.metrics = self.gateway.metrics();
        self.outcome
    }
}

/// The endpoint that is tried first; the others are for retries.
fn first_of(list: &str) -> &str {
    list.split(',').next().unwrap_or(list).trim()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
