//! One request, from its headers to its end: a machine without I/O.
//!
//! ```text
//! new --head--> Passed            left to the gateway, the reason counted
//!        \----> Reading --body--> Passed
//!                         \-----> Sent --response--> ... --end--> Over
//! ```
//!
//! Invariants
//! - every event is accepted in every state: a host may call in any order, or skip calls;
//! - what a request counted at an endpoint is given back exactly once, when the session ends or is dropped by
//!   [`Session::end`];
//! - nothing of a body is kept: it is hashed as it comes.
//!
//! Cost: O(bytes) over all body events; memory O(blocks).

use core::mem;
use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Millis;
use crate::config::EndpointSource;
use crate::endpoints::load::Load;
use crate::endpoints::own::Ending;
use crate::engine::Engine;
use crate::fallback::Fallback;
use crate::pool::{Question, Sent, Served};
use crate::request::{Api, BodyEnd, Feed, Prompt, PromptReader, Seed, Unreadable};
use crate::response::usage::{Shape, UsageScan};
use crate::telemetry::{Counter, Histogram};

/// A request's headers, as far as they matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`, with its query.
    pub path: &'a [u8],
    /// `content-length`, when it is a number.
    pub content_length: Option<u64>,
    /// `content-encoding` is set to something but `identity`.
    pub encoded: bool,
    /// `upgrade` is set.
    pub upgrade: bool,
    /// No body follows.
    pub end_of_stream: bool,
    /// Value of the configured isolation header.
    pub isolation: Option<&'a [u8]>,
    /// Value of the configured session header.
    pub session: Option<&'a [u8]>,
    /// Value of the subset header: a comma list of addresses.
    pub subset: Option<&'a [u8]>,
    /// Value of the header in which a control plane passes the endpoints: a comma list of addresses.
    pub candidates: Option<&'a [u8]>,
}

/// Addresses that a subset may name at most.
const MAX_SUBSET: usize = 1024;
/// Of a longer list of addresses only the beginning counts.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// What to do with a request after an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Hold it: more of its body is needed.
    Hold,
    /// Let it go where the gateway's load balancing sends it.
    Pass,
    /// Send it there: addresses in order of preference.
    Steer(String),
}

/// One request.
#[derive(Default)]
pub struct Session {
    state: State,
    cluster: Box<str>,
    shape: Option<Shape>,
    /// For people: what was decided and why.
    note: Option<String>,
}

#[derive(Default)]
enum State {
    #[default]
    Passed,
    Reading(Box<Reading>),
    Sent(Box<Sent>, Option<Box<UsageScan>>),
}

struct Reading {
    reader: PromptReader,
    isolation: Option<Vec<u8>>,
    session: Option<u64>,
    subset: Option<String>,
    candidates: Option<String>,
    content_length: Option<u64>,
    received: u64,
}

impl Session {
    /// A request to a cluster begins.
    pub fn head(&mut self, engine: &mut Engine, cluster: &str, head: &Head<'_>) -> Step {
        engine.telemetry.add(Counter::Requests, 1);
        self.cluster = cluster.into();
        match start(engine, head) {
            Ok((api, reading)) => {
                self.shape = Some(if api == Api::Generate {
                    Shape::MetaInfo
                } else {
                    Shape::Usage
                });
                self.state = State::Reading(Box::new(reading));
                Step::Hold
            }
            Err(reason) => self.pass(engine, reason),
        }
    }

    /// A request that no rule is for; `engine` is any of the configuration's, to count it.
    pub fn no_rule(&mut self, engine: &mut Engine) {
        engine.telemetry.add(Counter::Requests, 1);
        self.pass(engine, Fallback::NoRule);
    }

    /// Whether body events are wanted.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading(_))
    }

    /// Bytes of body seen so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        match &self.state {
            State::Reading(reading) => reading.received,
            _ => 0,
        }
    }

    /// More of the body. `false` when no more of it is wanted.
    pub fn body(&mut self, chunk: &[u8]) -> bool {
        let State::Reading(reading) = &mut self.state else {
            return false;
        };
        reading.received = reading.received.saturating_add(chunk.len() as u64);
        reading.reader.feed(chunk) == Feed::More
    }

    /// The body is complete, or no more of it is wanted (`end` says which): decide.
    pub fn decide(&mut self, engine: &mut Engine, end: BodyEnd, now: Millis) -> Step {
        let State::Reading(reading) = mem::take(&mut self.state) else {
            return Step::Pass;
        };
        match self.choose(engine, *reading, end, now) {
            Ok(step) => step,
            Err(reason) => self.pass(engine, reason),
        }
    }

    fn choose(
        &mut self,
        engine: &mut Engine,
        reading: Reading,
        end: BodyEnd,
        now: Millis,
    ) -> Result<Step, Fallback> {
        let is_short = reading
            .content_length
            .is_some_and(|length| reading.received < length);
        if end == BodyEnd::Complete && is_short {
            return Err(Fallback::Truncated);
        }
        let seed = Seed {
            isolation: reading.isolation.as_deref(),
            model_override: None,
        };
        let mut prompt =
            reading
                .reader
                .finish(seed, end)
                .map_err(|unreadable| match unreadable {
                    Unreadable::Malformed => Fallback::Malformed,
                    Unreadable::NoPrompt => Fallback::NoPrompt,
                })?;
        let blocks = mem::take(&mut prompt.blocks);
        let Some((pool, config, telemetry, rng)) = engine.pool(&self.cluster) else {
            return Err(Fallback::NoEndpoints);
        };
        if let Some(cut) = prompt.cut {
            telemetry.add(Counter::Cut(cut), 1);
        }
        let subset: Option<Vec<&str>> = reading.subset.as_deref().map(addresses_in);
        if matches!(config.endpoints, EndpointSource::Header(_)) {
            let named = reading
                .candidates
                .as_deref()
                .map(addresses_in)
                .unwrap_or_default();
            pool.name(&named, config, now);
        }
        let question = Question {
            prompt: &prompt,
            session: reading.session.or(prompt.session),
            subset: subset.as_deref(),
        };
        let sent = pool.decide(&question, blocks, config, rng, telemetry, now)?;
        telemetry.add(Counter::Decision(sent.branch), 1);
        telemetry.add(Counter::PromptTokens, whole(sent.prompt_tokens));
        telemetry.add(Counter::PredictedHitTokens, whole(sent.matched_tokens));
        let addresses = pool.ranking();
        if config.debug.header || config.debug.sample_rate > 0.0 {
            self.note = Some(note(&sent, &prompt, &addresses, &pool.costs()));
        }
        self.state = State::Sent(Box::new(sent), None);
        Ok(Step::Steer(addresses))
    }

    fn pass(&mut self, engine: &mut Engine, reason: Fallback) -> Step {
        engine.telemetry.add(Counter::Fallback(reason), 1);
        if engine.config.debug.header {
            self.note = Some(format!("fallback={}", reason.name()));
        }
        self.state = State::Passed;
        Step::Pass
    }

    /// The pick could not be handed to the gateway: what was counted is given back.
    pub fn steer_failed(&mut self, engine: &mut Engine, now: Millis) {
        self.end(engine, Ending::Unknown, now);
        self.pass(engine, Fallback::HostCallFailed);
    }

    /// What was decided and why, for people.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether response events are wanted.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        matches!(self.state, State::Sent(..))
    }

    /// Response headers came.
    pub fn response_head(
        &mut self,
        engine: &mut Engine,
        served: &Served<'_>,
        event_stream: bool,
        now: Millis,
    ) {
        let State::Sent(sent, usage) = &mut self.state else {
            return;
        };
        let Some((pool, config, telemetry, _)) = engine.pool(&self.cluster) else {
            return;
        };
        pool.served(sent, served, config, telemetry, now);
        if (200..300).contains(&served.status) {
            let shape = self.shape.unwrap_or(Shape::Usage);
            *usage = Some(Box::new(UsageScan::new(shape, event_stream)));
            return;
        }
        // An error answer has no first token, and its end says nothing new.
        let ending = if served.status >= 500 {
            Ending::Failed
        } else {
            Ending::Served
        };
        self.end(engine, ending, now);
    }

    /// The engine told its load in the response's headers.
    pub fn response_load(&mut self, engine: &mut Engine, load: &Load, now: Millis) {
        let State::Sent(sent, _) = &self.state else {
            return;
        };
        if let Some((pool, ..)) = engine.pool(&self.cluster) {
            pool.told_load(sent, load, now);
        }
    }

    /// A chunk of the response's body; looked at, never held.
    pub fn response_body(&mut self, engine: &mut Engine, chunk: &[u8], end: bool, now: Millis) {
        let State::Sent(sent, usage) = &mut self.state else {
            return;
        };
        let Some((pool, config, telemetry, _)) = engine.pool(&self.cluster) else {
            return;
        };
        if !chunk.is_empty() {
            pool.first_token(sent, telemetry, now);
        }
        let Some(scan) = usage else { return };
        scan.push(chunk);
        if end {
            let told = scan.usage();
            pool.usage(
                sent,
                told.prompt_tokens,
                told.cached_tokens,
                config,
                telemetry,
                now,
            );
            self.end(engine, Ending::Served, now);
        }
    }

    /// The request is over, however it ended; later calls do nothing.
    pub fn end(&mut self, engine: &mut Engine, ending: Ending, now: Millis) {
        if let State::Sent(sent, _) = mem::take(&mut self.state)
            && let Some((pool, config, telemetry, _)) = engine.pool(&self.cluster)
        {
            pool.finish(*sent, ending, config, telemetry, now);
        }
    }

    /// Records how long a decision took.
    pub fn decision_took(engine: &mut Engine, micros: u64) {
        engine.telemetry.observe(Histogram::DecisionUs, micros);
    }
}

/// Whether a request's body is worth holding.
fn start(engine: &Engine, head: &Head<'_>) -> Result<(Api, Reading), Fallback> {
    if head.upgrade {
        return Err(Fallback::Upgrade);
    }
    if head.end_of_stream || head.method != b"POST" || head.content_length == Some(0) {
        return Err(Fallback::NoBody);
    }
    let api = Api::of_path(head.path).ok_or(Fallback::UnsupportedCall)?;
    if head.encoded {
        return Err(Fallback::Encoded);
    }
    let limit = u64::from(engine.config.prompt.max_body_bytes);
    if head.content_length.is_some_and(|length| length > limit) {
        return Err(Fallback::TooLarge);
    }
    let list = |value: &[u8]| {
        let value = value.get(..MAX_HEADER_BYTES).unwrap_or(value);
        String::from_utf8_lossy(value).into_owned()
    };
    let reading = Reading {
        reader: PromptReader::new(api, Rc::clone(&engine.plan)),
        isolation: head.isolation.map(bounded),
        session: head.session.filter(|value| !value.is_empty()).map(xxh3_64),
        subset: head.subset.map(list),
        candidates: head.candidates.map(list),
        content_length: head.content_length,
        received: 0,
    };
    Ok((api, reading))
}

fn addresses_in(list: &str) -> Vec<&str> {
    list.split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty())
        .take(MAX_SUBSET)
        .collect()
}

/// A value to tell prompts apart by: itself, or its hash where it is very long.
fn bounded(value: &[u8]) -> Vec<u8> {
    if value.len() <= 256 {
        value.to_vec()
    } else {
        xxhash_rust::xxh3::xxh3_128(value).to_le_bytes().to_vec()
    }
}

fn whole(tokens: f64) -> u64 {
    u64::from(crate::number::to_u32(tokens))
}

fn note(sent: &Sent, prompt: &Prompt, addresses: &str, costs: &[(&str, f64)]) -> String {
    let endpoint = addresses.split(',').next().unwrap_or_default();
    let mut text = format!(
        "endpoint={endpoint};branch={};blocks={}/{};tokens={}/{}",
        sent.branch.name(),
        sent.matched_blocks,
        sent.total_blocks(),
        whole(sent.matched_tokens),
        whole(sent.prompt_tokens),
    );
    if let Some(cut) = prompt.cut {
        text.push_str(";cut=");
        text.push_str(cut.name());
    }
    for (n, (address, cost)) in costs.iter().enumerate() {
        // A weighted sum is at most a few units: it is shown in thousandths.
        let (label, shown) = if *cost < 0.0 {
            (";score_milli=", whole(-cost * 1000.0))
        } else {
            (";costs=", whole(*cost))
        };
        text.push_str(if n == 0 { label } else { "," });
        text.push_str(&format!("{address}:{shown}"));
    }
    text
}
