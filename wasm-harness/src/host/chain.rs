//! What passes a paused filter, where the router sends it, what is too large to wait.

use super::artifact::Abi;
use super::gateway::{Health, Profile};
use super::pairs::{HeaderMap, header};
use super::state::{Deferred, VmState};
use super::stream::{LocalReply, Mode, StreamId, Way};
use super::vm::{Trap, Vm};

/// The header that Envoy's override policy reads.
const PICK_HEADER: &str = "x-gateway-destination-endpoint";

/// A callback's answer: stop here.
pub(super) const PAUSE: u32 = 1;

impl Vm {
    /// A guest that has answered the stream itself cannot let it pass.
    pub(super) fn unless_answered(&self, id: StreamId, action: u32) -> u32 {
        let answers =
            |deferred: &Deferred| matches!(deferred, Deferred::Reply(stream, _) if *stream == id);
        if self.store.data().deferred.iter().any(answers) {
            PAUSE
        } else {
            action
        }
    }

    /// Lets everything that waits in a direction through to the far end.
    pub(super) fn pass(&mut self, id: StreamId, way: Way) {
        let state = self.store.data_mut();
        let now_ms = state.gateway.now_ms();
        if way == Way::Request {
            state.route(id);
        }
        let Some(stream) = state.streams.get_mut(&id.0) else {
            return;
        };
        let half = stream.half(way);
        half.mode = Mode::Flowing;
        half.buffering = false;
        let (body, headers, ended) = (
            std::mem::take(&mut half.held),
            half.headers.clone(),
            half.ended,
        );
        let trailers = half.trailers.clone();
        let passed = stream.passed(way);
        if passed.headers.is_none() {
            passed.headers = headers;
            passed.headers_at_ms = Some(now_ms);
        }
        if !body.is_empty() {
            passed.chunk_sizes.push(body.len());
            passed.body.extend_from_slice(&body);
        }
        if ended {
            passed.trailers = trailers;
            passed.ended = true;
            passed.ended_at_ms.get_or_insert(now_ms);
        }
    }

    pub(super) fn over_limit(&self, id: StreamId, way: Way) -> bool {
        self.store.data().streams.get(&id.0).is_some_and(|stream| {
            let held = match way {
                Way::Request => &stream.request.held,
                Way::Response => &stream.response.held,
            };
            held.len() > stream.buffer_limit_bytes
        })
    }

    pub(super) fn note_backpressure(&mut self, id: StreamId, way: Way) {
        let over = self.over_limit(id, way);
        if let Some(stream) = self.store.data_mut().streams.get_mut(&id.0) {
            stream.seen.backpressure |= over;
        }
    }

    pub(super) fn refuse_body(&mut self, id: StreamId, way: Way) -> Result<(), Trap> {
        let (status, details, body): (u32, &[u8], &[u8]) = match way {
            Way::Request => (413, b"request_payload_too_large", b"Payload Too Large"),
            Way::Response => (500, b"response_payload_too_large", b"Internal Server Error"),
        };
        let reply = LocalReply {
            status,
            details: details.to_vec(),
            headers: HeaderMap::new(),
            body: body.to_vec(),
            grpc_status: -1,
        };
        self.reply_locally(id, reply)?;
        self.settle()
    }
}

impl VmState {
    /// What a header callback's StopIteration means here.
    pub(super) fn header_stop_stops_all(&self) -> bool {
        match self.gateway.profile() {
            Profile::Envoy => !self.gateway.options().allow_on_headers_stop_iteration,
            Profile::Higress => self.abi != Abi::V0_2_100,
        }
    }

    /// The router chooses, when request headers pass: notes what steered it.
    fn route(&mut self, id: StreamId) {
        let profile = self.gateway.profile();
        let Some(stream) = self
            .streams
            .get_mut(&id.0)
            .filter(|stream| stream.seen.upstream.headers.is_none())
        else {
            return;
        };
        stream.seen.picked = match profile {
            Profile::Envoy => {
                let value = stream
                    .request
                    .headers
                    .as_ref()
                    .and_then(|map| header(map, PICK_HEADER));
                value.map(|value| String::from_utf8_lossy(value).into_owned())
            }
            Profile::Higress => {
                let gateway = self.gateway.lock();
                let hosts = gateway
                    .clusters
                    .get(&stream.spec.cluster)
                    .map(|cluster| cluster.hosts.as_slice());
                let wanted = stream.seen.override_host.as_deref().unwrap_or_default();
                let usable = hosts.unwrap_or_default().iter().find(|host| {
                    host.address.as_bytes() == wanted && host.health != Health::Unhealthy
                });
                usable.map(|host| host.address.clone())
            }
        };
    }
}
