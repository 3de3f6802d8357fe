//! One request's way through a VM of the harness: its parts go in, what both sides see comes out.

use std::collections::BTreeMap;

use warmroute_scenario::{Body, Request, RequestOutcome, Response, first_of};

use super::{Open, Player};
use crate::host::{HeaderMap, Seen, StreamId, StreamSpec, Trap, Vm};
use crate::scenario::header_pairs;

impl<'a> Player<'a> {
    pub(super) fn request(&mut self, request: &'a Request) -> Result<(), Trap> {
        let setup = &self.scenario.gateway;
        let spec = StreamSpec {
            route: request.route.as_ref().unwrap_or(&setup.route).clone(),
            cluster: request.cluster.as_ref().unwrap_or(&setup.cluster).clone(),
            ..StreamSpec::default()
        };
        let worker = request.worker;
        let Some(vm) = self.vms.get_mut(worker) else {
            self.outcome.errors.push(format!("no worker {worker}"));
            return Ok(());
        };
        let stream = vm.open_stream(spec)?;
        let body = request.body.as_ref().map(Body::bytes).unwrap_or_default();
        let first = [
            (":method", &*request.method),
            (":path", &*request.path),
            (":authority", request.authority()),
        ];
        let mut headers = header_pairs(&first, &request.headers);
        if request.body.is_some() && !request.chunked {
            headers.push((
                b"content-length".to_vec(),
                body.len().to_string().into_bytes(),
            ));
        }
        let ends = body.is_empty() && request.trailers.is_none();
        vm.request_headers(stream, headers, ends)?;
        let mut open = Open {
            worker,
            stream,
            request,
            body,
            sent: 0,
        };
        if !ends {
            self.send(&mut open, false)?;
        }
        self.open.insert(request.name.clone(), open);
        Ok(())
    }

    /// Sends body chunks by the request's plan; all of them when `rest`, else up to where it holds.
    pub(super) fn send(&mut self, open: &mut Open<'a>, rest: bool) -> Result<(), Trap> {
        let Some(vm) = self.vms.get_mut(open.worker) else {
            return Ok(());
        };
        for (range, last) in open.request.plan(open.sent, open.body.len(), rest) {
            open.sent = range.end;
            let chunk = open.body.get(range).unwrap_or_default();
            vm.request_body(open.stream, chunk, last)?;
        }
        match &open.request.trailers {
            Some(trailers) if open.sent == open.body.len() => {
                vm.request_trailers(open.stream, header_pairs(&[], trailers))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn respond(&mut self, open: Open<'a>, response: &Response) -> Result<(), Trap> {
        let Some(vm) = self.vms.get_mut(open.worker) else {
            return Ok(());
        };
        let picked = vm.seen(open.stream).and_then(|seen| seen.picked.as_deref());
        let picked = picked.map(|list| first_of(list).to_owned());
        let served_by = response.served_by.clone().or(picked);
        vm.update_spec(open.stream, |spec| {
            spec.upstream_address = served_by;
            spec.attempts = response.attempts.unwrap_or(1);
        });
        let headers = header_pairs(
            &[(":status", &response.status.to_string())],
            &response.headers,
        );
        let ends = response.body.is_empty() && !response.goes_on;
        vm.response_headers(open.stream, headers, ends)?;
        for (place, chunk) in response.body.iter().enumerate() {
            let last = place + 1 == response.body.len() && !response.goes_on;
            vm.response_body(open.stream, chunk.as_bytes(), last)?;
        }
        if response.goes_on {
            self.open.insert(open.request.name.clone(), open);
            return Ok(());
        }
        self.close(&open)
    }

    pub(super) fn close(&mut self, open: &Open<'a>) -> Result<(), Trap> {
        let Some(vm) = self.vms.get_mut(open.worker) else {
            return Ok(());
        };
        let hangs = vm.hangs(open.stream);
        let logged = access_log(vm, open.stream);
        let seen = vm.close(open.stream)?;
        self.note(open, &seen, hangs, logged);
        Ok(())
    }

    fn note(&mut self, open: &Open<'a>, seen: &Seen, hangs: bool, access_log: Option<String>) {
        let text = |map: &Option<HeaderMap>| {
            let pairs = map.iter().flatten();
            pairs
                .map(|(name, value)| (lossy(name), lossy(value)))
                .collect()
        };
        let sent = open.body.get(..open.sent).unwrap_or_default();
        let whole = seen.upstream.ended;
        let body = &seen.upstream.body;
        let request = RequestOutcome {
            picked: seen.picked.as_deref().map(|list| first_of(list).to_owned()),
            body_untouched: if whole {
                body == sent
            } else {
                sent.starts_with(body)
            },
            hangs,
            access_log,
            local_reply: seen.local_reply.as_ref().map(|reply| reply.status),
            upstream_headers: text(&seen.upstream.headers),
            downstream_headers: text(&seen.downstream.headers),
        };
        self.outcome
            .requests
            .insert(open.request.name.clone(), request);
    }

    pub(super) fn note_open(&mut self, streams: BTreeMap<String, Open<'a>>) {
        for open in streams.into_values() {
            let Some(vm) = self.vms.get_mut(open.worker) else {
                continue;
            };
            let hangs = vm.hangs(open.stream);
            let logged = access_log(vm, open.stream);
            if let Some(seen) = vm.seen(open.stream).cloned() {
                self.note(&open, &seen, hangs, logged);
            }
        }
    }
}

/// The property that access logs read.
fn access_log(vm: &mut Vm, stream: StreamId) -> Option<String> {
    let mut logged = None;
    vm.update_spec(stream, |spec| {
        let told = spec.properties.get("warmroute_decision");
        logged = told.map(|value| lossy(value));
    });
    logged
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
