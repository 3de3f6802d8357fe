//! The leading VM's talk with the other replicas: what the workers published goes to the store, what the store
//! holds of others goes to the workers' shared data.

use core::cell::{Cell, RefCell};

use super::calls::Out;
use super::exchange::MEMBERS;
use super::root::Worker;
use super::shared::{self, ANNOUNCED, Identity};
use super::{abi, gateway};
use crate::clock::Millis;
use crate::config::{Config, Plugin, ReplicaOptions, StoreKind};
use crate::exchange::{RING, members};
use crate::replicas::Replicas;
use crate::replicas::store::{Query, What};
use crate::telemetry::Telemetry;

/// A store that does not answer is prepared for anew this often.
const CONNECT_PERIOD_MS: u64 = 1_000;
/// A VM whose calls the gateway refuses does not lead for so long: longer than a lease.
const STEP_DOWN_MS: u64 = 5_000;

/// One rule's side of it.
pub struct Link {
    replicas: RefCell<Replicas<gateway::Store>>,
    is_ready: Cell<bool>,
    connected_at: Cell<Millis>,
    refused_at: Cell<Millis>,
}

impl Link {
    /// For a rule that asks for it.
    pub fn new(config: &Config, rule: usize, identity: &Identity) -> Option<Self> {
        let options = config.replicas.as_ref()?;
        let rule = u64::try_from(rule).unwrap_or(u64::MAX);
        let replicas = Replicas::new(options, rule, identity.process(), identity.vm);
        Some(Self {
            replicas: RefCell::new(replicas),
            is_ready: Cell::new(false),
            connected_at: Cell::new(Millis(0)),
            refused_at: Cell::new(Millis(0)),
        })
    }

    /// Whether the gateway refused this VM a call of late: another thread's VM may be let.
    pub fn is_refused(&self, now: Millis) -> bool {
        !now.is_over(self.refused_at.get(), STEP_DOWN_MS)
    }

    /// Other replicas that are not silent.
    pub fn alive(&self, now: Millis) -> u64 {
        let replicas = self.replicas.try_borrow();
        replicas.map_or(0, |replicas| {
            u64::try_from(replicas.alive(now)).unwrap_or(0)
        })
    }
}

/// The stores that a configuration's rules name.
pub fn stores(plugin: &Plugin) -> impl Iterator<Item = StoreKind> {
    let configs = plugin.configs();
    configs.filter_map(|(_, config)| Some(config.replicas.as_ref()?.store))
}

/// Time passed for the VM that leads.
#[cold]
pub fn tick(worker: &Worker, now: Millis) {
    for (rule, link) in worker.links.iter().enumerate() {
        let (Some(link), Some(Ok(mut engine))) =
            (link, worker.engines.get(rule).map(RefCell::try_borrow_mut))
        else {
            continue;
        };
        let (Some(options), Ok(mut replicas)) = (
            engine.config.replicas.clone(),
            link.replicas.try_borrow_mut(),
        ) else {
            continue;
        };
        let names = abi::shared(&worker.identity.rule_key(rule, ANNOUNCED, "")).unwrap_or_default();
        replicas.lead(shared::announced(&names.0), now);
        gather(worker, rule, &mut replicas, &mut engine.telemetry);
        let queries = replicas.due(&mut engine.telemetry, now);
        publish(worker, rule, &mut replicas, now);
        drop((replicas, engine));
        for query in queries {
            ask(worker, rule, link, &options, &query, now);
        }
    }
}

/// Reads what the workers published since the last time.
#[cold]
fn gather(
    worker: &Worker,
    rule: usize,
    replicas: &mut Replicas<gateway::Store>,
    telemetry: &mut Telemetry,
) {
    let mut place = 0;
    while let Some(cluster) = replicas.cluster(place).map(str::to_owned) {
        let scope = worker.identity.scope(rule, &cluster);
        let listed = abi::shared(&scope.key(MEMBERS));
        replicas.listen(place, members::read(&listed.unwrap_or_default().0));
        let mut at = 0;
        while let Some(member) = replicas.worker(place, at) {
            let vm = member.vm;
            if let Some((head, version)) = abi::shared(&scope.head_key(vm))
                && member.version.replace(version) != Some(version)
            {
                member.read_head(&head);
            }
            for _ in 0..=RING {
                let wanted = replicas
                    .worker(place, at)
                    .and_then(|member| member.wanted());
                let segment =
                    wanted.and_then(|segment| abi::shared(&scope.segment_key(vm, segment)));
                if !segment.is_some_and(|(bytes, _)| replicas.hear(place, at, &bytes, telemetry)) {
                    break;
                }
            }
            at = at.wrapping_add(1);
        }
        place = place.wrapping_add(1);
    }
}

/// Shows the workers what is known of the other replicas.
#[cold]
fn publish(worker: &Worker, rule: usize, replicas: &mut Replicas<gateway::Store>, now: Millis) {
    let member = replicas.member();
    replicas.publish(now, &mut |cluster, place, bytes| {
        let scope = worker.identity.scope(rule, cluster);
        let key = match place {
            Some(place) => scope.segment_key(member, place),
            None => scope.head_key(member),
        };
        let _ = abi::set_shared(&key, bytes, 0);
        if place.is_none() {
            shared::update(&scope.key(MEMBERS), |current| {
                members::join(current, member, |_| false)
            });
        }
    });
}

#[cold]
fn ask(
    worker: &Worker,
    rule: usize,
    link: &Link,
    options: &ReplicaOptions,
    query: &Query,
    now: Millis,
) {
    if !link.is_ready.get() && now.is_over(link.connected_at.get(), CONNECT_PERIOD_MS) {
        link.connected_at.set(now);
        link.is_ready.set(gateway::connect(options).is_ok());
    }
    let token = gateway::ask(options, query);
    if token.is_err() {
        link.refused_at.set(now);
    }
    if worker.made(token, rule, Out::Store(query.what)).is_some() {
        answered(worker, rule, query.what, None, now);
    }
}

/// The store's answer, `None` = there is none.
#[cold]
pub fn answered(
    worker: &Worker,
    rule: usize,
    what: What,
    answer: Option<(u32, &[u8])>,
    now: Millis,
) {
    let (Some(Some(link)), Some(Ok(mut engine))) = (
        worker.links.get(rule),
        worker.engines.get(rule).map(RefCell::try_borrow_mut),
    ) else {
        return;
    };
    let Ok(mut replicas) = link.replicas.try_borrow_mut() else {
        return;
    };
    if answer.is_none() {
        link.is_ready.set(false);
    }
    replicas.answer(what, answer, &mut engine.telemetry, now);
    if what == What::Read {
        publish(worker, rule, &mut replicas, now);
    }
    if let Some(news) = replicas.take_news() {
        abi::log(log::Level::Warn, &format!("warmroute: {news}"));
    }
}
