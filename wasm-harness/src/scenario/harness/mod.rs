//! Plays a scenario on the built artifact in the harness.

mod stream;

use std::collections::BTreeMap;

use warmroute_scenario::{Action, Callouts, GatewayKind, Host, Outcome, Request, Scenario};

use super::answers;
use crate::host::{
    Abi, Artifact, Fault, Gateway, HostError, Nth, Options, Profile, StreamId, Trap, Vm,
};

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
