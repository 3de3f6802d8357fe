//! One copy of the plugin: life cycle, callbacks with fuel, ticks, answers to its calls.

use std::collections::{BTreeMap, VecDeque};

use wasmtime::{Instance, Store, StoreLimitsBuilder, Val};

use super::artifact::{Abi, Artifact};
use super::gateway::{Gateway, Profile};
use super::state::{Callout, FuelUse, LogLine, ROOT, Running, VmState};
use super::table;

/// Why a VM does not come up.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The module does not compile.
    #[error("the module does not compile: {0}")]
    Load(String),
    /// The exported ABI version is missing, unknown here, or not alone.
    #[error("{0}")]
    Abi(String),
    /// An import that the profile's gateway lacks.
    #[error("{profile:?} has no import {import}")]
    MissingImport {
        /// `module.name`.
        import: String,
        /// The gateway.
        profile: Profile,
    },
    /// Types do not match, or the start function trapped.
    #[error("the module cannot be instantiated: {0}")]
    Instantiate(String),
}

/// The guest trapped. Its VM is dead: every later call answers the same trap. What becomes of the
/// gateway's streams then is up to the plugin's failure policy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("trap in {callback}: {message}")]
pub struct Trap {
    /// The export that ran.
    pub callback: String,
    /// What happened, with the guest's frames.
    pub message: String,
    /// Everything the VM has logged.
    pub log: Vec<LogLine>,
}

/// Which thread of the gateway a VM lives on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thread {
    /// Serves streams and gets ticks.
    #[default]
    Worker,
    /// Gets ticks, never a stream.
    Main,
}

/// How a plugin is configured apart from its own configuration.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// VMs of one id share data.
    pub vm_id: String,
    /// Property `plugin_name`.
    pub plugin_name: String,
    /// Buffer type 6.
    pub vm_config: Vec<u8>,
    /// Where it runs.
    pub thread: Thread,
}

impl Default for VmOptions {
    fn default() -> Self {
        Self {
            vm_id: "plugin".to_owned(),
            plugin_name: "plugin".to_owned(),
            vm_config: Vec::new(),
            thread: Thread::Worker,
        }
    }
}

/// One copy of the plugin.
pub struct Vm {
    pub(super) store: Store<VmState>,
    instance: Instance,
    pub(super) fuel: BTreeMap<&'static str, FuelUse>,
    next_tick_ms: Option<u64>,
    pub(super) next_stream: u32,
    pub(super) dead: Option<Trap>,
}

impl Vm {
    /// A worker's VM with default options.
    ///
    /// # Errors
    /// As [`Vm::with_options`].
    pub fn new(artifact: &Artifact, gateway: &Gateway) -> Result<Self, HostError> {
        Self::with_options(artifact, gateway, VmOptions::default())
    }

    /// Instantiates the module and runs `_initialize`.
    ///
    /// # Errors
    /// The gateway lacks an import or the ABI version, or the module's start code traps.
    pub fn with_options(
        artifact: &Artifact,
        gateway: &Gateway,
        options: VmOptions,
    ) -> Result<Self, HostError> {
        if artifact.abi() == Abi::V0_2_100 && gateway.profile() == Profile::Envoy {
            return Err(HostError::Abi(
                "Envoy does not know proxy_abi_version_0_2_100".to_owned(),
            ));
        }
        let linker = table::link(artifact, gateway.profile())?;
        let failed = |error: wasmtime::Error| HostError::Instantiate(format!("{error:#}"));
        let mut store = Store::new(
            &artifact.engine,
            new_state(artifact.abi(), gateway, options),
        );
        store.limiter(|state| &mut state.limits);
        store
            .set_fuel(gateway.options().fuel_limit)
            .map_err(failed)?;
        let instance = linker
            .instantiate(&mut store, &artifact.module)
            .map_err(failed)?;
        let mut vm = Self {
            store,
            instance,
            fuel: BTreeMap::new(),
            next_tick_ms: None,
            next_stream: ROOT,
            dead: None,
        };
        vm.invoke(ROOT, "_initialize", &[])
            .map_err(|trap| HostError::Instantiate(trap.to_string()))?;
        Ok(vm)
    }

    /// Creates the root context, starts the VM and configures the plugin; false = it refused.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn start(&mut self, plugin_config: &str) -> Result<bool, Trap> {
        self.store.data_mut().plugin_config = plugin_config.as_bytes().to_vec();
        let vm_config_size = word(self.store.data().options.vm_config.len());
        self.invoke(ROOT, "proxy_on_context_create", &[ROOT, 0])?;
        let started = self.invoke(ROOT, "proxy_on_vm_start", &[ROOT, vm_config_size])? != Some(0);
        let configured = started && self.configure(plugin_config)?;
        Ok(configured)
    }

    /// Configures the plugin again; false = it refused.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn configure(&mut self, plugin_config: &str) -> Result<bool, Trap> {
        self.store.data_mut().plugin_config = plugin_config.as_bytes().to_vec();
        let accepted = self.invoke(
            ROOT,
            "proxy_on_configure",
            &[ROOT, word(plugin_config.len())],
        )? != Some(0);
        self.settle()?;
        Ok(accepted)
    }

    /// Ends the plugin as a gateway does whose configuration no longer names it: done, then deleted.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn stop(&mut self) -> Result<(), Trap> {
        self.invoke(ROOT, "proxy_on_done", &[ROOT])?;
        self.invoke(ROOT, "proxy_on_log", &[ROOT])?;
        self.invoke(ROOT, "proxy_on_delete", &[ROOT])?;
        self.settle()
    }

    /// One tick now.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn tick(&mut self) -> Result<(), Trap> {
        self.invoke(ROOT, "proxy_on_tick", &[ROOT])?;
        self.settle()
    }

    /// Moves the gateway's clock in the steps of this VM's ticks and callout timeouts.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn advance(&mut self, ms: u64) -> Result<(), Trap> {
        self.poll()?;
        let target = self.store.data().gateway.now_ms().saturating_add(ms);
        while let Some(due) = self.next_due().filter(|due| *due <= target) {
            self.store.data().gateway.set_now_ms(due);
            self.poll()?;
        }
        self.store.data().gateway.set_now_ms(target);
        self.poll()
    }

    /// Does what is due at the gateway's clock: callout timeouts, one tick.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn poll(&mut self) -> Result<(), Trap> {
        let now_ms = self.store.data().gateway.now_ms();
        self.time_out_callouts(now_ms)?;
        let period_ms = u64::from(self.store.data().tick_period_ms);
        if period_ms == 0 {
            self.next_tick_ms = None;
            return Ok(());
        }
        let due = *self
            .next_tick_ms
            .get_or_insert(now_ms.saturating_add(period_ms));
        if due <= now_ms {
            self.next_tick_ms = Some(now_ms.saturating_add(period_ms));
            self.tick()?;
        }
        Ok(())
    }

    fn next_due(&self) -> Option<u64> {
        let state = self.store.data();
        let timeouts = state
            .gateway
            .options()
            .callouts_time_out
            .then(|| state.callouts.iter().map(Callout::due_ms));
        timeouts
            .into_iter()
            .flatten()
            .chain(self.next_tick_ms)
            .min()
    }

    /// Runs an export in a context; `None` when the module has no such export or it has no result.
    pub(super) fn invoke(
        &mut self,
        context: u32,
        export: &'static str,
        arguments: &[u32],
    ) -> Result<Option<u32>, Trap> {
        if let Some(trap) = &self.dead {
            return Err(trap.clone());
        }
        let Some(function) = self.instance.get_func(&mut self.store, export) else {
            return Ok(None);
        };
        let arguments: Vec<Val> = arguments
            .iter()
            .map(|word| Val::I32(word.cast_signed()))
            .collect();
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];
        let budget = self.store.data().gateway.options().fuel_limit;
        let state = self.store.data_mut();
        state.effective_context = context;
        state.running = Some(Running { context, export });
        let outcome = self
            .store
            .set_fuel(budget)
            .and_then(|()| function.call(&mut self.store, &arguments, &mut results));
        self.account(context, export, budget);
        match outcome {
            Ok(()) => Ok(results.first().and_then(Val::i32).map(i32::cast_unsigned)),
            Err(error) => Err(self.die(export, &error)),
        }
    }

    fn account(&mut self, context: u32, export: &'static str, budget: u64) {
        let used = budget.saturating_sub(self.store.get_fuel().unwrap_or(0));
        let entry = self.fuel.entry(export).or_default();
        entry.calls += 1;
        entry.total += used;
        entry.max = entry.max.max(used);
        entry.last = used;
        let memory = self.instance.get_memory(&mut self.store, "memory");
        let memory_bytes = memory.map_or(0, |memory| memory.data_size(&self.store));
        let state = self.store.data_mut();
        state.running = None;
        state.memory_bytes = memory_bytes;
        if let Some(stream) = state.streams.get_mut(&context) {
            stream.seen.fuel += used;
        }
    }

    fn die(&mut self, export: &str, error: &wasmtime::Error) -> Trap {
        let log = self.store.data().logs.clone();
        let trap = Trap {
            callback: export.to_owned(),
            message: format!("{error:?}"),
            log,
        };
        self.dead = Some(trap.clone());
        trap
    }
}

fn new_state(abi: Abi, gateway: &Gateway, options: VmOptions) -> VmState {
    VmState {
        abi,
        limits: StoreLimitsBuilder::new()
            .memory_size(gateway.options().memory_limit_bytes)
            .build(),
        gateway: gateway.clone(),
        options,
        streams: BTreeMap::new(),
        effective_context: ROOT,
        running: None,
        deferred: VecDeque::new(),
        plugin_config: Vec::new(),
        tick_period_ms: 0,
        logs: Vec::new(),
        calls: BTreeMap::new(),
        faults: Vec::new(),
        callouts: Vec::new(),
        redis_clients: Vec::new(),
        redis_calls: Vec::new(),
        last_token: 0,
        delivery: None,
        done_contexts: Vec::new(),
        rebuild_requested: false,
        violations: Vec::new(),
        memory_bytes: 0,
    }
}

/// A size as it crosses the boundary.
pub(super) fn word(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
