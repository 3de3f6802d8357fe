//! Answers to the guest's own calls, and what host calls put off until the guest has returned.

use super::pairs::{HeaderMap, header_map};
use super::state::{Callout, Deferred, Delivery};
use super::stream::{LocalReply, Mode, StreamId, Way};
use super::vm::{Trap, Vm, word};

/// The status of a Redis call whose server cannot be reached or does not answer.
const REDIS_FAILED: u32 = 1;

impl Callout {
    pub(super) fn due_ms(&self) -> u64 {
        self.sent_at_ms.saturating_add(u64::from(self.timeout_ms))
    }
}

impl Vm {
    /// Answers a waiting callout; false = none of this id waits (answered, timed out, its stream gone).
    ///
    /// # Errors
    /// The guest trapped.
    pub fn answer_callout(
        &mut self,
        id: u32,
        headers: HeaderMap,
        body: &[u8],
    ) -> Result<bool, Trap> {
        let delivery = Delivery {
            headers,
            body: body.to_vec(),
            ..Delivery::default()
        };
        self.deliver_callout(id, delivery)
    }

    /// Ends a waiting callout without an answer (a reset): the guest gets no headers.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn fail_callout(&mut self, id: u32) -> Result<bool, Trap> {
        self.deliver_callout(id, Delivery::default())
    }

    fn deliver_callout(&mut self, id: u32, delivery: Delivery) -> Result<bool, Trap> {
        let callouts = &mut self.store.data_mut().callouts;
        let Some(place) = callouts.iter().position(|callout| callout.id == id) else {
            return Ok(false);
        };
        let context = callouts.remove(place).context;
        let sizes = [
            word(delivery.headers.len()),
            word(delivery.body.len()),
            word(delivery.trailers.len()),
        ];
        self.store.data_mut().delivery = Some(delivery);
        let arguments = [context, id, sizes[0], sizes[1], sizes[2]];
        let outcome = self.invoke(context, "proxy_on_http_call_response", &arguments);
        self.store.data_mut().delivery = None;
        outcome?;
        self.settle()?;
        Ok(true)
    }

    /// Answers a waiting Redis call; `status` 0 = OK. False = none of this id waits.
    ///
    /// # Errors
    /// The guest trapped.
    pub fn answer_redis(&mut self, id: u32, status: u32, reply: &[u8]) -> Result<bool, Trap> {
        let calls = &mut self.store.data_mut().redis_calls;
        let Some(place) = calls.iter().position(|call| call.id == id) else {
            return Ok(false);
        };
        let context = calls.remove(place).context;
        self.store.data_mut().delivery = Some(Delivery {
            redis: Some(reply.to_vec()),
            ..Delivery::default()
        });
        let arguments = [context, id, status, word(reply.len())];
        let outcome = self.invoke(context, "proxy_on_redis_call_response", &arguments);
        self.store.data_mut().delivery = None;
        outcome?;
        self.settle()?;
        Ok(true)
    }

    /// Asks the real Redis of a call's cluster, and waits for the answer.
    fn ask_redis(&mut self, id: u32) -> Result<(), Trap> {
        let state = self.store.data_mut();
        let Some(call) = state.redis_calls.iter().find(|call| call.id == id) else {
            return Ok(());
        };
        let client = state
            .redis_clients
            .iter_mut()
            .find(|client| client.cluster == call.cluster);
        let address = state.gateway.redis(&call.cluster);
        let answer = client
            .zip(address)
            .map(|(c, address)| c.ask(address, &call.query));
        match answer {
            Some(Ok(reply)) => self.answer_redis(id, 0, &reply)?,
            _ => self.answer_redis(id, REDIS_FAILED, &[])?,
        };
        Ok(())
    }

    pub(super) fn time_out_callouts(&mut self, now_ms: u64) -> Result<(), Trap> {
        if !self.store.data().gateway.options().callouts_time_out {
            return Ok(());
        }
        while let Some(id) = self
            .store
            .data()
            .callouts
            .iter()
            .find(|callout| callout.due_ms() <= now_ms)
            .map(|callout| callout.id)
        {
            let headers = header_map(&[(":status", "504")]);
            self.answer_callout(id, headers, b"upstream request timeout")?;
        }
        Ok(())
    }

    /// Does what host calls put off.
    pub(super) fn settle(&mut self) -> Result<(), Trap> {
        while let Some(deferred) = self.store.data_mut().deferred.pop_front() {
            match deferred {
                Deferred::Resume(stream, way) => self.resume(stream, way)?,
                Deferred::Reset(stream) => self.reset(stream),
                Deferred::Reply(stream, reply) => self.reply_locally(stream, reply)?,
                Deferred::NoHost(id) => {
                    let headers = header_map(&[(":status", "503")]);
                    self.answer_callout(id, headers, b"no healthy upstream")?;
                }
                Deferred::Redis(id) => self.ask_redis(id)?,
            }
        }
        Ok(())
    }

    fn reset(&mut self, stream: StreamId) {
        if let Some(stream) = self.store.data_mut().streams.get_mut(&stream.0) {
            stream.seen.reset = true;
            stream.request.mode = Mode::Over;
            stream.response.mode = Mode::Over;
        }
    }

    /// Sends a reply to the client, through the filter's response callbacks. Once a response has
    /// begun, the stream is reset instead.
    pub(super) fn reply_locally(&mut self, id: StreamId, reply: LocalReply) -> Result<(), Trap> {
        let Some(stream) = self.store.data_mut().streams.get_mut(&id.0) else {
            return Ok(());
        };
        if stream.seen.local_reply.is_some() || stream.request.mode == Mode::Over {
            return Ok(());
        }
        stream.request.mode = Mode::Over;
        if stream.response.mode != Mode::Idle {
            self.reset(id);
            return Ok(());
        }
        let mut headers = header_map(&[(":status", &reply.status.to_string())]);
        headers.extend(reply.headers.iter().cloned());
        let body = reply.body.clone();
        stream.spec.response_code_details =
            Some(String::from_utf8_lossy(&reply.details).into_owned());
        stream.seen.local_reply = Some(reply);
        self.headers(id, Way::Response, headers, body.is_empty())?;
        if body.is_empty() {
            Ok(())
        } else {
            self.body(id, Way::Response, &body, true)
        }
    }
}
