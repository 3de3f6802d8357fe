//! What each gateway offers to a plugin and expects of it.
//!
//! Sources: the lists of callbacks in proxy-wasm-cpp-host (`exports.h`, `registerCallbacks`,
//! `getFunctions`) as of Envoy 1.40, and of Higress's fork of it.

use std::fmt;
use std::str::FromStr;

/// A gateway that loads the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Stock Envoy and what is built on it.
    Envoy,
    /// Higress.
    Higress,
}

/// The ABI version that the SDK exports.
pub(crate) const SDK_ABI: &str = "proxy_abi_version_0_2_1";

/// Begins the name of every ABI version export.
pub(crate) const ABI_PREFIX: &str = "proxy_abi_version_";

/// Functions of module `env` that every gateway has (ABI 0.2.1).
const COMMON_IMPORTS: [&str; 39] = [
    "proxy_add_header_map_value",
    "proxy_call_foreign_function",
    "proxy_close_stream",
    "proxy_continue_stream",
    "proxy_define_metric",
    "proxy_dequeue_shared_queue",
    "proxy_done",
    "proxy_enqueue_shared_queue",
    "proxy_get_buffer_bytes",
    "proxy_get_buffer_status",
    "proxy_get_current_time_nanoseconds",
    "proxy_get_header_map_pairs",
    "proxy_get_header_map_size",
    "proxy_get_header_map_value",
    "proxy_get_log_level",
    "proxy_get_metric",
    "proxy_get_property",
    "proxy_get_shared_data",
    "proxy_get_status",
    "proxy_grpc_call",
    "proxy_grpc_cancel",
    "proxy_grpc_close",
    "proxy_grpc_send",
    "proxy_grpc_stream",
    "proxy_http_call",
    "proxy_increment_metric",
    "proxy_log",
    "proxy_record_metric",
    "proxy_register_shared_queue",
    "proxy_remove_header_map_value",
    "proxy_replace_header_map_value",
    "proxy_resolve_shared_queue",
    "proxy_send_local_response",
    "proxy_set_buffer_bytes",
    "proxy_set_effective_context",
    "proxy_set_header_map_pairs",
    "proxy_set_property",
    "proxy_set_shared_data",
    "proxy_set_tick_period_milliseconds",
];

/// Functions of module `env` that only Higress has.
const HIGRESS_IMPORTS: [&str; 4] = [
    "proxy_get_upstream_hosts",
    "proxy_redis_call",
    "proxy_redis_init",
    "proxy_set_upstream_override_host",
];

/// What every gateway reads or calls in an HTTP filter. The other callbacks of the SDK (TCP, gRPC,
/// queues, foreign functions) answer calls that this plugin never makes, and panic on unknown ids.
const COMMON_EXPORTS: [&str; 19] = [
    "_initialize",
    "malloc",
    "memory",
    "proxy_on_configure",
    "proxy_on_context_create",
    "proxy_on_delete",
    "proxy_on_done",
    "proxy_on_http_call_response",
    "proxy_on_log",
    "proxy_on_memory_allocate",
    "proxy_on_request_body",
    "proxy_on_request_headers",
    "proxy_on_request_trailers",
    "proxy_on_response_body",
    "proxy_on_response_headers",
    "proxy_on_response_trailers",
    "proxy_on_tick",
    "proxy_on_vm_start",
    "proxy_validate_configuration",
];

/// What no gateway can do without; of a group, any one.
const REQUIRED_EXPORTS: [&[&str]; 3] = [
    &["memory"],
    &["malloc", "proxy_on_memory_allocate"],
    &["_initialize"],
];

/// Callbacks that only Higress makes.
const HIGRESS_EXPORTS: [&str; 1] = ["proxy_on_redis_call_response"];

impl Host {
    /// Both gateways.
    pub const ALL: [Self; 2] = [Self::Envoy, Self::Higress];

    /// The gateway's name in file names and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Higress => "higress",
        }
    }

    /// The one ABI version that the module must export. Higress lets request headers wait for the
    /// body only for modules that export its own version.
    #[must_use]
    pub fn abi(self) -> &'static str {
        match self {
            Self::Envoy => SDK_ABI,
            Self::Higress => "proxy_abi_version_0_2_100",
        }
    }

    /// Whether the gateway has this function to import.
    #[must_use]
    pub fn offers(self, module: &str, name: &str) -> bool {
        module == "env"
            && (COMMON_IMPORTS.contains(&name)
                || (self == Self::Higress && HIGRESS_IMPORTS.contains(&name)))
    }

    /// Whether the gateway reads or calls this export of an HTTP filter.
    #[must_use]
    pub fn reads(self, export: &str) -> bool {
        export == self.abi()
            || COMMON_EXPORTS.contains(&export)
            || (self == Self::Higress && HIGRESS_EXPORTS.contains(&export))
    }
}

/// What a plugin with these exports lacks to be loaded by any gateway.
pub(crate) fn lacking(exports: &[&str]) -> Option<&'static str> {
    REQUIRED_EXPORTS
        .iter()
        .find(|group| !group.iter().any(|name| exports.contains(name)))
        .and_then(|group| group.first().copied())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Host {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|host| host.name() == name)
            .ok_or_else(|| anyhow::anyhow!("no gateway `{name}`: envoy or higress"))
    }
}
