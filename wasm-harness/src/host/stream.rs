//! One stream: what the test says of it, what the filter chain holds, what both ends saw.

use std::collections::BTreeMap;

use super::pairs::{HeaderMap, header};

/// A stream's context id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// What the gateway knows of a stream apart from its bytes.
#[derive(Clone, Debug, Default)]
pub struct StreamSpec {
    /// The route's name.
    pub route: String,
    /// The cluster that the route leads to.
    pub cluster: String,
    /// The downstream connection's number.
    pub connection_id: u64,
    /// More properties by dotted path, readable in every phase.
    pub properties: BTreeMap<String, Vec<u8>>,
    /// The endpoint that served (`upstream.address`), readable from response headers on.
    pub upstream_address: Option<String>,
    /// Endpoints that the router tried (`upstream.request_attempt_count`); 0 counts as 1.
    pub attempts: u64,
    /// `response.code_details`, readable from response headers on.
    pub response_code_details: Option<String>,
}

/// One direction as the far end saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Headers, once they were let through.
    pub headers: Option<HeaderMap>,
    /// The clock at that moment.
    pub headers_at_ms: Option<u64>,
    /// All body bytes so far.
    pub body: Vec<u8>,
    /// Sizes in which they came.
    pub chunk_sizes: Vec<usize>,
    /// Trailers.
    pub trailers: Option<HeaderMap>,
    /// Whether it is complete.
    pub ended: bool,
    /// The clock at that moment.
    pub ended_at_ms: Option<u64>,
}

impl Passed {
    /// A header's first value as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let value = header(self.headers.as_ref()?, name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

/// A reply that no upstream gave: the guest's, or the gateway's own (413, 500).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    /// HTTP status.
    pub status: u32,
    /// Response code details.
    pub details: Vec<u8>,
    /// Its own headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Vec<u8>,
    /// gRPC status, -1 = none.
    pub grpc_status: i32,
}

/// What both ends saw of a stream.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The request at the upstream.
    pub upstream: Passed,
    /// The response at the client.
    pub downstream: Passed,
    /// The local reply, if one was sent.
    pub local_reply: Option<LocalReply>,
    /// What the guest handed to `proxy_set_upstream_override_host` last (Higress), in time or not.
    pub override_host: Option<Vec<u8>>,
    /// Where the request was steered when its headers passed; `None` = the gateway's own balancing.
    /// Higress: an override that names a usable host. Envoy: the pick header.
    pub picked: Option<String>,
    /// Whether reading from the client was stopped because too much was held.
    pub backpressure: bool,
    /// Whether the guest reset the stream.
    pub reset: bool,
    /// Whether the guest asked for no re-route (`clear_route_cache` = `off`).
    pub route_cache_kept: bool,
    /// Fuel of all callbacks of this stream.
    pub fuel: u64,
}

/// A direction of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Request,
    Response,
}

/// What a filter's answers made of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// No headers yet.
    #[default]
    Idle,
    /// Everything passes.
    Flowing,
    /// Headers wait; body callbacks come.
    HeadersStopped,
    /// Everything waits; no callback comes.
    AllStopped,
    /// Answered by a local reply, or reset: nothing more happens.
    Over,
}

/// One direction inside the filter chain.
#[derive(Default)]
pub(super) struct Half {
    pub(super) mode: Mode,
    pub(super) headers: Option<HeaderMap>,
    /// The guest can reach the headers: not any more once its header callback answered Continue.
    pub(super) headers_reachable: bool,
    pub(super) trailers: Option<HeaderMap>,
    /// Trailers wait for a resume.
    pub(super) trailers_held: bool,
    /// Body bytes that wait.
    pub(super) held: Vec<u8>,
    /// The guest answered Pause to a body callback: bytes add up.
    pub(super) buffering: bool,
    /// The chunk of the body callback that runs, while nothing is buffered.
    pub(super) chunk: Option<Vec<u8>>,
    /// Bytes at the end that an older host hides from the guest.
    pub(super) hidden_bytes: usize,
    pub(super) chunk_count: u32,
    /// The sender is done.
    pub(super) ended: bool,
}

impl Half {
    /// The body as the guest may read it now.
    pub(super) fn visible_body(&self) -> Option<&[u8]> {
        let body = match &self.chunk {
            Some(chunk) => chunk,
            None if self.buffering || !self.held.is_empty() => &self.held,
            None => return None,
        };
        body.get(..body.len().saturating_sub(self.hidden_bytes))
    }

    pub(super) fn visible_body_mut(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.chunk {
            Some(chunk) => Some(chunk),
            None if self.buffering || !self.held.is_empty() => Some(&mut self.held),
            None => None,
        }
    }
}

/// A stream's whole state.
pub(super) struct Stream {
    pub(super) spec: StreamSpec,
    pub(super) request: Half,
    pub(super) response: Half,
    pub(super) seen: Seen,
    pub(super) buffer_limit_bytes: usize,
}

impl Stream {
    pub(super) fn half(&mut self, way: Way) -> &mut Half {
        match way {
            Way::Request => &mut self.request,
            Way::Response => &mut self.response,
        }
    }

    pub(super) fn passed(&mut self, way: Way) -> &mut Passed {
        match way {
            Way::Request => &mut self.seen.upstream,
            Way::Response => &mut self.seen.downstream,
        }
    }
}
