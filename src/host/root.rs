//! One plugin configuration in one VM: an engine a rule, ticks, and the streams' way to both.

use core::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use super::metrics::Metrics;
use super::shared::Identity;
use super::stream::Stream;
use super::{abi, exchange, gateway, now};
use crate::config::{ConfigId, Plugin, RequestPlace};
use crate::engine::Engine;

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
    /// What discovery needs beyond that.
    #[cfg(feature = "envoy")]
    pub gateway: gateway::Shared,
}

impl Worker {
    fn new(root: u32, plugin: Plugin, text: &[u8]) -> Self {
        let identity = Identity::new(root, text);
        let seed = identity.seed();
        #[cfg(feature = "envoy")]
        let gateway = gateway::Shared::new(&plugin);
        let engines = plugin
            .configs()
            .map(|(_, config)| RefCell::new(Engine::new(config.clone(), seed)))
            .collect();
        let ids = plugin.configs().map(|(id, _)| id).collect();
        Self {
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

    fn tick(&self) {
        let now = now();
        for (rule, engine) in self.engines.iter().enumerate() {
            if let Ok(mut engine) = engine.try_borrow_mut() {
                exchange::tick(self, rule, &mut engine, now);
            }
        }
        self.hand_on(false);
    }

    /// Hands on what was counted; when the configuration `ends`, its levels go out of the gateway's sums.
    fn hand_on(&self, ends: bool) {
        let Ok(mut metrics) = self.metrics.try_borrow_mut() else {
            return;
        };
        let now = now();
        for engine in &self.engines {
            if let Ok(mut engine) = engine.try_borrow_mut() {
                metrics.flush(&mut engine);
                let levels = engine.gauges(now);
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
                let worker = Rc::new(Worker::new(self.id, plugin, &text));
                gateway::start(self.id, &worker);
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
        gateway::stop(self.id);
        if let Some(worker) = &self.worker {
            worker.hand_on(true);
        }
    }
}
