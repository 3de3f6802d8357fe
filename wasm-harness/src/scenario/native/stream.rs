//! One request's way through the core: what the gateway adapter does between callbacks and session.

use std::collections::BTreeMap;

use warmroute::config::{EndpointSource, RequestPlace};
use warmroute::endpoints::own::Ending;
use warmroute::pool::Served;
use warmroute::request::BodyEnd;
use warmroute::response::{is_event_stream, orca};
use warmroute::session::{Head, Session, Step};
use warmroute_scenario::{Body, GatewayKind, Host, Request, RequestOutcome, Response, first_of};

use super::{Open, PICK_HEADER, Player, Rule};
use crate::host::{HeaderMap, Health, UpstreamHost, header, host_list};
use crate::scenario::{answers, header_pairs};

const PREFILL_HEADER: &str = "x-prefiller-host-port";
const SUBSET_HEADER: &str = "x-gateway-destination-endpoint-subset";
const LOAD_FORMAT_HEADER: &str = "endpoint-load-metrics-format";
const LOAD_HEADER: &str = "endpoint-load-metrics";
const DECISION_HEADER: &str = "x-warmroute-decision";
/// A body is read in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

impl<'a> Player<'a> {
    pub(super) fn request(&mut self, request: &'a Request) {
        if request.worker != 0 {
            let error = "one worker is all that the core has".to_owned();
            self.outcome.errors.push(error);
        }
        let setup = &self.scenario.gateway;
        let body = request.body.as_ref().map(Body::bytes).unwrap_or_default();
        let first = [
            (":method", &*request.method),
            (":path", &*request.path),
            (":authority", request.authority()),
        ];
        let mut open = Open {
            request,
            rule: None,
            cluster: request.cluster.as_ref().unwrap_or(&setup.cluster).clone(),
            session: Session::default(),
            headers: header_pairs(&first, &request.headers),
            body,
            sent: 0,
            unread: 0,
            asked_for_load: false,
            outcome: RequestOutcome::default(),
        };
        self.begin(&mut open);
        self.send(&mut open, false);
        self.open.insert(request.name.clone(), open);
    }

    fn begin(&mut self, open: &mut Open<'a>) {
        take(&mut open.headers, PICK_HEADER);
        take(&mut open.headers, PREFILL_HEADER);
        let route = &self.scenario.gateway.route;
        let route = open.request.route.as_ref().unwrap_or(route);
        let selected = self.plugin.select(&RequestPlace {
            route: route.as_bytes(),
            cluster: open.cluster.as_bytes(),
            authority: open.request.authority().as_bytes(),
            consumer: header(&open.headers, "x-mse-consumer").unwrap_or_default(),
        });
        open.rule = selected.and_then(|id| self.rules.iter().position(|rule| rule.id == id));
        let Some(rule) = open.rule.and_then(|rule| self.rules.get_mut(rule)) else {
            if let Some(rule) = self.rules.first_mut() {
                open.session.no_rule(&mut rule.engine);
            }
            return;
        };
        rule.discovery.watch(&open.cluster);
        let config = rule.engine.config.clone();
        let candidates = match &config.endpoints {
            EndpointSource::Header(name) => header(&open.headers, name).map(<[u8]>::to_vec),
            _ => None,
        };
        let isolation = config.prompt.isolation_header.as_deref();
        let priority = config.overload.as_ref().map(|it| &*it.priority_header);
        let profile = config.profiles.as_ref();
        let profile = profile.and_then(|it| take(&mut open.headers, &it.header));
        let length = (open.request.body.is_some() && !open.request.chunked)
            .then_some(open.body.len() as u64);
        let head = Head {
            method: open.request.method.as_bytes(),
            path: open.request.path.as_bytes(),
            content_length: length,
            encoded: header(&open.headers, "content-encoding")
                .is_some_and(|value| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")),
            upgrade: header(&open.headers, "upgrade").is_some(),
            end_of_stream: open.body.is_empty() && open.request.trailers.is_none(),
            isolation: isolation.and_then(|name| header(&open.headers, name)),
            session: header(&open.headers, &config.session.header),
            subset: header(&open.headers, SUBSET_HEADER),
            candidates: candidates.as_deref(),
            priority: priority.and_then(|name| header(&open.headers, name)),
            profile: profile.as_deref(),
        };
        let step = open.session.head(&mut rule.engine, &open.cluster, &head);
        open.outcome.access_log = logged(rule, &open.session);
        let asks = config.orca && header(&open.headers, LOAD_FORMAT_HEADER).is_none();
        if asks && step == Step::Hold {
            open.asked_for_load = true;
            let pair = (LOAD_FORMAT_HEADER.into(), b"JSON".to_vec());
            open.headers.push(pair);
        }
    }

    pub(super) fn send(&mut self, open: &mut Open<'a>, rest: bool) {
        let plan = open.request.plan(open.sent, open.body.len(), rest);
        for (place, (range, last)) in plan.iter().enumerate() {
            open.sent = range.end;
            let is_cut = self.scenario.gateway.cuts_last_frame && *last && place > 0;
            if !open.session.is_reading() {
                continue;
            }
            let until = if is_cut { range.start } else { range.end };
            let unread = open.body.get(open.unread..until).unwrap_or_default();
            open.unread = until;
            let wants_more = unread
                .chunks(PIECE_BYTES)
                .all(|piece| open.session.body(piece));
            if !wants_more || *last {
                let end = if *last {
                    BodyEnd::Complete
                } else {
                    BodyEnd::Cut
                };
                self.decide(open, end);
            }
        }
        let is_over = open.request.trailers.is_some() && open.sent == open.body.len();
        if is_over && open.session.is_reading() {
            self.decide(open, BodyEnd::Complete);
        }
    }

    fn decide(&mut self, open: &mut Open<'a>, end: BodyEnd) {
        let now = self.now;
        self.prepare(open);
        let Some(rule) = open.rule.and_then(|rule| self.rules.get_mut(rule)) else {
            return;
        };
        let step = open.session.decide(&mut rule.engine, end, now, |_, _| {});
        open.outcome.access_log = logged(rule, &open.session);
        match step {
            Step::Steer { addresses, prefill } => self.steer(open, addresses, prefill),
            Step::Answer { refusal, .. } => {
                open.outcome.local_reply = Some(u32::from(refusal.status()));
            }
            Step::Hold | Step::Pass => {}
        }
    }

    fn steer(&self, open: &mut Open<'a>, list: String, prefill: Option<Box<str>>) {
        let picked = first_of(&list).to_owned();
        // Higress takes an override only where it names a usable host of the request's cluster.
        let is_usable = self.kind == GatewayKind::Envoy
            || hosts_of(&self.hosts, &open.cluster, &self.scenario.gateway.cluster)
                .iter()
                .any(|host| host.address == picked && host.health != Health::Unhealthy);
        open.outcome.picked = is_usable.then_some(picked);
        if self.kind == GatewayKind::Envoy {
            let pair = (PICK_HEADER.into(), list.into_bytes());
            open.headers.push(pair);
        }
        if let Some(address) = prefill {
            let pair = (PREFILL_HEADER.into(), address.as_bytes().to_vec());
            open.headers.push(pair);
        }
    }

    /// Brings what is known of a cluster up to date before a decision.
    fn prepare(&mut self, open: &Open<'a>) {
        let Some(rule) = open.rule.and_then(|rule| self.rules.get_mut(rule)) else {
            return;
        };
        let (engine, cluster, now) = (&mut rule.engine, &*open.cluster, self.now);
        if !engine.is_listing_due(cluster, now) {
            return;
        }
        match self.kind {
            GatewayKind::Higress if engine.config.endpoints == EndpointSource::Gateway => {
                let hosts = hosts_of(&self.hosts, cluster, &self.scenario.gateway.cluster);
                engine.take_gateway_hosts(cluster, &host_list(&hosts), now);
            }
            GatewayKind::Higress => {}
            GatewayKind::Envoy => {
                if let Some(bytes) = rule.snapshots.remove(cluster) {
                    engine.take_snapshot(cluster, &bytes, now);
                }
            }
        }
        engine.listing_seen(cluster, now);
    }

    pub(super) fn respond(&mut self, mut open: Open<'a>, response: &Response) {
        let mut headers = header_pairs(
            &[(":status", &response.status.to_string())],
            &response.headers,
        );
        let told = header(&headers, LOAD_HEADER).and_then(orca::parse);
        let picked = open.outcome.picked.as_deref();
        let served = Served {
            status: response.status,
            by: response.served_by.as_deref().or(picked),
            attempts: u32::try_from(response.attempts.unwrap_or(1)).ok(),
        };
        let is_stream = header(&headers, "content-type").is_some_and(is_event_stream);
        if let Some(rule) = open.rule.and_then(|rule| self.rules.get_mut(rule)) {
            let (engine, session) = (&mut rule.engine, &mut open.session);
            if session.is_sent() {
                if open.asked_for_load {
                    headers.retain(|(name, _)| name != LOAD_HEADER.as_bytes());
                }
                session.response_head(engine, &served, is_stream, self.now);
                if let Some(load) = told {
                    session.response_load(engine, &load, self.now);
                }
            }
            if let (true, Some(note)) = (engine.config.debug.header, session.note()) {
                headers.push((DECISION_HEADER.into(), note.as_bytes().to_vec()));
            }
            for (place, chunk) in response.body.iter().enumerate() {
                let ends = place + 1 == response.body.len() && !response.goes_on;
                session.response_body(engine, chunk.as_bytes(), ends, self.now);
            }
            if response.body.is_empty() && !response.goes_on {
                session.response_body(engine, &[], true, self.now);
            }
        }
        open.outcome.downstream_headers = texts(&headers);
        if response.goes_on {
            self.open.insert(open.request.name.clone(), open);
        } else {
            self.close(open);
        }
    }

    pub(super) fn close(&mut self, mut open: Open<'a>) {
        if let Some(rule) = open.rule.and_then(|rule| self.rules.get_mut(rule)) {
            let engine = &mut rule.engine;
            open.session.end(engine, Ending::Unknown, self.now);
        }
        self.note(open);
    }

    pub(super) fn note(&mut self, open: Open<'a>) {
        let mut outcome = open.outcome;
        outcome.body_untouched = true;
        outcome.hangs = open.session.is_reading() && open.sent == open.body.len();
        outcome.upstream_headers = texts(&open.headers);
        self.outcome
            .requests
            .insert(open.request.name.clone(), outcome);
    }
}

/// Takes a header away; its value, if it was there.
fn take(headers: &mut HeaderMap, name: &str) -> Option<Vec<u8>> {
    let value = header(headers, name)?.to_vec();
    headers.retain(|(key, _)| key != name.as_bytes());
    Some(value)
}

/// What the access log is told.
fn logged(rule: &Rule, session: &Session) -> Option<String> {
    let note = session.note().filter(|_| rule.engine.config.access_log);
    note.map(str::to_owned)
}

/// A cluster's hosts; `default` is the gateway's own.
fn hosts_of(hosts: &[Host], cluster: &str, default: &str) -> Vec<UpstreamHost> {
    let hosts = hosts.iter().filter(|host| host.is_in(cluster, default));
    hosts.map(answers::upstream_host).collect()
}

fn texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}
