//! One plugin configuration in one VM: an engine a rule, ticks, and the streams' way to both.

use core::cell::RefCell;
use std::rc::{Rc, Weak};

use hashbrown::HashMap;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use super::calls::{Calls, Out};
use super::metrics::Metrics;
use super::replicas::Link;
use super::shared::Identity;
use super::stream::Stream;
use super::{abi, exchange, gateway, handover, now, replicas};
use crate::config::{ConfigId, Plugin, RequestPlace};
use crate::engine::Engine;

thread_local! {
    /// Configurations at work in this VM, by root.
    static ROOTS: RefCell<HashMap<u32, Weak<Worker>>> = RefCell::default();
}

/// Clusters that a VM announces at most.
const MAX_WATCHED: usize = 64;

/// The configuration at work under a root, for answers to its calls.
pub fn find(root: u32) -> Option<Rc<Worker>> {
    ROOTS.with(|roots| roots.try_borrow().ok()?.get(&root)?.upgrade())
}

fn register(root: u32, worker: Weak<Worker>) {
    ROOTS.with(|roots| {
        if let Ok(mut roots) = roots.try_borrow_mut() {
            roots.insert(root, worker);
        }
    });
}

/// What all streams of one configuration share.
pub struct Worker {
    /// The parsed configuration; rules in order.
    pub plugin: Plugin,
    /// An engine a configuration, in the order of [`Plugin::configs`].
    pub engines: Vec<RefCell<Engine>>,
    ids: Vec<ConfigId>,
    /// This VM among others.
    pub identity: Identity,
    /// Metrics of this VM.
    pub metrics: RefCell<Metrics>,
    /// The talk with other replicas, for the rules that ask for it.
    pub links: Vec<Option<Link>>,
    /// What this VM left to the next.
    pub left: handover::Left,
    calls: RefCell<Calls>,
    watched: RefCell<Vec<(usize, String)>>,
    /// What discovery needs beyond that.
    #[cfg(feature = "envoy")]
    pub gateway: gateway::Shared,
}

impl Worker {
    fn new(plugin: Plugin, text: &[u8]) -> Self {
        let identity = Identity::new(text);
        let seed = identity.seed();
        #[cfg(feature = "envoy")]
        let gateway = gateway::Shared::new(&plugin);
        let engines = plugin
            .configs()
            .map(|(_, config)| RefCell::new(Engine::new(config.clone(), seed)))
            .collect();
        let ids = plugin.configs().map(|(id, _)| id).collect();
        let configs = plugin.configs().enumerate();
        let links = configs
            .map(|(rule, (_, config))| Link::new(config, rule, &identity))
            .collect();
        Self {
            links,
            left: handover::Left::default(),
            calls: RefCell::default(),
            watched: RefCell::default(),
            plugin,
            engines,
            ids,
            identity,
            metrics: RefCell::default(),
            #[cfg(feature = "envoy")]
            gateway,
        }
    }

    /// The place of the engine that a request falls under; `None` = it is none of our business.
    pub fn engine_for(&self, place: &RequestPlace<'_>) -> Option<usize> {
        let selected = self.plugin.select(place)?;
        self.ids.iter().position(|id| *id == selected)
    }

    /// Hands on what an engine counted.
    pub fn flush(&self, engine: &mut Engine) {
        if let Ok(mut metrics) = self.metrics.try_borrow_mut() {
            metrics.flush(engine);
        }
    }

    /// Tells the VM that leads of a cluster it may not know: each VM says each cluster once.
    pub fn watch(&self, engine: usize, cluster: &str) {
        let asks = gateway::DISCOVERS || self.links.get(engine).is_some_and(Option::is_some);
        let Ok(mut watched) = self.watched.try_borrow_mut() else {
            return;
        };
        let is_known = watched
            .iter()
            .any(|(of, name)| *of == engine && name == cluster);
        if !asks || is_known || watched.len() >= MAX_WATCHED || cluster.is_empty() {
            return;
        }
        watched.push((engine, cluster.to_owned()));
        drop(watched);
        self.identity.announce(engine, cluster);
    }

    /// Notes a call for a rule; gives it back where it was refused, or answered before it returned.
    pub fn made(&self, token: Result<u32, abi::Status>, rule: usize, out: Out) -> Option<Out> {
        match (token, self.calls.try_borrow_mut()) {
            (Ok(token), Ok(mut calls)) => calls.made(token, rule, out),
            _ => Some(out),
        }
    }

    /// The call that an answer is for, and its rule.
    pub fn answered(&self, token: u32) -> Option<(usize, Out)> {
        self.calls.try_borrow_mut().ok()?.answered(token)
    }

    /// Whether such a call is out.
    #[cfg(feature = "envoy")]
    pub fn is_any_out(&self, is_such: impl Fn(&Out) -> bool) -> bool {
        let calls = self.calls.try_borrow();
        calls.is_ok_and(|calls| calls.is_any_out(is_such))
    }

    fn tick(&self) {
        let now = now();
        let mut links = self.links.iter().flatten().peekable();
        let may_lead = gateway::DISCOVERS
            || (links.peek().is_some() && !links.any(|link| link.is_refused(now)));
        if may_lead && self.identity.leads(now) {
            gateway::lead(self, now);
            replicas::tick(self, now);
        }
        for (rule, engine) in self.engines.iter().enumerate() {
            if let Ok(mut engine) = engine.try_borrow_mut() {
                exchange::tick(&self.identity, rule, &mut engine, now);
            }
        }
        handover::tick(self, now);
        self.hand_on(false);
    }

    /// Hands on what was counted; when the configuration `ends`, its levels go out of the gateway's sums.
    fn hand_on(&self, ends: bool) {
        let Ok(mut metrics) = self.metrics.try_borrow_mut() else {
            return;
        };
        let now = now();
        for (rule, engine) in self.engines.iter().enumerate() {
            if let Ok(mut engine) = engine.try_borrow_mut() {
                metrics.flush(&mut engine);
                let link = self.links.get(rule).and_then(Option::as_ref);
                let replicas = link.map_or(0, |link| link.alive(now));
                let levels = engine.gauges(replicas, now);
                metrics.note(&mut engine, &levels);
            }
        }
        metrics.hand_on(ends);
    }
}

/// The root context.
pub struct Root {
    id: u32,
    worker: Option<Rc<Worker>>,
}

impl Root {
    /// A root without a configuration.
    pub fn new(id: u32) -> Self {
        Self { id, worker: None }
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let text =
            abi::buffer(abi::Buffer::PluginConfiguration, 0, usize::MAX >> 1).unwrap_or_default();
        let parsed = Plugin::parse(&text).map_err(|error| error.to_string());
        match parsed.and_then(|plugin| {
            gateway::check(&plugin)
                .map_err(str::to_owned)
                .map(|()| plugin)
        }) {
            Ok(plugin) => {
                let worker = Rc::new(Worker::new(plugin, &text));
                register(self.id, Rc::downgrade(&worker));
                gateway::start(&worker);
                if let Some(replaced) = self.worker.replace(worker) {
                    replaced.hand_on(true);
                }
                true
            }
            Err(error) => {
                abi::log(
                    log::Level::Error,
                    &format!("warmroute: configuration refused: {error}"),
                );
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(worker) = &self.worker {
            gateway::tick(worker);
            worker.tick();
        }
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream::new(self.worker.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        register(self.id, Weak::new());
        if let Some(worker) = &self.worker {
            worker.hand_on(true);
        }
    }
}
