//! The host functions by name, and how a module is linked against them.

use wasmtime::{Caller, FuncType, Linker, Val, ValType};

use super::artifact::Artifact;
use super::call::{Answer, Call, Stop};
use super::functions::{
    buffers, callouts, data, headers, higress, metrics, properties, streams, system,
};
use super::gateway::Profile;
use super::state::VmState;
use super::status::Status;
use super::vm::HostError;

/// A host function of module `env`; it answers a status word.
pub(super) struct HostFunction {
    pub(super) name: &'static str,
    /// One letter an argument: `w` = 32 bits, `l` = 64 bits.
    pub(super) arguments: &'static str,
    pub(super) run: fn(&mut Call<'_, '_>) -> Answer,
}

const fn host(
    name: &'static str,
    arguments: &'static str,
    run: fn(&mut Call<'_, '_>) -> Answer,
) -> HostFunction {
    HostFunction {
        name,
        arguments,
        run,
    }
}

/// What every proxy-wasm 0.2 host has.
const COMMON: &[HostFunction] = &[
    host("proxy_log", "www", system::log),
    host("proxy_get_log_level", "w", system::get_log_level),
    host(
        "proxy_get_current_time_nanoseconds",
        "w",
        system::get_current_time,
    ),
    host(
        "proxy_set_tick_period_milliseconds",
        "w",
        system::set_tick_period,
    ),
    host(
        "proxy_set_effective_context",
        "w",
        system::set_effective_context,
    ),
    host("proxy_done", "", system::done),
    host("proxy_get_status", "www", system::get_status),
    host(
        "proxy_call_foreign_function",
        "wwwwww",
        system::call_foreign_function,
    ),
    host("proxy_get_property", "wwww", properties::get),
    host("proxy_set_property", "wwww", properties::set),
    host("proxy_get_header_map_pairs", "www", headers::get_pairs),
    host("proxy_set_header_map_pairs", "www", headers::set_pairs),
    host("proxy_get_header_map_size", "ww", headers::get_size),
    host("proxy_get_header_map_value", "wwwww", headers::get_value),
    host("proxy_add_header_map_value", "wwwww", headers::add_value),
    host(
        "proxy_replace_header_map_value",
        "wwwww",
        headers::replace_value,
    ),
    host(
        "proxy_remove_header_map_value",
        "www",
        headers::remove_value,
    ),
    host("proxy_get_buffer_bytes", "wwwww", buffers::get_bytes),
    host("proxy_set_buffer_bytes", "wwwww", buffers::set_bytes),
    host("proxy_get_buffer_status", "www", buffers::get_status),
    host("proxy_continue_stream", "w", streams::continue_stream),
    host("proxy_close_stream", "w", streams::close_stream),
    host(
        "proxy_send_local_response",
        "wwwwwwww",
        streams::send_local_response,
    ),
    host("proxy_http_call", "wwwwwwwwww", callouts::http_call),
    host("proxy_grpc_call", "wwwwwwwwwwww", callouts::grpc),
    host("proxy_grpc_stream", "wwwwwwwww", callouts::grpc),
    host("proxy_grpc_send", "wwww", callouts::grpc),
    host("proxy_grpc_cancel", "w", callouts::grpc),
    host("proxy_grpc_close", "w", callouts::grpc),
    host("proxy_get_shared_data", "wwwww", data::get),
    host("proxy_set_shared_data", "wwwww", data::set),
    host("proxy_register_shared_queue", "www", data::register_queue),
    host("proxy_resolve_shared_queue", "wwwww", data::resolve_queue),
    host("proxy_enqueue_shared_queue", "www", data::enqueue),
    host("proxy_dequeue_shared_queue", "www", data::dequeue),
    host("proxy_define_metric", "wwww", metrics::define),
    host("proxy_increment_metric", "wl", metrics::increment),
    host("proxy_record_metric", "wl", metrics::record),
    host("proxy_get_metric", "ww", metrics::get),
];

/// What Higress has on top.
const HIGRESS: &[HostFunction] = &[
    host(
        "proxy_get_upstream_hosts",
        "ww",
        higress::get_upstream_hosts,
    ),
    host(
        "proxy_set_upstream_override_host",
        "ww",
        higress::set_upstream_override_host,
    ),
    host("proxy_redis_init", "wwwwwww", higress::redis_init),
    host("proxy_redis_call", "wwwww", higress::redis_call),
];

fn functions(profile: Profile) -> impl Iterator<Item = &'static HostFunction> {
    let own = match profile {
        Profile::Envoy => &[],
        Profile::Higress => HIGRESS,
    };
    COMMON.iter().chain(own)
}

/// A linker with the profile's functions.
///
/// # Errors
/// The module imports something that the profile's gateway lacks, or with other arguments.
pub(super) fn link(artifact: &Artifact, profile: Profile) -> Result<Linker<VmState>, HostError> {
    let mut linker = Linker::new(&artifact.engine);
    for function in functions(profile) {
        let arguments = function.arguments.chars().map(|kind| {
            if kind == 'l' {
                ValType::I64
            } else {
                ValType::I32
            }
        });
        let kind = FuncType::new(&artifact.engine, arguments, [ValType::I32]);
        linker
            .func_new(
                "env",
                function.name,
                kind,
                move |caller, arguments, results| {
                    let status = answer(function, caller, arguments)?;
                    if let Some(result) = results.first_mut() {
                        *result = Val::I32(status.0.cast_signed());
                    }
                    Ok(())
                },
            )
            .map_err(|error| HostError::Instantiate(format!("{error:#}")))?;
    }
    for import in artifact.module.imports() {
        let known = import.module() == "env"
            && functions(profile).any(|function| function.name == import.name());
        if !known {
            return Err(HostError::MissingImport {
                import: format!("{}.{}", import.module(), import.name()),
                profile,
            });
        }
    }
    Ok(linker)
}

fn answer(
    function: &HostFunction,
    mut caller: Caller<'_, VmState>,
    arguments: &[Val],
) -> wasmtime::Result<Status> {
    if let Some(status) = caller.data_mut().count_call(function.name) {
        return Ok(status);
    }
    match (function.run)(&mut Call::new(caller, arguments)) {
        Ok(()) => Ok(Status::OK),
        Err(Stop::Status(status)) => Ok(status),
        Err(Stop::Trap(trap)) => Err(trap),
    }
}
