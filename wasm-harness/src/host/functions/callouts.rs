//! HTTP calls of the guest; gRPC is there and fails.

use crate::host::call::{Answer, Call};
use crate::host::gateway::ClusterState;
use crate::host::pairs::{self, header};
use crate::host::state::{Callout, Deferred};
use crate::host::status::Status;

/// Refused inline: an unknown cluster, headers without method, path or authority.
pub(in crate::host) fn http_call(call: &mut Call<'_, '_>) -> Answer {
    let cluster = call.text(0)?;
    let headers = pairs::decode(&call.bytes(2)?).ok_or(Status::BAD_ARGUMENT)?;
    let body = call.bytes(4)?;
    let trailers = pairs::decode(&call.bytes(6)?).ok_or(Status::BAD_ARGUMENT)?;
    let timeout_ms = call.word(8);
    let complete = [":method", ":path", ":authority"]
        .iter()
        .all(|name| header(&headers, name).is_some());
    let state = call.state();
    let cluster_state = state
        .gateway
        .lock()
        .clusters
        .get(&cluster)
        .map(|cluster| cluster.state);
    let cluster_state = cluster_state
        .filter(|_| complete)
        .ok_or(Status::BAD_ARGUMENT)?;
    let id = state.next_token();
    let (context, sent_at_ms) = (state.effective_context, state.gateway.now_ms());
    state.callouts.push(Callout {
        id,
        context,
        cluster,
        headers,
        body,
        trailers,
        timeout_ms,
        sent_at_ms,
    });
    if cluster_state == ClusterState::NoHost {
        state.deferred.push_back(Deferred::NoHost(id));
    }
    Ok(call.give_word(9, id)?)
}

pub(in crate::host) fn grpc(_: &mut Call<'_, '_>) -> Answer {
    Err(Status::INTERNAL_FAILURE.into())
}
