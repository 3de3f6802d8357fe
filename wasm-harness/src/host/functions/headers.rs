//! Header and trailer maps, as bytes.
//!
//! Once the guest's header callback answered Continue, its request (or response) headers are out of
//! reach: values and writes answer BadArgument, the list of pairs is empty.

use crate::host::call::{Answer, Call};
use crate::host::pairs::{self, HeaderMap};
use crate::host::state::VmState;
use crate::host::status::Status;
use crate::host::stream::Half;

fn reachable_headers(half: &Half) -> Option<&HeaderMap> {
    half.headers.as_ref().filter(|_| half.headers_reachable)
}

fn reachable_headers_mut(half: &mut Half) -> Option<&mut HeaderMap> {
    half.headers.as_mut().filter(|_| half.headers_reachable)
}

fn map(state: &VmState, kind: u32) -> Option<&HeaderMap> {
    match kind {
        0 => reachable_headers(&state.stream()?.request),
        1 => state.stream()?.request.trailers.as_ref(),
        2 => reachable_headers(&state.stream()?.response),
        3 => state.stream()?.response.trailers.as_ref(),
        6 => Some(&state.delivery.as_ref()?.headers),
        7 => Some(&state.delivery.as_ref()?.trailers),
        _ => None,
    }
}

fn map_mut(state: &mut VmState, kind: u32) -> Result<&mut HeaderMap, Status> {
    let stream = state.stream_mut().ok_or(Status::BAD_ARGUMENT)?;
    let map = match kind {
        0 => reachable_headers_mut(&mut stream.request),
        1 => stream.request.trailers.as_mut(),
        2 => reachable_headers_mut(&mut stream.response),
        3 => stream.response.trailers.as_mut(),
        _ => None,
    };
    map.ok_or(Status::BAD_ARGUMENT)
}

pub(in crate::host) fn get_pairs(call: &mut Call<'_, '_>) -> Answer {
    let kind = call.word(0);
    if kind > 7 {
        return Err(Status::BAD_ARGUMENT.into());
    }
    let pairs = map(call.state(), kind).cloned().unwrap_or_default();
    let bytes = if pairs.is_empty() {
        Vec::new()
    } else {
        pairs::encode(&pairs)
    };
    call.give_bytes(1, &bytes)
}

pub(in crate::host) fn set_pairs(call: &mut Call<'_, '_>) -> Answer {
    let kind = call.word(0);
    let pairs = pairs::decode(&call.bytes(1)?).ok_or(Status::BAD_ARGUMENT)?;
    *map_mut(call.state(), kind)? = pairs;
    Ok(())
}

/// The size of all names and values.
pub(in crate::host) fn get_size(call: &mut Call<'_, '_>) -> Answer {
    let kind = call.word(0);
    let pairs = map(call.state(), kind).ok_or(Status::BAD_ARGUMENT)?;
    let size: usize = pairs
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    Ok(call.give_word(1, u32::try_from(size).unwrap_or(u32::MAX))?)
}

pub(in crate::host) fn get_value(call: &mut Call<'_, '_>) -> Answer {
    let (kind, name) = (call.word(0), call.bytes(1)?.to_ascii_lowercase());
    let pairs = map(call.state(), kind).ok_or(Status::BAD_ARGUMENT)?;
    let value = pairs
        .iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.clone());
    call.give_bytes(3, &value.ok_or(Status::NOT_FOUND)?)
}

pub(in crate::host) fn add_value(call: &mut Call<'_, '_>) -> Answer {
    let (kind, name, value) = (
        call.word(0),
        call.bytes(1)?.to_ascii_lowercase(),
        call.bytes(3)?,
    );
    map_mut(call.state(), kind)?.push((name, value));
    Ok(())
}

/// Sets the value where the name stands first, drops its other values, adds it where it is absent.
pub(in crate::host) fn replace_value(call: &mut Call<'_, '_>) -> Answer {
    let (kind, name, value) = (
        call.word(0),
        call.bytes(1)?.to_ascii_lowercase(),
        call.bytes(3)?,
    );
    let map = map_mut(call.state(), kind)?;
    let place = map
        .iter()
        .position(|(key, _)| *key == name)
        .unwrap_or(map.len());
    map.retain(|(key, _)| *key != name);
    map.insert(place.min(map.len()), (name, value));
    Ok(())
}

pub(in crate::host) fn remove_value(call: &mut Call<'_, '_>) -> Answer {
    let (kind, name) = (call.word(0), call.bytes(1)?.to_ascii_lowercase());
    map_mut(call.state(), kind)?.retain(|(key, _)| *key != name);
    Ok(())
}
