//! The core alone, compiled for this machine: how long a decision's parts take, and a whole one.
//!
//! The parts are those of [`super::parts`]. The whole is a request's way through engine and session, from its
//! headers to the pick, with its own prompt decided before; no host and no copies between host and guest are
//! in it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use warmroute::clock::Millis;
use warmroute::config::Plugin;
use warmroute::endpoints::own::Ending;
use warmroute::engine::Engine;
use warmroute::pool::Served;
use warmroute::request::{Api, BodyEnd};
use warmroute::session::{Head, Session, Step};
use warmroute_parts::{PIECE_BYTES, Parts};

use super::body::body;
use super::case::{ANSWER, CLUSTER, Case};
use super::fleet;
use crate::host::{Profile, host_list};

/// The fastest of so many runs counts at least, and of all that this time has room for.
const RUNS: usize = 50;
const RUNS_FOR: Duration = Duration::from_millis(50);
const NOW: Millis = Millis(1_700_000_000_000);

/// Nanoseconds of a decision and its parts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Native {
    /// Taking the body apart.
    pub parse_ns: u64,
    /// Cutting the prompt into blocks, hashing and chaining them.
    pub hash_ns: u64,
    /// Matching the blocks for all endpoints.
    pub match_ns: u64,
    /// Recording them at one endpoint, which holds them.
    pub record_ns: u64,
    /// From headers to pick.
    pub whole_ns: u64,
}

/// Measures a case.
///
/// # Errors
/// The body has no prompt, or the request is not steered.
pub fn measure(case: &Case) -> Result<Native> {
    let api = Api::of_path(case.text.path().as_bytes()).context("a call with a prompt")?;
    let body = body(case.text, case.bytes, 1);
    let mut parts = Parts::new(api, body).context("a prompt")?;
    let parse_ns = timed(|| drop(black_box(parts.parse())))?;
    let read_ns = timed(|| drop(black_box(parts.read())))?;
    parts.hold(u16::try_from(case.hosts)?);
    Ok(Native {
        parse_ns,
        hash_ns: read_ns.saturating_sub(parse_ns),
        match_ns: timed(|| {
            black_box(parts.find());
        })?,
        record_ns: timed(|| parts.record())?,
        whole_ns: whole(case)?,
    })
}

fn timed(mut part: impl FnMut()) -> Result<u64> {
    fastest(|| {
        let started = Instant::now();
        part();
        Ok(started.elapsed())
    })
}

/// Nanoseconds of the fastest run; a run says itself how long it took.
fn fastest(mut run: impl FnMut() -> Result<Duration>) -> Result<u64> {
    let (mut fastest, mut all) = (Duration::MAX, Duration::ZERO);
    let mut runs = 0;
    while runs < RUNS || all < RUNS_FOR {
        let took = run()?;
        fastest = fastest.min(took);
        all += took;
        runs += 1;
    }
    Ok(u64::try_from(fastest.as_nanos())?)
}

fn whole(case: &Case) -> Result<u64> {
    let hosts = fleet::hosts(case.hosts, 0);
    let plugin = Plugin::parse(case.config(&hosts).as_bytes())
        .map_err(|error| anyhow!("the configuration was refused: {error:?}"))?;
    let (_, config) = plugin.configs().next().context("a configuration")?;
    let mut engine = Engine::new(config.clone(), 7);
    if case.gateway == Profile::Higress {
        engine.take_gateway_hosts(CLUSTER, &host_list(&hosts), NOW);
    }
    engine.listing_seen(CLUSTER, NOW);
    let body = body(case.text, case.bytes, 1);
    fastest(|| request(&mut engine, case, &body))
}

/// A request with its answer; the time until the pick.
fn request(engine: &mut Engine, case: &Case, body: &[u8]) -> Result<Duration> {
    let head = Head {
        method: b"POST",
        path: case.text.path().as_bytes(),
        content_length: Some(body.len() as u64),
        ..Head::default()
    };
    let started = Instant::now();
    let mut session = Session::default();
    session.head(engine, CLUSTER, &head);
    for piece in body.chunks(PIECE_BYTES) {
        session.body(piece);
    }
    let step = session.decide(engine, BodyEnd::Complete, NOW);
    let took = started.elapsed();
    let Step::Steer { addresses, .. } = step else {
        anyhow::bail!("the request was left to the gateway: {step:?}");
    };
    let served = Served {
        status: 200,
        by: addresses.split(',').next(),
        attempts: Some(1),
    };
    session.response_head(engine, &served, false, NOW);
    session.response_body(engine, ANSWER, true, NOW);
    ensure!(!session.is_sent(), "the answer ended the request");
    session.end(engine, Ending::Served, NOW);
    Ok(took)
}
