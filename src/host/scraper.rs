//! The VM that asks for all: admin listings and scrapes by HTTP calls, published through shared data.
//!
//! Every VM ticks, the main thread's too; the lease in shared data (compare-and-swap) decides which one
//! works. The SDK's dispatcher panics on answers to calls that it did not make itself, so this module
//! exports the callback in its place (the build puts it under its real name).

use core::cell::RefCell;
use std::rc::{Rc, Weak};

use hashbrown::HashMap;

use super::abi::{self, Buffer, Map};
use super::headers::PICK_HEADER;
use super::now;
use super::root::Worker;
use super::shared::{self, Identity};
use crate::clock::Millis;
use crate::config::Plugin;
use crate::discovery::{Answer, Call, Discovery, Lease};
use crate::number::millis;

/// Shared values: what a cluster's endpoints are, and which clusters requests go to.
pub const SNAPSHOT: &str = "snapshot";
const ANNOUNCED: &str = "clusters";
/// Names of clusters in one announcement at most, bytes.
const MAX_ANNOUNCED_BYTES: usize = 16 * 1024;
/// Answers that came before their call returned, at most.
const MAX_EARLY: usize = 256;

thread_local! {
    /// Configurations at work in this VM, by root.
    static ROOTS: RefCell<HashMap<u32, Weak<Worker>>> = RefCell::default();
}

/// Discovery of every rule, and the calls that are out.
pub struct Scraper {
    discoveries: Vec<Discovery>,
    calls: HashMap<u32, (usize, Call)>,
    announced: HashMap<usize, u32>,
    early: Vec<u32>,
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
            calls: HashMap::new(),
            announced: HashMap::new(),
            early: Vec::new(),
        }
    }
}

/// Makes a configuration known, so that answers find it.
pub fn register(root: u32, worker: &Rc<Worker>) {
    ROOTS.with(|roots| {
        if let Ok(mut roots) = roots.try_borrow_mut() {
            roots.insert(root, Rc::downgrade(worker));
        }
    });
}

/// Forgets a configuration.
pub fn unregister(root: u32) {
    ROOTS.with(|roots| {
        if let Ok(mut roots) = roots.try_borrow_mut() {
            roots.remove(&root);
        }
    });
}

/// Adds a cluster to the list that the scraping VM reads.
pub fn announce(identity: &Identity, engine: usize, cluster: &str) {
    shared::update(&identity.rule_key(engine, ANNOUNCED, ""), |names| {
        let is_there = names
            .split(|byte| *byte == b'\n')
            .any(|name| name == cluster.as_bytes());
        if is_there || names.len().saturating_add(cluster.len()) >= MAX_ANNOUNCED_BYTES {
            return None;
        }
        Some([names, cluster.as_bytes(), b"\n"].concat())
    });
}

/// Time passed: hold or take the lease, make the calls that are due, publish what changed.
pub fn tick(worker: &Worker) {
    let now = now();
    if !holds_lease(&worker.identity, now) {
        return;
    }
    for engine in 0..worker.engines.len() {
        read_announcements(worker, engine);
        for call in due(worker, engine, now) {
            make(worker, engine, &call, now);
        }
        publish(worker, engine);
    }
}

fn holds_lease(identity: &Identity, now: Millis) -> bool {
    let mut holds = false;
    let is_written = shared::update(&identity.key("lease"), |current| {
        let claim = Lease::claim(current, identity.vm, now);
        holds = claim.is_some();
        claim
    });
    holds && is_written
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
    for name in names
        .split(|byte| *byte == b'\n')
        .filter_map(|name| core::str::from_utf8(name).ok())
    {
        if !name.is_empty() {
            discovery.watch(name);
        }
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
            timeout_ms,
        ),
    };
    let came_early = {
        let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() else {
            return;
        };
        match token {
            Ok(token) => match scraper.early.iter().position(|early| *early == token) {
                Some(at) => {
                    scraper.early.swap_remove(at);
                    true
                }
                None => {
                    scraper.calls.insert(token, (engine, call.clone()));
                    return;
                }
            },
            Err(_) => true,
        }
    };
    if came_early {
        take(worker, engine, call, Answer::Failed, now);
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
    let worker = ROOTS.with(|roots| roots.try_borrow().ok()?.get(&root)?.upgrade());
    if let Some(worker) = worker {
        answered(&worker, token, headers, body_size);
    }
}

fn answered(worker: &Worker, token: u32, headers: u32, body_size: u32) {
    let found = {
        let Ok(mut scraper) = worker.gateway.scraper.try_borrow_mut() else {
            return;
        };
        let found = scraper.calls.remove(&token);
        if found.is_none() && scraper.early.len() < MAX_EARLY {
            scraper.early.push(token);
        }
        found
    };
    let Some((engine, call)) = found else { return };
    let status = abi::header(Map::CallResponseHeaders, ":status");
    let status = status.and_then(|text| core::str::from_utf8(&text).ok()?.parse().ok());
    let size = usize::try_from(body_size).unwrap_or(0);
    let body = if size == 0 {
        Vec::new()
    } else {
        abi::buffer(Buffer::CallResponseBody, 0, size).unwrap_or_default()
    };
    let answer = match status {
        Some(status) if headers > 0 => Answer::Body {
            status,
            body: &body,
        },
        _ => Answer::Failed,
    };
    take(worker, engine, &call, answer, now());
    let is_quiet = worker
        .gateway
        .scraper
        .try_borrow()
        .is_ok_and(|scraper| scraper.calls.is_empty());
    if is_quiet {
        publish(worker, engine);
    }
}
