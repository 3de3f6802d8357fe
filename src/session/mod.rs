//! One request, from its headers to its end: a machine without I/O.
//!
//! ```text
//! new --head--> Passed            left to the gateway, the reason counted
//!        \----> Reading --body--> Passed, or answered by us
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

mod note;
mod start;

use core::mem;

use crate::clock::Millis;
use crate::config::EndpointSource;
use crate::endpoints::load::Load;
use crate::endpoints::own::Ending;
use crate::engine::Engine;
use crate::fallback::Fallback;
use crate::overload::Refusal;
use crate::pool::{Question, Sent, Served, Unsent};
use crate::request::{Api, BlockHash, BodyEnd, Feed, Prompt};
use crate::response::usage::{Shape, UsageScan};
use crate::telemetry::{Counter, Histogram};
use note::{note, whole};
pub use start::Head;
use start::{Asked, Reading, addresses_in, start};

/// What to do with a request after an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Hold it: more of its body is needed.
    Hold,
    /// Let it go where the gateway's load balancing sends it.
    Pass,
    /// Send it there.
    Steer {
        /// Addresses in order of preference.
        addresses: String,
        /// Who computes its prompt for the first of them.
        prefill: Option<Box<str>>,
    },
    /// Answer it in the engines' stead.
    Answer {
        /// Why; says the status.
        refusal: Refusal,
        /// The body.
        body: String,
    },
}

/// One request.
#[derive(Default)]
pub struct Session {
    state: State,
    cluster: Box<str>,
    api: Option<Api>,
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

impl Session {
    /// A request to a cluster begins.
    pub fn head(&mut self, engine: &mut Engine, cluster: &str, head: &Head<'_>) -> Step {
        engine.telemetry.add(Counter::Requests, 1);
        self.cluster = cluster.into();
        match start(engine, head) {
            Ok(reading) => {
                self.api = Some(reading.api);
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
    /// `prepare` gets the prompt's blocks before, to bring what is known of the cluster up to date.
    pub fn decide(
        &mut self,
        engine: &mut Engine,
        end: BodyEnd,
        now: Millis,
        prepare: impl FnOnce(&mut Engine, &[BlockHash]),
    ) -> Step {
        let State::Reading(reading) = mem::take(&mut self.state) else {
            return Step::Pass;
        };
        let api = reading.api;
        let read = reading.finish(end);
        if let Ok((prompt, _)) = &read {
            prepare(engine, &prompt.blocks);
        }
        let choice = read.map_err(Into::into);
        match choice.and_then(|(prompt, asked)| self.choose(engine, prompt, &asked, now)) {
            Ok(step) => step,
            Err(Unsent::Overloaded) => self.refuse(engine, Refusal::Overloaded, api),
            Err(Unsent::Nobody) if self.may_refuse(engine, now) => {
                self.refuse(engine, Refusal::NoneEligible, api)
            }
            Err(Unsent::Nobody) => self.pass(engine, Fallback::NoneEligible),
            Err(Unsent::Left(reason)) => self.pass(engine, reason),
        }
    }

    fn may_refuse(&self, engine: &mut Engine, now: Millis) -> bool {
        let pool = engine.pool(&self.cluster);
        pool.is_some_and(|(pool, config, ..)| config.overload.is_some() && pool.is_settled(now))
    }

    fn choose(
        &mut self,
        engine: &mut Engine,
        mut prompt: Prompt,
        asked: &Asked,
        now: Millis,
    ) -> Result<Step, Unsent> {
        let blocks = mem::take(&mut prompt.blocks);
        let Some((pool, config, telemetry, rng)) = engine.pool(&self.cluster) else {
            return Err(Fallback::NoEndpoints.into());
        };
        if let Some(cut) = prompt.cut {
            telemetry.add(Counter::Cut(cut), 1);
        }
        let subset: Option<Vec<&str>> = asked.subset.as_deref().map(addresses_in);
        if matches!(config.endpoints, EndpointSource::Header(_)) {
            let named = asked.candidates.as_deref().map(addresses_in);
            pool.name(&named.unwrap_or_default(), config, now);
        }
        let chosen = config.profiles.as_ref().zip(asked.profile);
        let chosen = chosen.and_then(|(choice, place)| choice.allow.get(place));
        let question = Question {
            prompt: &prompt,
            session: asked.session.or(prompt.session),
            subset: subset.as_deref(),
            pick: chosen.map_or(&config.pick, |(_, options)| options),
            limits: config.overload.as_ref().filter(|_| asked.sheddable),
        };
        let sent = pool.decide(&question, blocks, config, rng, telemetry, now)?;
        telemetry.add(Counter::Decision(sent.branch), 1);
        telemetry.add(Counter::PromptTokens, whole(sent.prompt_tokens));
        telemetry.add(Counter::PredictedHitTokens, whole(sent.matched_tokens));
        let addresses = pool.ranking();
        let debug = &config.debug;
        let is_debugged = debug.header || debug.sample_rate > 0.0 || debug.page.is_some();
        if is_debugged || config.access_log {
            self.note = Some(note(&sent, &prompt, &addresses, pool, is_debugged));
        }
        let prefill = pool.prefill_address(&sent).map(Into::into);
        self.state = State::Sent(Box::new(sent), None);
        Ok(Step::Steer { addresses, prefill })
    }

    fn pass(&mut self, engine: &mut Engine, reason: Fallback) -> Step {
        engine.telemetry.add(Counter::Fallback(reason), 1);
        self.note_outcome(engine, "fallback", reason.name());
        self.state = State::Passed;
        Step::Pass
    }

    fn refuse(&mut self, engine: &mut Engine, refusal: Refusal, api: Api) -> Step {
        engine.telemetry.add(Counter::Answered(refusal), 1);
        self.note_outcome(engine, "answered", refusal.name());
        Step::Answer {
            refusal,
            body: refusal.body(api),
        }
    }

    fn note_outcome(&mut self, engine: &Engine, what: &str, why: &str) {
        let debug = &engine.config.debug;
        if debug.header || debug.page.is_some() || engine.config.access_log {
            self.note = Some(format!("{what}={why}"));
        }
    }

    /// The pick could not be handed to the gateway: what was counted is given back.
    pub fn steer_failed(&mut self, engine: &mut Engine, now: Millis) {
        self.end(engine, Ending::Unknown, now);
        self.pass(engine, Fallback::HostCallFailed);
    }

    /// The gateway took no answer of ours: the request goes its way.
    pub fn answer_failed(&mut self, engine: &mut Engine) {
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
            let shape = if self.api == Some(Api::Generate) {
                Shape::MetaInfo
            } else {
                Shape::Usage
            };
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
            pool.first_token(sent, config, telemetry, now);
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
