//! The VM that asks for all: admin listings and scrapes by HTTP calls, published through shared data.
//!
//! Every VM ticks, the main thread's too; the lease in shared data (compare-and-swap) decides which one
//! works. The SDK's dispatcher panics on answers to calls that it did not make itself, so this module
//! exports the callback in its place (the build puts it under its real name).

use hashbrown::HashMap;

use super::abi::{self, Buffer, Map};
use super::calls::Out;
use super::headers::PICK_HEADER;
use super::root::{self, Worker};
use super::shared::{self, ANNOUNCED};
use super::{now, replicas};
use crate::clock::Millis;
use crate::config::Plugin;
use crate::discovery::{Answer, Call, Discovery};
use crate::number::millis;

/// Shared value: what a cluster's endpoints are.
pub const SNAPSHOT: &str = "snapshot";

/// Discovery of every rule.
pub struct Scraper {
    discoveries: Vec<Discovery>,
    announced: HashMap<usize, u32>,
}

impl Scraper {
    /// For the rules of a configuration.
    pub fn new(plugin: &Plugin) -> Self {
        let discoveries = plugin
            .configs()
            .map(|(_, config)| Discovery::new(config))
            .collect();
        Self {
            discoveries,
            announced: HashMap::new(),
        }
    }
}

/// Time passed for the VM that leads: make the calls that are due, publish what changed.
pub fn tick(worker: &Worker, now: Millis) {
    if let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() {
        let discoveries = scraper.discoveries.iter_mut();
        discoveries.for_each(|discovery| discovery.lead(now));
    }
    for engine in 0..worker.engines.len() {
        read_announcements(worker, engine);
        for call in due(worker, engine, now) {
            make(worker, engine, &call, now);
        }
        publish(worker, engine);
    }
}

fn read_announcements(worker: &Worker, engine: usize) {
    let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() else {
        return;
    };
    let Some((names, version)) = abi::shared(&worker.identity.rule_key(engine, ANNOUNCED, ""))
    else {
        return;
    };
    if scraper.announced.insert(engine, version) == Some(version) {
        return;
    }
    let Some(discovery) = scraper.discoveries.get_mut(engine) else {
        return;
    };
    for name in shared::announced(&names) {
        discovery.watch(name);
    }
}

fn due(worker: &Worker, engine: usize, now: Millis) -> Vec<Call> {
    let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() else {
        return Vec::new();
    };
    scraper
        .discoveries
        .get_mut(engine)
        .map(|discovery| discovery.due(now))
        .unwrap_or_default()
}

fn make(worker: &Worker, engine: usize, call: &Call, now: Millis) {
    let Some(metrics) = worker
        .engines
        .get(engine)
        .and_then(|engine| engine.try_borrow().ok())
        .map(|e| e.config.metrics.clone())
    else {
        return;
    };
    let timeout_ms = u32::try_from(millis(metrics.timeout)).unwrap_or(u32::MAX);
    let token = match call {
        Call::List { cluster } => abi::http_call(
            cluster,
            &[
                (":method", "GET"),
                (":path", "/clusters?format=json"),
                (":authority", "admin"),
            ],
            &[],
            timeout_ms,
        ),
        Call::Scrape { cluster, address } => abi::http_call(
            cluster,
            &[
                (":method", "GET"),
                (":path", &metrics.path),
                (":authority", address),
                (PICK_HEADER, address),
            ],
            &[],
            timeout_ms,
        ),
    };
    if let Some(Out::Discovery(call)) = worker.made(token, engine, Out::Discovery(call.clone())) {
        take(worker, engine, &call, Answer::Failed, now);
    }
}

fn take(worker: &Worker, engine: usize, call: &Call, answer: Answer<'_>, now: Millis) {
    let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() else {
        return;
    };
    let Some(discovery) = scraper.discoveries.get_mut(engine) else {
        return;
    };
    let Some(mut engine) = worker
        .engines
        .get(engine)
        .and_then(|engine| engine.try_borrow_mut().ok())
    else {
        return;
    };
    discovery.answer(call, answer, &mut engine.telemetry, now);
}

fn publish(worker: &Worker, engine: usize) {
    let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() else {
        return;
    };
    let Some(discovery) = scraper.discoveries.get_mut(engine) else {
        return;
    };
    for (cluster, bytes) in discovery.news() {
        let _ = abi::set_shared(
            &worker.identity.rule_key(engine, SNAPSHOT, &cluster),
            &bytes,
            0,
        );
    }
}

/// The answer to an HTTP call. Exported under the callback's own name by the build.
#[unsafe(no_mangle)]
pub extern "C" fn warmroute_takeover_proxy_on_http_call_response(
    root: u32,
    token: u32,
    headers: u32,
    body_size: u32,
    _trailers: u32,
) {
    if let Some(worker) = root::find(root) {
        answered(&worker, token, headers, body_size);
    }
}

fn answered(worker: &Worker, token: u32, headers: u32, body_size: u32) {
    let Some((engine, out)) = worker.answered(token) else {
        return;
    };
    let status = abi::header(Map::CallResponseHeaders, ":status");
    let status = status.and_then(|text| core::str::from_utf8(&text).ok()?.parse().ok());
    let status = status.filter(|_| headers > 0);
    let size = usize::try_from(body_size).unwrap_or(0);
    let body = if size == 0 {
        Vec::new()
    } else {
        abi::buffer(Buffer::CallResponseBody, 0, size).unwrap_or_default()
    };
    match out {
        Out::Store(what) => {
            let answer = status.map(|status: u16| (u32::from(status), &*body));
            replicas::answered(worker, engine, what, answer, now());
        }
        Out::Discovery(call) => {
            let answer = status.map_or(Answer::Failed, |status| Answer::Body {
                status,
                body: &body,
            });
            take(worker, engine, &call, answer, now());
            let is_out = |out: &Out| matches!(out, Out::Discovery(_));
            // Another VM may have taken over while the answers were on their way.
            if !worker.is_any_out(is_out) && worker.identity.leads(now()) {
                publish(worker, engine);
            }
        }
    }
}
