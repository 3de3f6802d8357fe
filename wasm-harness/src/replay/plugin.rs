//! The built plugin as a [`Gateway`]: the Higress artifact in the embedded host, one VM a worker.
//!
//! A [`Process`] is one gateway process: its workers share clock, hosts and shared data. Several processes
//! are replicas, which share nothing but a [`Store`] where they are given one. Requests are real bodies, answers real streams, load real metrics text.
//!
//! Cost: a request of 12,000 tokens is 48 KB through the plugin, about a millisecond.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

use super::engine::Metrics;
use super::store::Store;
use super::{End, Figures, Gateway, Request, body};
use crate::host::Gateway as Host;
use crate::host::{
    Artifact, ClusterState, Options, Profile, StreamId, StreamSpec, UpstreamHost, Vm, VmOptions,
    header_map,
};

const CLUSTER: &str = "outbound|80||engines";
/// The cluster that is the replicas' store.
pub const STORE: &str = "store";
/// Workers tick at different moments, as threads do.
const TICK_SPREAD_MS: u64 = 37;

/// How plugin and engines are set up.
#[derive(Clone, Debug)]
pub struct PluginOptions {
    /// The plugin's configuration, JSON.
    pub config: String,
    /// Whether engines tell how much of a prompt they had cached.
    pub tells_cached: bool,
}

impl Default for PluginOptions {
    fn default() -> Self {
        Self {
            config: "{}".to_owned(),
            tells_cached: true,
        }
    }
}

/// One gateway process.
pub struct Process {
    artifact: Artifact,
    host: Host,
    options: PluginOptions,
    start_ms: u64,
    workers: u64,
    store: Option<Store>,
}

impl Process {
    /// A process without workers.
    #[must_use]
    pub fn new(artifact: &Artifact, options: &PluginOptions) -> Self {
        let mut host_options = Options::new(Profile::Higress);
        host_options.log_level = 4;
        let host = Host::with_options(Profile::Higress, host_options);
        Self {
            artifact: artifact.clone(),
            start_ms: host.now_ms(),
            host,
            options: options.clone(),
            workers: 0,
            store: None,
        }
    }

    /// A replica, one of several on a store: number it, for its clock is a little off.
    #[must_use]
    pub fn replica(
        artifact: &Artifact,
        options: &PluginOptions,
        number: u64,
        store: &Store,
    ) -> Self {
        let mut process = Self::new(artifact, options);
        process.start_ms += number;
        process.host.set_now_ms(process.start_ms);
        process.host.set_cluster(STORE, ClusterState::Up);
        process.store = Some(store.clone());
        process
    }

    /// One more worker.
    ///
    /// # Errors
    /// The plugin does not come up, or refuses its configuration.
    pub fn worker(&mut self) -> Result<Worker> {
        // Seeds come from the clock and the VM's number: no two alike, and the same in every run.
        let apart_ms = self.start_ms + self.workers * TICK_SPREAD_MS;
        self.host.set_now_ms(apart_ms.max(self.host.now_ms()));
        self.workers += 1;
        let mut vm = Vm::with_options(&self.artifact, &self.host, VmOptions::default())?;
        ensure!(
            vm.start(&self.options.config)?,
            "the plugin refuses {}",
            self.options.config
        );
        vm.poll()?;
        Ok(Worker {
            vm,
            host: self.host.clone(),
            start_ms: self.start_ms,
            tells_cached: self.options.tells_cached,
            texts: Vec::new(),
            listed: Vec::new(),
            open: HashMap::new(),
            figures: Figures::default(),
            is_first: self.workers == 1,
            store: self.store.clone(),
        })
    }
}

/// One worker: a VM and its open streams.
pub struct Worker {
    vm: Vm,
    host: Host,
    start_ms: u64,
    tells_cached: bool,
    texts: Vec<Option<Vec<u8>>>,
    listed: Vec<bool>,
    open: HashMap<usize, Open>,
    figures: Figures,
    is_first: bool,
    store: Option<Store>,
}

struct Open {
    stream: StreamId,
    body: Request,
    engine: usize,
    has_answer: bool,
}

fn address(engine: usize) -> String {
    format!("10.0.{}.{}:8000", engine / 200, engine % 200 + 1)
}

fn engine_of(address: &str) -> Option<usize> {
    let mut parts = address
        .strip_suffix(":8000")?
        .strip_prefix("10.0.")?
        .split('.');
    let (high, low): (usize, usize) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(high * 200 + low - 1)
}

impl Worker {
    /// The VM, for looking at.
    #[must_use]
    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// What the plugin says of an open request's decision (`debug.header`), once it was accepted.
    #[must_use]
    pub fn decision(&self, request: usize) -> Option<String> {
        let seen = self.vm.seen(self.open.get(&request)?.stream)?;
        seen.downstream.header("x-warmroute-decision")
    }

    fn set_clock(&self, now_ms: f64) {
        // Workers come up one after the other; the run begins when the last is there.
        self.host.set_now_ms(self.start_ms + 10_000 + now_ms as u64);
    }

    fn list_hosts(&mut self, up: &[bool]) {
        self.listed = up.to_vec();
        let hosts = up
            .iter()
            .enumerate()
            .filter(|(_, up)| **up)
            .map(|(engine, _)| UpstreamHost {
                metrics: self.texts.get(engine).cloned().flatten(),
                ..UpstreamHost::new(&address(engine))
            });
        self.host.set_hosts(CLUSTER, hosts.collect());
    }

    fn request(&mut self, body: &Request) -> Result<(StreamId, Option<usize>)> {
        let spec = StreamSpec {
            cluster: CLUSTER.to_owned(),
            ..StreamSpec::default()
        };
        let stream = self.vm.open_stream(spec)?;
        let bytes = body::chat(body);
        let length = bytes.len().to_string();
        let headers = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            (":authority", "llm.example"),
            ("content-type", "application/json"),
            ("content-length", &length),
        ];
        self.vm
            .request_headers(stream, header_map(&headers), false)?;
        self.vm.request_body(stream, &bytes, true)?;
        let seen = self.vm.seen(stream).context("the stream is there")?;
        self.figures.instructions += seen.fuel;
        self.figures.instructions_max = self.figures.instructions_max.max(seen.fuel);
        Ok((stream, seen.picked.as_deref().and_then(engine_of)))
    }

    fn answer(&mut self, request: usize, status: &str) -> Result<()> {
        let Some(open) = self.open.get_mut(&request) else {
            return Ok(());
        };
        open.has_answer = true;
        let by = address(open.engine);
        self.vm
            .update_spec(open.stream, |spec| spec.upstream_address = Some(by));
        let headers = header_map(&[(":status", status), ("content-type", "text/event-stream")]);
        self.vm
            .response_headers(open.stream, headers, status != "200")?;
        Ok(())
    }

    fn close(&mut self, request: usize, end: End) -> Result<()> {
        if end == End::Failed && self.open.get(&request).is_some_and(|open| !open.has_answer) {
            self.answer(request, "503")?;
        }
        let Some(open) = self.open.remove(&request) else {
            return Ok(());
        };
        if let End::Done { cached_tokens } = end {
            let events = body::last_events(&open.body, cached_tokens, self.tells_cached);
            self.vm.response_body(open.stream, &events, true)?;
        }
        self.vm.close(open.stream)?;
        Ok(())
    }
}

/// A trap ends the run: the plugin must never trap.
fn sound<T, E: std::fmt::Display>(outcome: std::result::Result<T, E>) -> T {
    outcome.unwrap_or_else(|error| panic!("{error}"))
}

impl Gateway for Worker {
    fn pick(&mut self, now_ms: f64, request: usize, body: &Request, up: &[bool]) -> usize {
        self.set_clock(now_ms);
        if self.listed != up {
            self.list_hosts(up);
        }
        let (stream, picked) = sound(self.request(body));
        match picked {
            Some(_) => self.figures.decisions += 1,
            None => self.figures.fallbacks += 1,
        }
        let alive: Vec<usize> = (0..up.len()).filter(|engine| up[*engine]).collect();
        let engine = picked.unwrap_or_else(|| alive[request % alive.len()]);
        let open = Open {
            stream,
            body: body.clone(),
            engine,
            has_answer: false,
        };
        self.open.insert(request, open);
        engine
    }

    fn accepted(&mut self, now_ms: f64, request: usize) {
        self.set_clock(now_ms);
        sound(self.answer(request, "200"));
    }

    fn first_token(&mut self, now_ms: f64, request: usize) {
        self.set_clock(now_ms);
        if let Some(open) = self.open.get(&request) {
            sound(self.vm.response_body(open.stream, body::FIRST_EVENT, false));
        }
    }

    fn end(&mut self, now_ms: f64, request: usize, end: End) {
        self.set_clock(now_ms);
        sound(self.close(request, end));
    }

    fn metrics(&mut self, now_ms: f64, metrics: &[Option<Metrics>]) {
        self.set_clock(now_ms);
        self.texts = metrics
            .iter()
            .map(|metrics| metrics.as_ref().map(body::metrics))
            .collect();
        let up: Vec<bool> = metrics.iter().map(Option::is_some).collect();
        self.list_hosts(&up);
    }

    fn tick(&mut self, now_ms: f64) {
        self.set_clock(now_ms);
        sound(self.vm.poll());
        let calls = self.vm.redis_calls().to_vec();
        for call in calls {
            let Some(store) = &self.store else { break };
            let reply = store.answer(&call.query, self.host.now_ms());
            sound(self.vm.answer_redis(call.id, 0, &reply));
        }
    }

    fn figures(&self) -> Figures {
        // The metric is the process's.
        let metrics = self.host.metrics();
        let predicted = metrics
            .get("warmroute_predicted_hit_tokens_total")
            .copied()
            .unwrap_or(0);
        Figures {
            predicted_tokens: if self.is_first { predicted as f64 } else { 0.0 },
            instructions_all: self.vm.fuel().values().map(|fuel| fuel.total).sum(),
            ..self.figures
        }
    }
}
