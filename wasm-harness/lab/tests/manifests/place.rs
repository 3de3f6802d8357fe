//! What control planes make of the manifests: each fragment at the place where the control plane puts it, in
//! a bootstrap like that of `envoy/envoy.yaml`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
pub const VIRTUAL_HOST: &str = "/route_config/virtual_hosts/0";
/// The plugin's filter as Envoy Gateway calls it.
const FILTER: &str = "envoy.filters.http.wasm/envoyextensionpolicy/default/warmroute/wasm/0";
/// The engines' cluster as Istio calls it.
pub const ISTIO_CLUSTER: &str = "outbound|8000||engines.default.svc.cluster.local";

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a YAML file.
pub fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    let one = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    one
}

/// `envoy/envoy.yaml` as it stands.
pub fn shipped() -> Value {
    documents("envoy/envoy.yaml").remove(0)
}

/// A bootstrap like `envoy/envoy.yaml` without what the manifests have to bring: filter, limits, policy, checks, admin.
pub fn bare(mut config: Value) -> Value {
    let listener = &mut config["static_resources"]["listeners"][0];
    listener
        .as_object_mut()
        .unwrap()
        .remove("per_connection_buffer_limit_bytes");
    let manager = config.pointer_mut(MANAGER).unwrap();
    manager["http_filters"]
        .as_array_mut()
        .unwrap()
        .retain(|filter| filter["name"] != "warmroute");
    let host = manager
        .pointer_mut(VIRTUAL_HOST)
        .unwrap()
        .as_object_mut()
        .unwrap();
    host.remove("request_body_buffer_limit");
    let clusters = config["static_resources"]["clusters"]
        .as_array_mut()
        .unwrap();
    clusters.retain(|cluster| cluster["name"] == "inference");
    let inference = clusters[0].as_object_mut().unwrap();
    inference.remove("load_balancing_policy");
    inference.remove("health_checks");
    config
}

pub fn insert_filter(config: &mut Value, filter: Value) {
    let filters = config
        .pointer_mut(&format!("{MANAGER}/http_filters"))
        .unwrap();
    let filters = filters.as_array_mut().unwrap();
    filters.insert(filters.len() - 1, filter);
}

pub fn add_cluster(config: &mut Value, cluster: &Value) {
    config["static_resources"]["clusters"]
        .as_array_mut()
        .unwrap()
        .push(cluster.clone());
}

pub fn built_plugin() -> Value {
    json!({"local": {"filename": root().join("dist/warmroute-envoy.wasm")}})
}

/// The places that a patch's `jsonPath` names; of JSONPath only what the patches use: `..list[*]` and
/// `..list[?(@.name =~ 'part')]`, then members.
pub fn places<'a>(document: &'a mut Value, path: &str) -> Vec<&'a mut Value> {
    let (list, rest) = path.strip_prefix("..").unwrap().split_once('[').unwrap();
    let (selector, members) = rest.split_once(']').unwrap();
    let part = match selector {
        "*" => "",
        _ => selector
            .strip_prefix("?(@.name =~ '")
            .and_then(|rest| rest.strip_suffix("')"))
            .unwrap(),
    };
    let pointer = members.replace('.', "/");
    let mut found = Vec::new();
    descend(document, list, &mut |item| {
        if item["name"].as_str().unwrap_or_default().contains(part) {
            found.extend(item.pointer_mut(&pointer));
        }
    });
    found
}

pub fn descend<'a>(value: &'a mut Value, list: &str, visit: &mut impl FnMut(&'a mut Value)) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == list && member.is_array() {
                    member
                        .as_array_mut()
                        .into_iter()
                        .flatten()
                        .for_each(&mut *visit);
                } else {
                    descend(member, list, visit);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| descend(item, list, visit)),
        _ => {}
    }
}

/// What Envoy Gateway makes of `envoy-gateway/warmroute.yaml`, put into a bootstrap.
pub fn envoy_gateway(bootstrap: Value) -> Value {
    let documents = documents("envoy/envoy-gateway/warmroute.yaml");
    let mut config = bare(bootstrap);
    let plugin = &of_kind(&documents, "EnvoyExtensionPolicy")["spec"]["wasm"][0];
    // Its translator writes these fields, and no others, under this name.
    insert_filter(
        &mut config,
        json!({
            "name": FILTER,
            // Off on the listener, on again on each route of the policy.
            "disabled": true,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "config": {
                    "name": plugin["name"],
                    "root_id": plugin["rootID"],
                    "vm_config": {
                        "vm_id": "envoyextensionpolicy/default/warmroute/wasm/0",
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": built_plugin(),
                    },
                    "configuration": {
                        "@type": "type.googleapis.com/google.protobuf.StringValue",
                        "value": plugin["config"].to_string(),
                    },
                },
            },
        }),
    );
    let route = format!("{MANAGER}{VIRTUAL_HOST}/routes/0");
    config.pointer_mut(&route).unwrap()["typed_per_filter_config"] = json!({FILTER: {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
        "config": {},
    }});
    let balancing = &of_kind(&documents, "BackendTrafficPolicy")["spec"]["loadBalancer"];
    assert_eq!(balancing["type"], "LeastRequest");
    config["static_resources"]["clusters"][0]["load_balancing_policy"] = json!({"policies": [{
        "typed_extension_config": {
            "name": "envoy.load_balancing_policies.override_host",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
                "override_host_sources": balancing["endpointOverride"]["extractFrom"],
                "fallback_policy": {"policies": [{"typed_extension_config": {
                    "name": "envoy.load_balancing_policies.least_request",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
                    },
                }}]},
            },
        },
    }]});
    for patch in of_kind(&documents, "EnvoyPatchPolicy")["spec"]["jsonPatches"]
        .as_array()
        .unwrap()
    {
        let operation = &patch["operation"];
        assert_eq!(operation["op"], "add");
        let Some(path) = operation["jsonPath"].as_str() else {
            assert_eq!(operation["path"], "", "a resource of its own");
            assert_eq!(operation["value"]["name"], patch["name"]);
            add_cluster(&mut config, &operation["value"]);
            continue;
        };
        let found = places(&mut config, path);
        assert!(!found.is_empty(), "{path} names nothing");
        for place in found {
            place[operation["path"].as_str().unwrap()] = operation["value"].clone();
        }
    }
    config
}

/// Merges as protobuf does: members of messages one by one, lists by adding.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.iter().cloned()),
        (into, from) => *into = from.clone(),
    }
}

/// What Istio makes of `istio/warmroute.yaml`, put into a bootstrap whose cluster it calls as Istio does.
pub fn istio(bootstrap: Value) -> Value {
    let documents = documents("envoy/istio/warmroute.yaml");
    let filter = of_kind(&documents, "EnvoyFilter");
    let mut config = bare(bootstrap);
    let route = format!("{MANAGER}{VIRTUAL_HOST}/routes/0/route/cluster");
    *config.pointer_mut(&route).unwrap() = json!(ISTIO_CLUSTER);
    let inference = &mut config["static_resources"]["clusters"][0];
    inference["name"] = json!(ISTIO_CLUSTER);
    inference["load_assignment"]["cluster_name"] = json!(ISTIO_CLUSTER);
    // What Istio writes into a cluster besides.
    inference["lb_policy"] = json!("LEAST_REQUEST");
    inference["common_lb_config"] = json!({});
    let mut applied = Vec::new();
    for patch in filter["spec"]["configPatches"].as_array().unwrap() {
        let (target, operation) = (
            patch["applyTo"].as_str().unwrap(),
            patch["patch"]["operation"].as_str().unwrap(),
        );
        let mut value = patch["patch"]["value"].clone();
        assert_eq!(patch["match"]["context"], "GATEWAY");
        match (target, operation) {
            ("HTTP_FILTER", "INSERT_BEFORE") => {
                let code = &mut value["typed_config"]["config"]["vm_config"]["code"];
                assert_eq!(
                    code["local"]["filename"],
                    "/etc/warmroute/warmroute-envoy.wasm"
                );
                *code = built_plugin();
                insert_filter(&mut config, value);
            }
            ("LISTENER", "MERGE") => merge(&mut config["static_resources"]["listeners"][0], &value),
            ("VIRTUAL_HOST", "MERGE") => {
                let host = config
                    .pointer_mut(&format!("{MANAGER}{VIRTUAL_HOST}"))
                    .unwrap();
                merge(host, &value);
            }
            ("CLUSTER", "MERGE") => merge(&mut config["static_resources"]["clusters"][0], &value),
            ("CLUSTER", "ADD") => add_cluster(&mut config, &value),
            other => panic!("{other:?}"),
        }
        applied.push(target);
    }
    assert_eq!(
        applied,
        [
            "HTTP_FILTER",
            "LISTENER",
            "VIRTUAL_HOST",
            "CLUSTER",
            "CLUSTER"
        ]
    );
    config
}
