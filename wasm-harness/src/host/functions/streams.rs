//! Resuming, resetting and answering streams. All take effect after the guest has returned.

use crate::host::call::{Answer, Call};
use crate::host::pairs;
use crate::host::state::{Deferred, VmState};
use crate::host::status::Status;
use crate::host::stream::{LocalReply, StreamId, Way};

/// A resume from the same direction's own callback is noted as a violation: gateways differ in what
/// they make of it.
pub(in crate::host) fn continue_stream(call: &mut Call<'_, '_>) -> Answer {
    let (way, callbacks) = match call.word(0) {
        0 => (Way::Request, "proxy_on_request_"),
        1 => (Way::Response, "proxy_on_response_"),
        _ => return Err(Status::BAD_ARGUMENT.into()),
    };
    let state = call.state();
    let stream = effective_stream(state)?;
    if let Some(running) = state.running
        && running.context == stream.0
        && running.export.starts_with(callbacks)
    {
        state.violations.push(format!(
            "stream {} resumed inside its own {}",
            stream.0, running.export
        ));
    }
    state.deferred.push_back(Deferred::Resume(stream, way));
    Ok(())
}

pub(in crate::host) fn close_stream(call: &mut Call<'_, '_>) -> Answer {
    if call.word(0) > 1 {
        return Err(Status::BAD_ARGUMENT.into());
    }
    let state = call.state();
    let stream = effective_stream(state)?;
    state.deferred.push_back(Deferred::Reset(stream));
    Ok(())
}

pub(in crate::host) fn send_local_response(call: &mut Call<'_, '_>) -> Answer {
    let reply = LocalReply {
        status: call.word(0),
        details: call.bytes(1)?,
        body: call.bytes(3)?,
        headers: pairs::decode(&call.bytes(5)?).ok_or(Status::BAD_ARGUMENT)?,
        grpc_status: call.word(7).cast_signed(),
    };
    let state = call.state();
    let stream = effective_stream(state)?;
    state.deferred.push_back(Deferred::Reply(stream, reply));
    Ok(())
}

fn effective_stream(state: &VmState) -> Result<StreamId, Status> {
    state
        .stream()
        .map(|_| StreamId(state.effective_context))
        .ok_or(Status::BAD_ARGUMENT)
}
