//! The shipped `envoy/envoy.yaml` with a scenario's names, clusters, routes and limits.
//!
//! What a file calls `engines` and `admin` are clusters of that name here; the plugin reaches the admin
//! interface through the scenario's door. The pick, which engines never see, is copied for the scenario's
//! hosts into [`PICK_COPY_HEADER`] before it is taken away.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use warmroute_lab::envoy::PICK_HEADER;
use warmroute_scenario::{Action, GatewaySetup, Host, Request, Scenario};

/// Tells the gateway which route a request takes; it goes no further than the router.
pub const WAY_HEADER: &str = "x-lab-way";
/// A response header, added by the scenario's gateway, with what an access log is told.
pub const LOGGED_HEADER: &str = "x-lab-access-log";
/// What hosts get to see of the pick.
pub const PICK_COPY_HEADER: &str = "x-lab-pick";

const HOST: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";

/// Route and cluster of a request.
fn places(request: &Request, setup: &GatewaySetup) -> (String, String) {
    let route = request.route.as_ref().unwrap_or(&setup.route);
    let cluster = request.cluster.as_ref().unwrap_or(&setup.cluster);
    (route.clone(), cluster.clone())
}

/// The value of [`WAY_HEADER`] with which a request takes its route.
pub fn way(request: &Request, setup: &GatewaySetup) -> String {
    let (route, cluster) = places(request, setup);
    format!("{route}|{cluster}")
}

/// Names of the clusters that hosts are in, the gateway's own among them.
pub fn clusters(scenario: &Scenario) -> BTreeSet<String> {
    let mut names = BTreeSet::from([scenario.gateway.cluster.clone()]);
    let hosts = all_hosts(scenario);
    names.extend(hosts.iter().filter_map(|host| host.cluster.clone()));
    names
}

/// Every host that is ever named.
pub fn all_hosts(scenario: &Scenario) -> Vec<Host> {
    let mut hosts = scenario.hosts.clone();
    for step in &scenario.steps {
        if let Action::Hosts(more) = &step.action {
            hosts.extend(more.iter().cloned());
        }
    }
    hosts
}

/// Whether hosts come and go, so that Envoy has to be told of it.
pub fn is_changing(scenario: &Scenario) -> bool {
    let addresses = |hosts: &[Host]| -> BTreeSet<String> {
        hosts.iter().map(|host| host.address.clone()).collect()
    };
    let first = addresses(&scenario.hosts);
    scenario
        .steps
        .iter()
        .any(|step| matches!(&step.action, Action::Hosts(hosts) if addresses(hosts) != first))
}

fn load_assignment(name: &str, hosts: &[Host], default: &str) -> Value {
    let hosts = hosts.iter().filter(|host| host.is_in(name, default));
    let hosts: Vec<Value> = hosts
        .map(|host| {
            let name = host.hostname.as_deref().unwrap_or_default();
            json!({"endpoint": {"address": socket_address(&host.address), "hostname": name}})
        })
        .collect();
    json!({"cluster_name": name, "endpoints": [{"lb_endpoints": hosts}]})
}

fn socket_address(address: &str) -> Value {
    let address: SocketAddr = address.parse().expect("an address of a socket of ours");
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

/// What Envoy reads of a changing cluster, in the file that its bootstrap names.
pub fn discovery_file(name: &str, hosts: &[Host], default: &str) -> Value {
    let mut assignment = load_assignment(name, hosts, default);
    assignment["@type"] =
        json!("type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment");
    json!({"resources": [assignment]})
}

/// Puts a scenario into the bootstrap; hosts that come and go are read from files in `folder`.
pub fn edit(bootstrap: &mut Value, scenario: &Scenario, door: SocketAddr, folder: &Path) {
    let setup = &scenario.gateway;
    bootstrap["node"] = json!({"id": "scenario", "cluster": "scenario"});
    let all = bootstrap
        .pointer_mut("/static_resources/clusters")
        .and_then(Value::as_array_mut)
        .expect("clusters");
    let mut admin = named(all, "envoy_admin");
    admin["name"] = json!(setup.admin_cluster);
    admin["load_assignment"] = json!({"cluster_name": setup.admin_cluster, "endpoints": [{
        "lb_endpoints": [{"endpoint": {"address": socket_address(&door.to_string())}}],
    }]});
    let inference = named(all, "inference");
    *all = vec![admin];
    for name in clusters(scenario) {
        let mut cluster = inference.clone();
        engines(&mut cluster, &name, scenario, folder);
        all.push(cluster);
    }
    let host = bootstrap.pointer_mut(HOST).expect("a virtual host");
    let logged = json!({"header": {
        "key": LOGGED_HEADER, "value": "%FILTER_STATE(wasm.warmroute_decision:PLAIN)%",
    }});
    let added = host["response_headers_to_add"].as_array_mut();
    added.expect("the lab's own header").push(logged);
    if let Some(limit) = setup.buffer_limit_bytes {
        host["request_body_buffer_limit"] = json!(limit);
    }
    routes(&mut host["routes"], scenario);
}

fn named(clusters: &[Value], name: &str) -> Value {
    let found = clusters.iter().find(|cluster| cluster["name"] == name);
    found.expect("a cluster of the shipped file").clone()
}

fn engines(cluster: &mut Value, name: &str, scenario: &Scenario, folder: &Path) {
    let setup = &scenario.gateway;
    cluster["name"] = json!(name);
    // A 503 counts at once whatever the threshold; an answer that is late on a busy machine never does.
    cluster["health_checks"][0]["unhealthy_threshold"] = json!(100);
    cluster["ignore_health_on_host_removal"] = json!(true);
    cluster["connect_timeout"] = json!("10s");
    if is_changing(scenario) {
        cluster["type"] = json!("EDS");
        cluster["eds_cluster_config"] = json!({"eds_config": {
            "resource_api_version": "V3",
            "path_config_source": {"path": folder.join(format!("{name}.json"))},
        }});
        let fields = cluster.as_object_mut().expect("a cluster's fields");
        fields.remove("load_assignment");
    } else {
        cluster["load_assignment"] = load_assignment(name, &scenario.hosts, &setup.cluster);
    }
    let mutations = cluster
        .pointer_mut("/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/http_filters/0/typed_config/mutations/request_mutations")
        .and_then(Value::as_array_mut)
        .expect("the filter that takes the pick away");
    let copy = json!({"append": {
        "header": {"key": PICK_COPY_HEADER, "value": format!("%REQ({PICK_HEADER})%")},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }});
    mutations.insert(0, copy);
}

/// A route for each way that requests take, and the gateway's own for the rest.
fn routes(routes: &mut Value, scenario: &Scenario) {
    let setup = &scenario.gateway;
    let shipped = routes[0].clone();
    let asked = scenario.steps.iter().filter_map(|step| match &step.action {
        Action::Request(request) => Some(request),
        _ => None,
    });
    let ways: BTreeSet<_> = asked
        .map(|request| (way(request, setup), places(request, setup)))
        .collect();
    let route = |name: &str, cluster: &str| {
        let mut route = shipped.clone();
        route["name"] = json!(name);
        route["route"]["cluster"] = json!(cluster);
        route["request_headers_to_remove"] = json!([WAY_HEADER]);
        route
    };
    let mut all: Vec<Value> = ways
        .into_iter()
        .map(|(way, (name, cluster))| {
            let mut route = route(&name, &cluster);
            route["match"]["headers"] =
                json!([{"name": WAY_HEADER, "string_match": {"exact": way}}]);
            route
        })
        .collect();
    all.push(route(&setup.route, &setup.cluster));
    *routes = json!(all);
}
