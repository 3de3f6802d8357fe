//! Bodies, callout answers, configurations.

use crate::host::call::{Answer, Call};
use crate::host::state::VmState;
use crate::host::status::Status;

fn buffer(state: &VmState, kind: u32) -> Option<&[u8]> {
    match kind {
        0 => state.stream()?.request.visible_body(),
        1 => state.stream()?.response.visible_body(),
        4 => state
            .delivery
            .as_ref()
            .filter(|delivery| delivery.redis.is_none())
            .map(|delivery| delivery.body.as_slice()),
        6 => Some(&state.options.vm_config),
        7 => Some(&state.plugin_config),
        9 => state.delivery.as_ref()?.redis.as_deref(),
        _ => None,
    }
}

/// A part past the end is cut; an empty part leaves the out pointers alone.
pub(in crate::host) fn get_bytes(call: &mut Call<'_, '_>) -> Answer {
    let (kind, start, size) = (call.word(0), call.word(1), call.word(2));
    let end = start.checked_add(size).ok_or(Status::BAD_ARGUMENT)? as usize;
    let bytes = buffer(call.state(), kind).ok_or(Status::NOT_FOUND)?;
    let part = bytes
        .get(start as usize..end.min(bytes.len()))
        .unwrap_or_default()
        .to_vec();
    if part.is_empty() {
        Ok(())
    } else {
        call.give_bytes(3, &part)
    }
}

/// Replaces the whole, puts before it (start 0, size 0), or behind it (start at or past the end).
pub(in crate::host) fn set_bytes(call: &mut Call<'_, '_>) -> Answer {
    let (kind, start, size) = (call.word(0), call.word(1) as usize, call.word(2) as usize);
    let bytes = call.bytes(3)?;
    let stream = call.state().stream_mut().ok_or(Status::NOT_FOUND)?;
    let body = match kind {
        0 => stream.request.visible_body_mut(),
        1 => stream.response.visible_body_mut(),
        _ => None,
    };
    let body = body.ok_or(Status::NOT_FOUND)?;
    match (start, size) {
        (0, 0) => drop(body.splice(..0, bytes)),
        (0, size) if size >= body.len() => *body = bytes,
        (start, _) if start >= body.len() => body.extend_from_slice(&bytes),
        _ => return Err(Status::BAD_ARGUMENT.into()),
    }
    Ok(())
}

pub(in crate::host) fn get_status(call: &mut Call<'_, '_>) -> Answer {
    let kind = call.word(0);
    let size = buffer(call.state(), kind).ok_or(Status::NOT_FOUND)?.len();
    call.give_word(1, u32::try_from(size).unwrap_or(u32::MAX))?;
    Ok(call.give_word(2, 0)?)
}
