//! Properties, by profile and phase; the guest separates path parts by NUL.

use crate::host::call::{Answer, Call};
use crate::host::gateway::Profile;
use crate::host::pairs::header;
use crate::host::state::VmState;
use crate::host::status::Status;
use crate::host::stream::{Mode, Stream};

pub(in crate::host) fn get(call: &mut Call<'_, '_>) -> Answer {
    let path = path(call)?;
    let memory_bytes = call.memory_bytes()?;
    let state = call.state();
    let value = of_plugin(state, &path, memory_bytes)
        .or_else(|| {
            state
                .stream()
                .and_then(|stream| of_stream(stream, &path, state.gateway.profile()))
        })
        .ok_or(Status::NOT_FOUND)?;
    call.give_bytes(2, &value)
}

fn path(call: &mut Call<'_, '_>) -> Result<String, Status> {
    let text = call.text(0)?;
    Ok(text.trim_end_matches('\0').replace('\0', "."))
}

fn of_plugin(state: &VmState, path: &str, memory_bytes: usize) -> Option<Vec<u8>> {
    match (path, state.gateway.profile()) {
        ("plugin_name", _) => Some(state.options.plugin_name.clone().into_bytes()),
        ("plugin_vm_id", _) => Some(state.options.vm_id.clone().into_bytes()),
        ("plugin_root_id", _) => Some(Vec::new()),
        ("plugin_vm_memory", Profile::Higress) => {
            Some((memory_bytes as u64).to_le_bytes().to_vec())
        }
        _ => None,
    }
}

fn of_stream(stream: &Stream, path: &str, profile: Profile) -> Option<Vec<u8>> {
    let text = |value: &String| Some(value.clone().into_bytes());
    match (path, profile) {
        ("xds.cluster_name", _) | ("cluster_name", Profile::Higress) => text(&stream.spec.cluster),
        ("xds.route_name", _) | ("route_name", Profile::Higress) => text(&stream.spec.route),
        ("connection_id", _) => Some(stream.spec.connection_id.to_le_bytes().to_vec()),
        _ => of_request(stream, path)
            .or_else(|| of_response(stream, path))
            .or_else(|| stream.spec.properties.get(path).cloned()),
    }
}

fn of_request(stream: &Stream, path: &str) -> Option<Vec<u8>> {
    let headers = stream.request.headers.as_ref()?;
    let name = match path.strip_prefix("request.")? {
        "path" => ":path",
        "method" => ":method",
        "host" => ":authority",
        "scheme" => ":scheme",
        rest => rest.strip_prefix("headers.")?,
    };
    header(headers, name).map(<[u8]>::to_vec)
}

/// Readable from response headers on; numbers are 8 bytes LE.
fn of_response(stream: &Stream, path: &str) -> Option<Vec<u8>> {
    let headers = stream
        .response
        .headers
        .as_ref()
        .filter(|_| stream.response.mode != Mode::Idle)?;
    match path {
        "upstream.address" => stream.spec.upstream_address.clone().map(String::into_bytes),
        "response.code_details" => stream
            .spec
            .response_code_details
            .clone()
            .map(String::into_bytes),
        "response.code" => {
            let code: u64 = std::str::from_utf8(header(headers, ":status")?)
                .ok()?
                .parse()
                .ok()?;
            Some(code.to_le_bytes().to_vec())
        }
        "upstream.request_attempt_count" => {
            Some(stream.spec.attempts.max(1).to_le_bytes().to_vec())
        }
        _ => None,
    }
}

/// Higress acts on three paths; any other value is kept and can be read back.
pub(in crate::host) fn set(call: &mut Call<'_, '_>) -> Answer {
    let (path, value) = (path(call)?, call.bytes(2)?);
    let state = call.state();
    let higress = state.gateway.profile() == Profile::Higress;
    if higress && path == "wasm_need_rebuild" {
        state.rebuild_requested = value == b"true";
        return Ok(());
    }
    let stream = state.stream_mut().ok_or(Status::NOT_FOUND)?;
    match path.as_str() {
        "set_decoder_buffer_limit" if higress => {
            let limit = std::str::from_utf8(&value)
                .ok()
                .and_then(|text| text.parse().ok());
            stream.buffer_limit_bytes = limit.ok_or(Status::BAD_ARGUMENT)?;
        }
        "clear_route_cache" if higress => stream.seen.route_cache_kept = value == b"off",
        _ => drop(stream.spec.properties.insert(path, value)),
    }
    Ok(())
}
