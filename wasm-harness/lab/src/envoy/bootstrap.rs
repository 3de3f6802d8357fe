//! The configuration of a lab gateway: the tree's `envoy/envoy.yaml` with other addresses.
//!
//! What is measured and tested is thus what users are told to run. Changed are: the ports, the
//! engines, the plugin's path and configuration, the balancing policy where the plugin is not
//! asked, the interval of the health checks; the access log goes; a response header comes.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

/// The header that carries a pick from the plugin to the cluster.
pub const PICK_HEADER: &str = "x-gateway-destination-endpoint";
/// A response header, added by the lab's gateway, with the address of the engine that answered.
pub const SERVED_HEADER: &str = "x-lab-served-by";

const LISTENER: &str = "/static_resources/listeners/0";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

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
        /// The plugin's configuration, as [`plugin_configuration`] gives it or changed.
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
    /// Time between active health checks, as Envoy writes durations; `None` for no checks.
    pub health_check_interval: Option<String>,
    /// How long a replaced listener's connections may last.
    pub drain_time_s: u32,
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
            health_check_interval: Some("1s".into()),
            drain_time_s: 1,
            log_level: "warning".into(),
            binary: None,
        }
    }
}

/// `envoy/envoy.yaml` as it stands.
fn template() -> anyhow::Result<Value> {
    let path = crate::tree_root().join("envoy/envoy.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// The plugin's configuration in `envoy/envoy.yaml`: hosts from the admin cluster.
///
/// # Errors
/// The file is missing or of another shape.
pub fn plugin_configuration() -> anyhow::Result<Value> {
    let mut config = template()?;
    let filters = at(&mut config, &format!("{MANAGER}/http_filters"))?;
    let plugin = named(filters, "warmroute")?;
    let text = at(plugin, "/typed_config/config/configuration/value")?;
    Ok(serde_json::from_str(text.as_str().unwrap_or_default())?)
}

/// The whole bootstrap, in Envoy's JSON.
///
/// # Errors
/// `envoy/envoy.yaml` is missing or of another shape.
pub fn bootstrap(options: &EnvoyOptions, admin: SocketAddr) -> anyhow::Result<Value> {
    let mut config = template()?;
    let admin_address = socket_address(&admin.ip().to_string(), admin.port());
    *at(&mut config, "/admin/address")? = admin_address.clone();
    *at(&mut config, &format!("{LISTENER}/address"))? =
        socket_address(&options.listen.ip().to_string(), options.listen.port());

    let manager = at(&mut config, MANAGER)?;
    if let Some(fields) = manager.as_object_mut() {
        fields.remove("access_log");
    }
    plugin(at(manager, "/http_filters")?, &options.routing)?;
    at(manager, "/route_config/virtual_hosts/0")?["response_headers_to_add"] = json!([{
        "header": {"key": SERVED_HEADER, "value": "%UPSTREAM_REMOTE_ADDRESS%"},
    }]);

    let clusters = at(&mut config, "/static_resources/clusters")?;
    let endpoint = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
    *at(named(clusters, "envoy_admin")?, endpoint)? = admin_address;
    inference(named(clusters, "inference")?, options)?;
    Ok(config)
}

/// Points the filter at its artifact, or takes it out.
fn plugin(filters: &mut Value, routing: &Routing) -> anyhow::Result<()> {
    let Routing::Warmroute {
        wasm,
        configuration,
    } = routing
    else {
        if let Some(filters) = filters.as_array_mut() {
            filters.retain(|filter| filter["name"] != "warmroute");
        }
        return Ok(());
    };
    let plugin = at(named(filters, "warmroute")?, "/typed_config/config")?;
    *at(plugin, "/vm_config/code/local/filename")? = json!(wasm);
    *at(plugin, "/configuration/value")? = json!(configuration.to_string());
    Ok(())
}

fn inference(cluster: &mut Value, options: &EnvoyOptions) -> anyhow::Result<()> {
    let numeric = |endpoint: &String| endpoint.parse::<SocketAddr>().is_ok();
    if !options.endpoints.iter().all(numeric) {
        cluster["type"] = json!("STRICT_DNS");
    }
    let mut hosts = Vec::new();
    for endpoint in &options.endpoints {
        let (host, port) = endpoint
            .rsplit_once(':')
            .with_context(|| format!("engine {endpoint}: host:port expected"))?;
        let port = port
            .parse()
            .with_context(|| format!("engine {endpoint}: port {port} is no number"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        hosts.push(json!({"endpoint": {"address": socket_address(host, port)}}));
    }
    *at(cluster, "/load_assignment/endpoints/0/lb_endpoints")? = json!(hosts);
    if let Some(interval) = &options.health_check_interval {
        let check = at(cluster, "/health_checks/0")?;
        check["interval"] = json!(interval);
        check["no_traffic_interval"] = json!(interval);
    } else if let Some(fields) = cluster.as_object_mut() {
        fields.remove("health_checks");
    }
    let name = match options.routing {
        Routing::RoundRobin => ("round_robin", "RoundRobin"),
        Routing::LeastRequest => ("least_request", "LeastRequest"),
        Routing::PickHeader | Routing::Warmroute { .. } => return Ok(()),
    };
    *at(cluster, "/load_balancing_policy/policies")? = json!([{"typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{}", name.0),
        "typed_config": {"@type": format!(
            "type.googleapis.com/envoy.extensions.load_balancing_policies.{}.v3.{}",
            name.0, name.1
        )},
    }}]);
    Ok(())
}

fn at<'a>(config: &'a mut Value, pointer: &str) -> anyhow::Result<&'a mut Value> {
    config
        .pointer_mut(pointer)
        .with_context(|| format!("envoy/envoy.yaml has no {pointer}"))
}

fn named<'a>(list: &'a mut Value, name: &str) -> anyhow::Result<&'a mut Value> {
    list.as_array_mut()
        .and_then(|list| list.iter_mut().find(|item| item["name"] == name))
        .with_context(|| format!("envoy/envoy.yaml has no entry named {name}"))
}

fn socket_address(host: &str, port: u16) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}
