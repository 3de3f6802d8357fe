//! The filter chain around one filter: what the client and the upstream send, what passes.
//!
//! Both directions obey the same rules. A header callback that stops leaves the body flowing into the
//! filter, or stops everything, by ABI version and configuration. Bytes of a paused body add up and the
//! callback gets the sum; after Continue chunks pass one by one. Over the limit, the request ends in a
//! 413 (a response in a reset).

use super::chain::PAUSE;
use super::pairs::HeaderMap;
use super::state::ROOT;
use super::stream::{Half, Mode, Seen, Stream, StreamId, StreamSpec, Way};
use super::vm::{Thread, Trap, Vm, word};

const CONTINUE: u32 = 0;
/// Body callbacks only: stop, and the chunk is gone.
const STOP_NO_BUFFER: u32 = 3;

impl Vm {
    /// Opens a stream and creates its context.
    ///
    /// # Errors
    /// The guest trapped.
    ///
    /// # Panics
    /// On the main thread's VM, which serves no streams.
    pub fn open_stream(&mut self, spec: StreamSpec) -> Result<StreamId, Trap> {
        assert!(
            self.store.data().options.thread == Thread::Worker,
            "the main thread serves no streams"
        );
        self.next_stream += 1;
        let id = self.next_stream;
        let state = self.store.data_mut();
        let buffer_limit_bytes = state.gateway.options().buffer_limit_bytes;
        let stream = Stream {
            spec,
            request: Half::default(),
            response: Half::default(),
            seen: Seen::default(),
            buffer_limit_bytes,
        };
        state.streams.insert(id, stream);
        self.invoke(id, "proxy_on_context_create", &[id, ROOT])?;
        self.settle()?;
        Ok(StreamId(id))
    }

    /// The client sends request headers.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn request_headers(
        &mut self,
        id: StreamId,
        headers: HeaderMap,
        end: bool,
    ) -> Result<(), Trap> {
        self.headers(id, Way::Request, headers, end)
    }

    /// The client sends a part of the body.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn request_body(&mut self, id: StreamId, chunk: &[u8], end: bool) -> Result<(), Trap> {
        self.body(id, Way::Request, chunk, end)
    }

    /// The client ends its request with trailers.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn request_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> Result<(), Trap> {
        self.trailers(id, Way::Request, trailers)
    }

    /// The upstream (or another filter, without any request before) sends response headers.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn response_headers(
        &mut self,
        id: StreamId,
        headers: HeaderMap,
        end: bool,
    ) -> Result<(), Trap> {
        self.headers(id, Way::Response, headers, end)
    }

    /// The upstream sends a part of the response body.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn response_body(&mut self, id: StreamId, chunk: &[u8], end: bool) -> Result<(), Trap> {
        self.body(id, Way::Response, chunk, end)
    }

    /// The upstream ends its response with trailers.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn response_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> Result<(), Trap> {
        self.trailers(id, Way::Response, trailers)
    }

    /// Changes what the gateway tells of a stream, such as who served it.
    pub fn update_spec(&mut self, id: StreamId, change: impl FnOnce(&mut StreamSpec)) {
        if let Some(stream) = self.store.data_mut().streams.get_mut(&id.0) {
            change(&mut stream.spec);
        }
    }

    /// The stream ends, complete or not: done, log, delete; its callouts are cancelled.
    /// What was seen of it is returned.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn close(&mut self, id: StreamId) -> Result<Seen, Trap> {
        let done = self.invoke(id.0, "proxy_on_done", &[id.0])?;
        if done == Some(0) && !self.store.data().done_contexts.contains(&id.0) {
            self.store.data_mut().violations.push(format!(
                "stream {} put its end off without proxy_done",
                id.0
            ));
        }
        self.invoke(id.0, "proxy_on_log", &[id.0])?;
        self.invoke(id.0, "proxy_on_delete", &[id.0])?;
        let state = self.store.data_mut();
        state.callouts.retain(|callout| callout.context != id.0);
        state.redis_calls.retain(|call| call.context != id.0);
        let seen = state
            .streams
            .remove(&id.0)
            .map(|stream| stream.seen)
            .unwrap_or_default();
        self.settle()?;
        Ok(seen)
    }

    pub(super) fn half(&mut self, id: StreamId, way: Way) -> Option<&mut Half> {
        let stream = self.store.data_mut().streams.get_mut(&id.0)?;
        Some(stream.half(way)).filter(|half| half.mode != Mode::Over)
    }

    pub(super) fn headers(
        &mut self,
        id: StreamId,
        way: Way,
        headers: HeaderMap,
        end: bool,
    ) -> Result<(), Trap> {
        let Some(half) = self.half(id, way) else {
            return Ok(());
        };
        let count = word(headers.len());
        half.headers = Some(headers);
        half.headers_reachable = true;
        half.ended = end;
        half.mode = Mode::HeadersStopped;
        let export = match way {
            Way::Request => "proxy_on_request_headers",
            Way::Response => "proxy_on_response_headers",
        };
        let action = self
            .invoke(id.0, export, &[id.0, count, u32::from(end)])?
            .unwrap_or(CONTINUE);
        let action = self.unless_answered(id, action);
        let stops_all = self.store.data().header_stop_stops_all();
        if let Some(half) = self.half(id, way) {
            if action == CONTINUE {
                half.headers_reachable = false;
                self.pass(id, way);
            } else if action > PAUSE || stops_all {
                half.mode = Mode::AllStopped;
            }
        }
        self.settle()
    }

    pub(super) fn body(
        &mut self,
        id: StreamId,
        way: Way,
        chunk: &[u8],
        end: bool,
    ) -> Result<(), Trap> {
        let Some(half) = self.half(id, way) else {
            return Ok(());
        };
        half.ended = end;
        half.chunk_count += 1;
        if half.mode == Mode::AllStopped {
            half.held.extend_from_slice(chunk);
            self.note_backpressure(id, way);
            return Ok(());
        }
        let limit_comes_first = half.buffering;
        if half.buffering {
            half.held.extend_from_slice(chunk);
        } else {
            half.chunk = Some(chunk.to_vec());
        }
        if limit_comes_first && self.over_limit(id, way) {
            return self.refuse_body(id, way);
        }
        let action = self.call_body(id, way, chunk.len(), end)?;
        let Some(half) = self.half(id, way) else {
            return self.settle();
        };
        let shown = half.chunk.take().unwrap_or_default();
        if action != STOP_NO_BUFFER {
            half.held.extend_from_slice(&shown);
        }
        if action == CONTINUE {
            self.pass(id, way);
        } else {
            half.buffering = true;
            if half.mode == Mode::Flowing {
                half.mode = Mode::HeadersStopped;
            }
            if action == PAUSE && self.over_limit(id, way) {
                self.refuse_body(id, way)?;
            }
        }
        self.settle()
    }

    fn call_body(
        &mut self,
        id: StreamId,
        way: Way,
        chunk_size: usize,
        end: bool,
    ) -> Result<u32, Trap> {
        let cuts = self.store.data().gateway.options().cuts_last_frame;
        let Some(half) = self.half(id, way) else {
            return Ok(CONTINUE);
        };
        half.hidden_bytes = if cuts && end && half.chunk_count > 1 {
            chunk_size
        } else {
            0
        };
        let size = word(half.visible_body().map_or(0, <[u8]>::len));
        let export = match way {
            Way::Request => "proxy_on_request_body",
            Way::Response => "proxy_on_response_body",
        };
        let action = self
            .invoke(id.0, export, &[id.0, size, u32::from(end)])?
            .unwrap_or(CONTINUE);
        if let Some(half) = self.half(id, way) {
            half.hidden_bytes = 0;
        }
        Ok(self.unless_answered(id, action))
    }

    pub(super) fn trailers(
        &mut self,
        id: StreamId,
        way: Way,
        trailers: HeaderMap,
    ) -> Result<(), Trap> {
        let Some(half) = self.half(id, way) else {
            return Ok(());
        };
        let count = word(trailers.len());
        half.trailers = Some(trailers);
        half.ended = true;
        if half.mode == Mode::AllStopped {
            half.trailers_held = true;
            return Ok(());
        }
        let export = match way {
            Way::Request => "proxy_on_request_trailers",
            Way::Response => "proxy_on_response_trailers",
        };
        let action = self
            .invoke(id.0, export, &[id.0, count])?
            .unwrap_or(CONTINUE);
        let action = self.unless_answered(id, action);
        if let Some(half) = self.half(id, way) {
            half.trailers_held = action != CONTINUE;
            if action == CONTINUE {
                self.pass(id, way);
            } else if half.mode == Mode::Flowing {
                half.mode = Mode::HeadersStopped;
            }
        }
        self.settle()
    }

    /// A paused direction goes on. After "stop all" the body comes to the filter only now.
    pub(super) fn resume(&mut self, id: StreamId, way: Way) -> Result<(), Trap> {
        let Some(half) = self.half(id, way) else {
            return Ok(());
        };
        match half.mode {
            Mode::HeadersStopped => {
                half.trailers_held = false;
                self.pass(id, way);
                Ok(())
            }
            Mode::AllStopped => {
                let body = std::mem::take(&mut half.held);
                let (ended, trailers) = (half.ended, half.trailers.take());
                half.ended = ended && body.is_empty() && trailers.is_none();
                half.trailers_held = false;
                self.pass(id, way);
                if !body.is_empty() {
                    self.body(id, way, &body, ended && trailers.is_none())?;
                }
                trailers.map_or(Ok(()), |trailers| self.trailers(id, way, trailers))
            }
            Mode::Idle | Mode::Flowing | Mode::Over => Ok(()),
        }
    }
}
