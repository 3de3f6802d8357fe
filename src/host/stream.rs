//! One request's callbacks.
//!
//! Each callback turns what the host says into an event of the [`Session`] and its step into host calls.
//! Whatever goes wrong here lets the request go on as if the filter were not there.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::abi::{self, Buffer, Map};
use super::root::Worker;
use super::shared::Scope;
use super::{debug_page, exchange, gateway, handover, headers, now};
use crate::clock::Millis;
use crate::config::RequestPlace;
use crate::endpoints::own::Ending;
use crate::engine::Engine;
use crate::overload::{RETRY_AFTER_S, Refusal};
use crate::pool::Served;
use crate::request::{BlockHash, BodyEnd};
use crate::session::{Session, Step};

/// A body is fetched from the host in pieces of this size, so that one large callback does not need as
/// much memory again.
const PIECE_BYTES: usize = 64 * 1024;

/// The response header that says what was decided.
const DECISION_HEADER: &str = "x-warmroute-decision";

/// The property that says the same to the access log.
const DECISION_PROPERTY: &str = "warmroute_decision";

/// One request.
pub struct Stream {
    worker: Option<Rc<Worker>>,
    /// Which engine; `None` = the request is none of our business.
    engine: Option<usize>,
    session: Session,
    cluster: String,
    asked_for_load: bool,
    has_ended: bool,
}

impl Stream {
    /// A stream of a configuration; without one it lets everything pass.
    pub fn new(worker: Option<Rc<Worker>>) -> Self {
        Self {
            worker,
            engine: None,
            session: Session::default(),
            cluster: String::new(),
            asked_for_load: false,
            has_ended: false,
        }
    }

    /// Runs `event` with the session and its engine; `None` when there is no engine, or it is busy.
    fn with<R>(&mut self, event: impl FnOnce(&mut Session, &mut Engine) -> R) -> Option<R> {
        let worker = self.worker.as_ref()?;
        let mut engine = worker.engines.get(self.engine?)?.try_borrow_mut().ok()?;
        Some(event(&mut self.session, &mut engine))
    }

    /// `None` where the request is none of our business.
    fn begin(&mut self, end_of_stream: bool) -> Option<Action> {
        let worker = Rc::clone(self.worker.as_ref()?);
        headers::strip_picks();
        let place = headers::Position::read(!worker.plugin.rules.is_empty());
        let selected = worker.engine_for(&RequestPlace {
            route: &place.route,
            cluster: place.cluster.as_bytes(),
            authority: &place.authority,
            consumer: &place.consumer,
        });
        let Some(selected) = selected else {
            let mut first = worker.engines.first()?.try_borrow_mut().ok()?;
            self.session.no_rule(&mut first);
            return None;
        };
        self.engine = Some(selected);
        worker.watch(selected, &place.cluster);
        self.cluster = place.cluster;
        let (values, orca, limit) = {
            let engine = worker.engines.get(selected)?.try_borrow().ok()?;
            if debug_page::answer(&worker, &engine) {
                return Some(Action::Pause);
            }
            let config = &engine.config;
            let limit = config.prompt.max_body_bytes;
            (headers::Values::read(config), config.orca, limit)
        };
        let head = values.head(end_of_stream);
        let cluster = core::mem::take(&mut self.cluster);
        let step = self.with(|session, engine| session.head(engine, &cluster, &head));
        self.cluster = cluster;
        if step != Some(Step::Hold) {
            self.log_access();
            return None;
        }
        self.asked_for_load = orca && headers::ask_for_load();
        gateway::raise_buffer_limit(limit);
        Some(Action::Pause)
    }

    /// Reads what is new of the body; `true` when the decision is due.
    fn read_body(&mut self, size: usize, end_of_stream: bool) -> bool {
        while let Some(piece) = self.next_piece(size) {
            if !self.session.body(&piece) {
                return true;
            }
        }
        end_of_stream
    }

    fn next_piece(&self, size: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(self.session.received()).ok()?;
        let left = size.checked_sub(from).filter(|left| *left > 0)?;
        let piece = abi::buffer(Buffer::RequestBody, from, left.min(PIECE_BYTES)).ok()?;
        (!piece.is_empty()).then_some(piece)
    }

    fn decide(&mut self, end: BodyEnd) -> Action {
        let Some(worker) = self.worker.clone() else {
            return Action::Continue;
        };
        let started_ns = abi::now_ns();
        let cluster = core::mem::take(&mut self.cluster);
        let rule = self.engine.unwrap_or_default();
        let step = self.with(|session, engine| {
            let now = now();
            session.decide(engine, end, now, |engine, blocks| {
                let scope = worker.identity.scope(rule, &cluster);
                prepare(&worker, scope, engine, blocks, now);
            })
        });
        self.cluster = cluster;
        self.publish();
        let action = self.apply(step.unwrap_or(Step::Pass));
        let took_us = abi::now_ns().saturating_sub(started_ns) / 1_000;
        self.with(|_, engine| Session::decision_took(engine, took_us));
        self.keep_decision();
        self.log_sample();
        self.log_access();
        action
    }

    /// Does what was decided. What the gateway refuses is taken back, and the request goes its way.
    fn apply(&mut self, step: Step) -> Action {
        match step {
            Step::Hold | Step::Pass => {}
            Step::Steer { addresses, prefill } => {
                let named = prefill.as_deref().map_or(Ok(()), headers::name_prefill);
                if named.and_then(|()| gateway::steer(&addresses)).is_err() {
                    headers::strip_picks();
                    self.with(|session, engine| session.steer_failed(engine, now()));
                }
            }
            Step::Answer { refusal, body } => {
                let mut headers = vec![("content-type", "application/json")];
                if refusal == Refusal::Overloaded {
                    headers.push(("retry-after", RETRY_AFTER_S));
                }
                if abi::respond(refusal.status(), &headers, &body).is_ok() {
                    return Action::Pause;
                }
                self.with(Session::answer_failed);
            }
        }
        Action::Continue
    }

    /// Tells the access log what was decided, where it is asked for.
    fn log_access(&mut self) {
        let is_asked = self.with(|_, engine| engine.config.access_log);
        if let (Some(true), Some(note)) = (is_asked, self.session.note()) {
            let _ = abi::set_property(DECISION_PROPERTY, note.as_bytes());
        }
    }

    /// Tells the other workers what this event changed.
    fn publish(&mut self) {
        let (Some(worker), Some(rule)) = (self.worker.clone(), self.engine) else {
            return;
        };
        let cluster = core::mem::take(&mut self.cluster);
        self.with(|_, engine| {
            exchange::publish(worker.identity.scope(rule, &cluster), engine, now());
        });
        self.cluster = cluster;
    }

    fn keep_decision(&mut self) {
        let cluster = core::mem::take(&mut self.cluster);
        self.with(|session, engine| engine.decided(&cluster, session.note(), now()));
        self.cluster = cluster;
    }

    fn log_sample(&mut self) {
        let is_sampled = self.with(|_, engine| engine.is_sampled()).unwrap_or(false);
        if let (true, Some(note)) = (is_sampled, self.session.note()) {
            abi::log(log::Level::Info, &format!("warmroute: {note}"));
        }
    }

    fn respond(&mut self) {
        let status = abi::header(Map::ResponseHeaders, ":status");
        let status = status
            .and_then(|text| core::str::from_utf8(&text).ok()?.parse().ok())
            .unwrap_or(0);
        if self.session.is_sent() {
            let by = abi::property("upstream\0address");
            let attempts = abi::property("upstream\0request_attempt_count");
            let kind = abi::header(Map::ResponseHeaders, "content-type").unwrap_or_default();
            let served = Served {
                status,
                by: by
                    .as_deref()
                    .and_then(|text| core::str::from_utf8(text).ok())
                    .filter(|text| !text.is_empty()),
                attempts: attempts.and_then(|bytes| gateway::integer(&bytes)),
            };
            let is_stream = crate::response::is_event_stream(&kind);
            let load = headers::told_load(!self.asked_for_load);
            self.with(|session, engine| {
                session.response_head(engine, &served, is_stream, now());
                if let Some(load) = load {
                    session.response_load(engine, &load, now());
                }
            });
        }
        let shows = self
            .with(|_, engine| engine.config.debug.header)
            .unwrap_or(false);
        if let (true, Some(note)) = (shows, self.session.note()) {
            let _ = abi::set_header(Map::ResponseHeaders, DECISION_HEADER, note.as_bytes());
        }
    }

    fn end(&mut self, ending: Ending) {
        if core::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let Some(worker) = self.worker.clone() else {
            return;
        };
        self.with(|session, engine| {
            session.end(engine, ending, now());
            worker.flush(engine);
        });
        self.publish();
    }
}

/// Brings what is known of a cluster up to date before a decision.
fn prepare(
    worker: &Worker,
    scope: Scope<'_>,
    engine: &mut Engine,
    blocks: &[BlockHash],
    now: Millis,
) {
    if engine.is_listing_due(scope.cluster, now) {
        gateway::refresh(worker, scope, engine, now);
        handover::take(scope, engine, now);
        exchange::join(scope, engine, now);
        engine.listing_seen(scope.cluster, now);
    }
    exchange::hear(scope, engine, blocks, now);
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.begin(end_of_stream).unwrap_or(Action::Continue)
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if !self.session.is_reading() {
            return Action::Continue;
        }
        if !self.read_body(size, end_of_stream) {
            return Action::Pause;
        }
        self.decide(if end_of_stream {
            BodyEnd::Complete
        } else {
            BodyEnd::Cut
        })
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if self.session.is_reading() {
            self.decide(BodyEnd::Complete)
        } else {
            Action::Continue
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.respond();
        if end_of_stream {
            self.with(|session, engine| session.response_body(engine, &[], true, now()));
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.session.is_sent() {
            let chunk = abi::buffer(Buffer::ResponseBody, 0, size).unwrap_or_default();
            self.with(|session, engine| {
                session.response_body(engine, &chunk, end_of_stream, now());
            });
            self.publish();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        self.with(|session, engine| session.response_body(engine, &[], true, now()));
        Action::Continue
    }

    fn on_log(&mut self) {
        let ending = if self.session.is_sent() {
            gateway::how_it_ended()
        } else {
            Ending::Unknown
        };
        self.end(ending);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end(Ending::Unknown);
    }
}
