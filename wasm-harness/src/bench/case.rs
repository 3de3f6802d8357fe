//! One case: a gateway, a fleet and a request; what each part of it costs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::body::{Text, body};
use super::fleet;
use crate::host::{
    Artifact, Gateway, Options, Profile, StreamId, StreamSpec, UpstreamHost, Vm, header_map,
};

pub(super) const CLUSTER: &str = "engines";
/// Past the refresh of a listing, while the prompt still counts as lately used.
const LATER_MS: u64 = 1_000;
/// Listings in which every endpoint has its turn.
const LISTINGS: u64 = 66;
/// The cases for which listings are looked at more closely: others tell the same at more time.
const LISTED_BYTES: usize = 10 << 10;
const TURN_HOSTS: usize = 64;
/// Timed runs; the fastest counts.
const TIMED_RUNS: usize = 5;
pub(super) const ANSWER: &[u8] = br#"{"id":"a","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."}}],"usage":{"prompt_tokens":256,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":240}}}"#;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Whose artifact.
    pub gateway: Profile,
    /// Endpoints, each with 50 KB of metrics on Higress; without metrics on Envoy.
    pub hosts: usize,
    /// The body's text.
    pub text: Text,
    /// The body's size.
    pub bytes: usize,
}

/// Wasm instructions of one request's parts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Context and headers.
    pub headers: u64,
    /// Reading and hashing the body, in one callback without its end.
    pub read: u64,
    /// The end of the body: match, pick, record.
    pub decide: u64,
    /// All of the above.
    pub whole: u64,
    /// The answer and the end of the stream.
    pub response: u64,
    /// What a decision costs more when every endpoint's metrics have changed. Higress only.
    pub refresh: Option<u64>,
    /// The same when a listing is due and nothing has changed. Higress only.
    pub unchanged: Option<u64>,
    /// What the first decision costs more, which lists and reads all endpoints. Higress, bodies of [`LISTED_BYTES`].
    pub first: Option<u64>,
    /// The most that a decision costs more over [`LISTINGS`] listings, in which endpoints take turns in being read whole.
    /// The same, up to [`TURN_HOSTS`] endpoints.
    pub worst: Option<u64>,
    /// Time of a decision in wasmtime, which counts each instruction as it runs: the fastest of a few.
    pub whole_us: f64,
}

impl Case {
    /// All cases, in the table's order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let ascii = |gateway, hosts, bytes| Self {
            gateway,
            hosts,
            text: Text::Ascii,
            bytes,
        };
        let mut cases = Vec::new();
        for hosts in [2, 8, 64] {
            cases.extend(
                [1 << 10, 10 << 10, 100 << 10, 1 << 20]
                    .map(|bytes| ascii(Profile::Higress, hosts, bytes)),
            );
        }
        cases.push(ascii(Profile::Higress, 512, 10 << 10));
        let others = [Text::Cjk, Text::Escapes, Text::TokenIds];
        cases.extend(others.map(|text| Self {
            gateway: Profile::Higress,
            hosts: 8,
            text,
            bytes: 100 << 10,
        }));
        cases.extend([1 << 10, 100 << 10, 1 << 20].map(|bytes| ascii(Profile::Envoy, 8, bytes)));
        cases
    }

    /// The row's name.
    #[must_use]
    pub fn name(&self) -> String {
        let gateway = match self.gateway {
            Profile::Envoy => "envoy",
            Profile::Higress => "higress",
        };
        format!("{gateway}, {} hosts, {}", self.hosts, self.body_name())
    }

    /// What the row's name says of the body.
    #[must_use]
    pub fn body_name(&self) -> String {
        let size = if self.bytes >= 1 << 20 {
            format!("{} MB", self.bytes >> 20)
        } else {
            format!("{} KB", self.bytes >> 10)
        };
        format!("{size} {}", self.text.name())
    }

    /// The plugin's configuration.
    pub(super) fn config(&self, hosts: &[UpstreamHost]) -> String {
        match self.gateway {
            Profile::Higress => "{}".to_owned(),
            Profile::Envoy => {
                let addresses: Vec<_> = hosts.iter().map(|host| host.address.as_str()).collect();
                serde_json::json!({ "endpoints": { "static": addresses } }).to_string()
            }
        }
    }

    /// Measures it on the artifact of its gateway.
    ///
    /// # Errors
    /// The plugin does not come up, traps, or leaves the request to the gateway.
    pub fn measure(&self, artifact: &Artifact) -> Result<Cost> {
        let mut driver = Driver::new(artifact, self)?;
        let first = driver.request()?;
        for _ in 0..2 {
            driver.request()?;
        }
        let mut cost = driver.request()?;
        for _ in 0..TIMED_RUNS {
            cost.whole_us = cost.whole_us.min(driver.request()?.whole_us);
        }
        if self.gateway == Profile::Higress {
            driver.gateway.advance(LATER_MS);
            cost.unchanged = Some(driver.request()?.whole.saturating_sub(cost.whole));
            driver
                .gateway
                .set_hosts(CLUSTER, fleet::hosts(self.hosts, 1));
            driver.gateway.advance(LATER_MS);
            cost.refresh = Some(driver.request()?.whole.saturating_sub(cost.whole));
            // Of a longer prompt the record of new blocks would be most of it.
            if self.bytes == LISTED_BYTES {
                cost.first = Some(first.whole.saturating_sub(cost.whole));
            }
            if self.bytes == LISTED_BYTES && self.hosts <= TURN_HOSTS {
                cost.worst = Some(driver.worst_listing(self.hosts)?.saturating_sub(cost.whole));
            }
        }
        Ok(cost)
    }
}

/// A VM, and requests through it.
pub(super) struct Driver {
    pub(super) vm: Vm,
    gateway: Gateway,
    pub(super) body: Vec<u8>,
    path: &'static str,
    next_connection: u64,
}

impl Driver {
    pub(super) fn new(artifact: &Artifact, case: &Case) -> Result<Self> {
        let mut options = Options::new(case.gateway);
        options.buffer_limit_bytes = 32 << 20;
        let gateway = Gateway::with_options(case.gateway, options);
        let hosts = fleet::hosts(case.hosts, 0);
        let config = case.config(&hosts);
        gateway.set_hosts(CLUSTER, hosts);
        let mut vm = Vm::new(artifact, &gateway)?;
        ensure!(
            vm.start(&config)?,
            "the configuration was refused: {:?}",
            vm.logs()
        );
        Ok(Self {
            vm,
            gateway,
            body: body(case.text, case.bytes, 1),
            path: case.text.path(),
            next_connection: 0,
        })
    }

    /// The dearest decision of many with a listing each, the metrics being others every time.
    fn worst_listing(&mut self, hosts: usize) -> Result<u64> {
        let mut worst = 0;
        for moment in 2..LISTINGS + 2 {
            self.gateway.set_hosts(CLUSTER, fleet::hosts(hosts, moment));
            self.gateway.advance(LATER_MS);
            worst = self.request()?.whole.max(worst);
        }
        Ok(worst)
    }

    fn last(&self, callback: &str) -> u64 {
        self.vm.fuel().get(callback).map_or(0, |fuel| fuel.last)
    }

    /// Lets time go by.
    pub(super) fn advance(&self, ms: u64) {
        self.gateway.advance(ms);
    }

    /// A counter or gauge of the plugin.
    pub(super) fn metric(&self, name: &str) -> u64 {
        self.gateway.metrics().get(name).copied().unwrap_or(0)
    }

    /// A whole request with its answer.
    pub(super) fn request(&mut self) -> Result<Cost> {
        let started = Instant::now();
        let stream = self.ask()?;
        let whole_us = micros(started.elapsed());
        let headers = self.last("proxy_on_context_create") + self.last("proxy_on_request_headers");
        let seen = self.vm.seen(stream).context("the stream is open")?;
        ensure!(seen.picked.is_some(), "the request was left to the gateway");
        let whole = seen.fuel;
        let decide = self.last("proxy_on_request_body");
        self.answer(stream)?;
        let all = self.vm.close(stream)?.fuel;
        Ok(Cost {
            headers,
            read: whole - headers - decide,
            decide,
            whole,
            response: all - whole,
            refresh: None,
            unchanged: None,
            first: None,
            worst: None,
            whole_us,
        })
    }

    fn ask(&mut self) -> Result<StreamId> {
        self.next_connection += 1;
        let stream = self.vm.open_stream(StreamSpec {
            route: "chat".to_owned(),
            cluster: CLUSTER.to_owned(),
            connection_id: self.next_connection,
            ..StreamSpec::default()
        })?;
        let length = self.body.len().to_string();
        let headers = header_map(&[
            (":method", "POST"),
            (":path", self.path),
            (":authority", "llm.example"),
            ("content-type", "application/json"),
            ("content-length", &length),
        ]);
        self.vm.request_headers(stream, headers, false)?;
        self.vm.request_body(stream, &self.body, false)?;
        self.vm.request_body(stream, &[], true)?;
        Ok(stream)
    }

    fn answer(&mut self, stream: StreamId) -> Result<()> {
        let picked = self
            .vm
            .seen(stream)
            .and_then(|seen| seen.picked.clone())
            .unwrap_or_default();
        let address = picked.split(',').next().unwrap_or_default().to_owned();
        self.vm
            .update_spec(stream, |spec| spec.upstream_address = Some(address));
        let headers = header_map(&[(":status", "200"), ("content-type", "application/json")]);
        self.vm.response_headers(stream, headers, false)?;
        self.vm.response_body(stream, ANSWER, true)?;
        Ok(())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
