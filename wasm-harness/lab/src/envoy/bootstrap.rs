//! The configuration of a lab gateway: one listener, one cluster of engines, one admin cluster.
//!
//! The cluster `inference` has the engines in the order given; `admin` points at Envoy's own admin
//! port, where the plugin finds hosts and their health.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The header that carries a pick from the plugin to the cluster.
pub const PICK_HEADER: &str = "x-gateway-destination-endpoint";
/// A response header, added by the lab's gateway, with the address of the engine that answered.
pub const SERVED_HEADER: &str = "x-lab-served-by";

/// How the gateway chooses an engine.
#[derive(Debug, Clone)]
pub enum Routing {
    /// Envoy's round robin.
    RoundRobin,
    /// Envoy's least request.
    LeastRequest,
    /// The client's own [`PICK_HEADER`], else least request.
    PickHeader,
    /// The plugin.
    Warmroute {
        /// The artifact.
        wasm: PathBuf,
        /// The plugin's configuration.
        configuration: Value,
    },
}

/// What a gateway is made of.
#[derive(Debug, Clone)]
pub struct EnvoyOptions {
    /// Engines, `host:port`.
    pub endpoints: Vec<String>,
    /// Choice among them.
    pub routing: Routing,
    /// Worker threads.
    pub concurrency: u32,
    /// Address of the listener; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Seconds between active health checks of `/health`; `None` for no checks.
    pub health_check_s: Option<u32>,
    /// Envoy's log level.
    pub log_level: String,
    /// The Envoy to run; `None` looks for one, see [`super::find_binary`].
    pub binary: Option<PathBuf>,
}

impl EnvoyOptions {
    /// A gateway for `endpoints` on a free port, with one worker.
    pub fn new(endpoints: Vec<String>, routing: Routing) -> Self {
        Self {
            endpoints,
            routing,
            concurrency: 1,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            health_check_s: Some(1),
            log_level: "warning".into(),
            binary: None,
        }
    }
}

/// The configuration of the plugin that fits [`bootstrap`]: hosts from the admin cluster.
pub fn plugin_configuration() -> Value {
    json!({"endpoints": {"admin": {"cluster": "admin", "of": ["inference"]}}})
}

/// The whole bootstrap, as Envoy's JSON.
pub fn bootstrap(options: &EnvoyOptions, admin: SocketAddr) -> Value {
    json!({
        "admin": {"address": socket_address(&admin.ip().to_string(), admin.port())},
        "static_resources": {
            "listeners": [listener(options)],
            "clusters": [inference(options), admin_cluster(admin)],
        },
        "stats_flush_interval": "1s",
    })
}

fn listener(options: &EnvoyOptions) -> Value {
    let mut filters = Vec::new();
    if let Routing::Warmroute {
        wasm,
        configuration,
    } = &options.routing
    {
        filters.push(json!({
            "name": "warmroute",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "config": {
                    "name": "warmroute",
                    "root_id": "warmroute",
                    "allow_on_headers_stop_iteration": true,
                    "failure_policy": "FAIL_RELOAD",
                    "configuration": {
                        "@type": "type.googleapis.com/google.protobuf.StringValue",
                        "value": configuration.to_string(),
                    },
                    "vm_config": {
                        "vm_id": "warmroute",
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": {"local": {"filename": wasm}},
                    },
                },
            },
        }));
    }
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        },
    }));
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "codec_type": "AUTO",
        "http_protocol_options": {"enable_trailers": true},
        "stream_idle_timeout": "300s",
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_filters": filters,
        "route_config": {"name": "routes", "virtual_hosts": [virtual_host()]},
    });
    json!({
        "name": "gateway",
        "address": socket_address(&options.listen.ip().to_string(), options.listen.port()),
        "per_connection_buffer_limit_bytes": 65_536,
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

fn virtual_host() -> Value {
    json!({
        "name": "engines",
        "domains": ["*"],
        // The plugin pauses whole bodies; past this one the client gets a 413.
        "request_body_buffer_limit": 16_777_216,
        "routes": [{
            "name": "engines",
            "match": {"prefix": "/"},
            "route": {
                "cluster": "inference",
                "timeout": "0s",
                "retry_policy": {
                    "retry_on": "connect-failure,refused-stream,reset-before-request",
                    "num_retries": 3,
                    "retry_host_predicate": [{
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                        },
                    }],
                    "host_selection_retry_max_attempts": 5,
                },
            },
        }],
        "response_headers_to_add": [{
            "header": {"key": SERVED_HEADER, "value": "%UPSTREAM_REMOTE_ADDRESS%"},
        }],
    })
}

fn inference(options: &EnvoyOptions) -> Value {
    let numeric = options
        .endpoints
        .iter()
        .all(|endpoint| endpoint.parse::<SocketAddr>().is_ok());
    let hosts: Vec<Value> = options
        .endpoints
        .iter()
        .map(|endpoint| {
            let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, "80"));
            let host = host.trim_start_matches('[').trim_end_matches(']');
            json!({"endpoint": {"address": socket_address(host, port.parse().unwrap_or(80))}})
        })
        .collect();
    let mut cluster = json!({
        "name": "inference",
        "type": if numeric { "STATIC" } else { "STRICT_DNS" },
        "connect_timeout": "1s",
        "load_balancing_policy": {"policies": [balancing(&options.routing)]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": {"thresholds": [{
            "max_connections": 65_536, "max_pending_requests": 65_536, "max_requests": 65_536,
        }]},
        "load_assignment": {
            "cluster_name": "inference",
            "endpoints": [{"lb_endpoints": hosts}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": upstream(),
        },
    });
    if let Some(seconds) = options.health_check_s {
        cluster["health_checks"] = json!([{
            "timeout": "1s",
            "interval": format!("{seconds}s"),
            "no_traffic_interval": format!("{seconds}s"),
            "unhealthy_threshold": 2,
            "healthy_threshold": 1,
            "http_health_check": {"path": "/health", "host": "inference"},
        }]);
    }
    cluster
}

/// HTTP/1.1 to the engines, and the pick taken off after it has served.
fn upstream() -> Value {
    json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
        "http_filters": [
            {
                "name": "envoy.filters.http.header_mutation",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
                    "mutations": {"request_mutations": [{"remove": PICK_HEADER}]},
                },
            },
            {
                "name": "envoy.filters.http.upstream_codec",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
                },
            },
        ],
    })
}

fn balancing(routing: &Routing) -> Value {
    match routing {
        Routing::RoundRobin => json!({"typed_extension_config": {
            "name": "envoy.load_balancing_policies.round_robin",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
            },
        }}),
        Routing::LeastRequest => json!({"typed_extension_config": {
            "name": "envoy.load_balancing_policies.least_request",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
            },
        }}),
        Routing::PickHeader | Routing::Warmroute { .. } => json!({"typed_extension_config": {
            "name": "envoy.load_balancing_policies.override_host",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
                "override_host_sources": [{"header": PICK_HEADER}],
                "fallback_policy": {"policies": [balancing(&Routing::LeastRequest)]},
            },
        }}),
    }
}

fn admin_cluster(admin: SocketAddr) -> Value {
    json!({
        "name": "admin",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "admin",
            "endpoints": [{"lb_endpoints": [{
                "endpoint": {"address": socket_address(&admin.ip().to_string(), admin.port())},
            }]}],
        },
    })
}

fn socket_address(host: &str, port: u16) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}
