//! The manifests for gateways with a control plane, as far as a real Envoy can judge them: each fragment is
//! put where the control plane puts it, in the bootstrap of `envoy/envoy.yaml`, and Envoy validates the
//! whole, which also loads the plugin and hands it its configuration. And what Higress's console and
//! control plane read of `higress/`, held against the plugin's own schema.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warmroute::config::Plugin;
use warmroute_lab::client::{Call, Client, Protocol};
use warmroute_lab::engine_sim::{EngineSim, SimOptions};
use warmroute_lab::envoy::{
    Envoy, EnvoyOptions, PICK_HEADER, Routing, find_binary, plugin_configuration, validate,
};

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const VIRTUAL_HOST: &str = "/route_config/virtual_hosts/0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    let one = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    one
}

/// `envoy/envoy.yaml` without what the manifests have to bring: filter, limits, policy, checks, admin.
fn bare() -> Value {
    let mut config = documents("envoy/envoy.yaml").remove(0);
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

fn insert_filter(config: &mut Value, filter: Value) {
    let filters = config
        .pointer_mut(&format!("{MANAGER}/http_filters"))
        .unwrap();
    let filters = filters.as_array_mut().unwrap();
    filters.insert(filters.len() - 1, filter);
}

fn add_cluster(config: &mut Value, cluster: &Value) {
    config["static_resources"]["clusters"]
        .as_array_mut()
        .unwrap()
        .push(cluster.clone());
}

fn built_plugin() -> Value {
    json!({"local": {"filename": root().join("dist/warmroute-envoy.wasm")}})
}

fn check(config: &Value) {
    validate(&find_binary().unwrap(), config).unwrap();
}

/// The places that a patch's `jsonPath` names; of JSONPath only what the patches use: `..list[*]` and
/// `..list[?(@.name =~ 'part')]`, then members.
fn places<'a>(document: &'a mut Value, path: &str) -> Vec<&'a mut Value> {
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

fn descend<'a>(value: &'a mut Value, list: &str, visit: &mut impl FnMut(&'a mut Value)) {
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

/// What Envoy Gateway makes of `envoy-gateway/warmroute.yaml`, put into the bootstrap.
fn envoy_gateway() -> Value {
    let documents = documents("envoy/envoy-gateway/warmroute.yaml");
    let mut config = bare();
    let plugin = &of_kind(&documents, "EnvoyExtensionPolicy")["spec"]["wasm"][0];
    // Its translator writes these fields, and no others, under this name.
    insert_filter(
        &mut config,
        json!({
            "name": "envoy.filters.http.wasm/envoyextensionpolicy/default/warmroute/wasm/0",
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

#[test]
fn envoy_takes_what_envoy_gateway_makes_of_the_policies() {
    let config = envoy_gateway();
    let manager = config.pointer(MANAGER).unwrap();
    let filters = manager["http_filters"].as_array().unwrap();
    let plugin = &filters[filters.len() - 2]["typed_config"]["config"];
    assert_eq!(plugin["allow_on_headers_stop_iteration"], true);
    assert_eq!(plugin["failure_policy"], "FAIL_RELOAD");
    assert_eq!(
        manager.pointer(VIRTUAL_HOST).unwrap()["request_body_buffer_limit"],
        16_777_216
    );
    check(&config);
}

#[test]
fn envoy_gateways_policies_name_the_same_route_and_header() {
    let documents = documents("envoy/envoy-gateway/warmroute.yaml");
    let plugin = of_kind(&documents, "EnvoyExtensionPolicy");
    let traffic = of_kind(&documents, "BackendTrafficPolicy");
    assert_eq!(plugin["spec"]["targetRefs"], traffic["spec"]["targetRefs"]);
    assert_eq!(
        traffic["spec"]["loadBalancer"]["endpointOverride"]["extractFrom"],
        json!([{"header": PICK_HEADER}])
    );
    assert_eq!(
        plugin["spec"]["wasm"][0]["config"]["endpoints"]["admin"]["cluster"],
        "envoy_admin"
    );
}

/// Merges as protobuf does: members of messages one by one, lists by adding.
fn merge(into: &mut Value, from: &Value) {
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

#[test]
fn envoy_takes_every_fragment_of_the_istio_filter_where_istio_puts_it() {
    let documents = documents("envoy/istio/warmroute.yaml");
    let filter = of_kind(&documents, "EnvoyFilter");
    let mut config = bare();
    // What Istio writes into a cluster besides.
    let inference = &mut config["static_resources"]["clusters"][0];
    inference["lb_policy"] = json!("LEAST_REQUEST");
    inference["common_lb_config"] = json!({"locality_weighted_lb_config": {}});
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
    check(&config);
}

#[test]
fn the_file_that_the_istio_filter_names_is_the_one_that_is_mounted() {
    let volume = documents("envoy/istio/gateway-volume.yaml").remove(0);
    let pod = &volume["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["volumeMounts"][0]["mountPath"],
        "/etc/warmroute"
    );
    assert_eq!(
        pod["volumes"][0]["name"],
        pod["containers"][0]["volumeMounts"][0]["name"]
    );
}

#[test]
fn envoy_refuses_a_fragment_with_a_field_that_is_none() {
    let mut config = envoy_gateway();
    let plugin = places(
        &mut config,
        "..http_filters[?(@.name =~ 'wasm')].typed_config.config",
    )
    .remove(0);
    plugin["allow_on_headers_stop_iterations"] = json!(true);
    let refusal = validate(&find_binary().unwrap(), &config).unwrap_err();
    assert!(
        format!("{refusal:#}").contains("allow_on_headers_stop_iterations"),
        "{refusal:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_and_branches_are_labels_and_histograms_have_their_series() {
    let sim = EngineSim::start(SimOptions::default()).await.unwrap();
    let routing = Routing::Warmroute {
        wasm: root().join("dist/warmroute-envoy.wasm"),
        configuration: plugin_configuration().unwrap(),
    };
    let envoy = Envoy::start(&EnvoyOptions::new(vec![sim.addr.to_string()], routing))
        .await
        .unwrap();
    let client = Client::new(Protocol::Http1);
    let body = r#"{"messages":[{"role":"user","content":"hello"}],"max_tokens":1,"stream":true}"#;
    let wanted = [
        r#"warmroute_fallback_total{reason="no_body"} "#,
        r#"warmroute_decision_total{branch=""#,
        "warmroute_request_total{} ",
        "warmroute_ttft_ms_bucket{le=",
        "warmroute_ttft_ms_sum{} ",
        "warmroute_ttft_ms_count{} ",
    ];
    let mut metrics = String::new();
    // Endpoints are known soon after the start, histograms show at Envoy's next flush of them.
    for _ in 0..40 {
        for call in [
            Call::get("/v1/models"),
            Call::post_json("/v1/chat/completions", body),
        ] {
            client.send(&envoy.authority(), &call).await.unwrap();
        }
        metrics = envoy.admin("/stats/prometheus").await.unwrap();
        if wanted.iter().all(|series| metrics.contains(series)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let ours: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("warmroute_"))
        .collect();
    panic!("{wanted:?} are not all in:\n{}", ours.join("\n"));
}

/// What Higress's control plane makes of a WasmPlugin: the rules join the default configuration.
fn as_higress_hands_it_over(plugin: &Value) -> Value {
    let spec = &plugin["spec"];
    let mut config = spec["defaultConfig"].clone();
    let mut rules = Vec::new();
    for rule in spec["matchRules"].as_array().into_iter().flatten() {
        if rule["configDisable"] == true {
            continue;
        }
        let mut whole = rule["config"].clone();
        for (kind, key) in [
            ("ingress", "_match_route_"),
            ("domain", "_match_domain_"),
            ("service", "_match_service_"),
        ] {
            if rule[kind].is_array() {
                whole[key] = rule[kind].clone();
            }
        }
        rules.push(whole);
    }
    config["_rules_"] = rules.into();
    config
}

#[test]
fn the_plugin_takes_what_higress_makes_of_the_manifest() {
    let manifest = documents("higress/wasmplugin.yaml").remove(0);
    let spec = &manifest["spec"];
    assert_eq!(spec["failStrategy"], "FAIL_OPEN");
    assert!(spec["priority"].as_i64().unwrap() < 100, "after ai-proxy");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        spec["url"]
            .as_str()
            .unwrap()
            .ends_with(&format!("/warmroute:{version}"))
    );
    let config = as_higress_hands_it_over(&manifest);
    assert_eq!(
        config["_rules_"][0]["_match_route_"],
        json!(["default/batch"])
    );
    Plugin::parse(config.to_string().as_bytes()).unwrap();
}

#[test]
fn the_health_check_that_keeps_metrics_is_envoys_own_but_for_that_field() {
    let manifest = documents("higress/envoyfilter-store-metrics.yaml").remove(0);
    let patch = &manifest["spec"]["configPatches"][0]["patch"];
    assert_eq!(
        (
            &patch["operation"],
            &patch["value"]["health_checks"][0]["store_metrics"]
        ),
        (&json!("MERGE"), &json!(true))
    );
    let mut config = bare();
    merge(
        &mut config["static_resources"]["clusters"][0],
        &patch["value"],
    );
    let refusal = validate(&find_binary().unwrap(), &config).unwrap_err();
    assert!(
        format!("{refusal:#}").contains("store_metrics"),
        "{refusal:#}"
    );
    let check_of_it = &mut config["static_resources"]["clusters"][0]["health_checks"][0];
    check_of_it.as_object_mut().unwrap().remove("store_metrics");
    check(&config);
}

#[test]
fn versions_are_the_crates() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(text("higress/VERSION").trim(), version);
    assert_eq!(
        documents("higress/spec.yaml")[0]["info"]["version"],
        version
    );
}

/// A schema as Higress's console reads it: OpenAPI 3.0, nothing referenced, no key that does not apply there.
fn for_the_console(root: &Value, schema: &Value, name: Option<&str>) -> Value {
    let mut whole = serde_json::Map::new();
    if let Some(target) = schema["$ref"].as_str() {
        whole.extend(
            root.pointer(&target[1..])
                .unwrap()
                .as_object()
                .unwrap()
                .clone(),
        );
    }
    whole.extend(schema.as_object().unwrap().clone());
    let mut form = json!({});
    for (keyword, rule) in &whole {
        match keyword.as_str() {
            "$schema" | "$defs" | "$ref" | "additionalProperties" | "maxProperties" | "title" => {}
            "properties" => {
                let shown = rule
                    .as_object()
                    .unwrap()
                    .iter()
                    .filter(|(key, _)| !["_rules_", "admin"].contains(&key.as_str()));
                form[keyword] = shown
                    .map(|(key, one)| (key.clone(), for_the_console(root, one, Some(key))))
                    .collect();
            }
            "items" => form[keyword] = for_the_console(root, rule, None),
            "type" => form[keyword] = rule.get(0).unwrap_or(rule).clone(),
            // `on` and `off` beside `true` and `false`: a switch.
            "enum" if rule.as_array().unwrap().contains(&json!(true)) => {
                form["type"] = json!("boolean")
            }
            "enum" => {
                form[keyword] = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|one| one.as_str().is_some_and(|one| !one.is_empty()))
                    .cloned()
                    .collect()
            }
            "exclusiveMinimum" => {
                form["minimum"] = rule.clone();
                form[keyword] = json!(true);
            }
            "maximum" if rule.as_f64().unwrap() > 1e15 => {}
            _ => form[keyword] = rule.clone(),
        }
    }
    if let Some(name) = name {
        form["title"] = json!(name);
    }
    form
}

#[test]
fn the_consoles_schema_is_the_plugins() {
    let schema: Value = serde_json::from_str(&text("plugin-config/schema.json")).unwrap();
    let wanted = for_the_console(&schema, &schema, None);
    let shown = &documents("higress/spec.yaml")[0]["spec"]["configSchema"]["openAPIV3Schema"];
    // 0 and 0.0 are the same bound.
    let same = |a: &Value, b: &Value| a == b || (a.is_number() && a.as_f64() == b.as_f64());
    let keys = |value: &Value| {
        value
            .as_object()
            .map(|members| members.keys().cloned().collect::<Vec<_>>())
    };
    let mut open = vec![(String::new(), wanted, shown.clone())];
    while let Some((path, wanted, shown)) = open.pop() {
        assert_eq!(
            keys(&wanted),
            keys(&shown),
            "higress/spec.yaml: {path}: take it over from plugin-config/schema.json"
        );
        match wanted.as_object() {
            Some(members) => {
                open.extend(
                    members.iter().map(|(key, one)| {
                        (format!("{path}.{key}"), one.clone(), shown[key].clone())
                    }),
                );
            }
            None => assert!(
                same(&wanted, &shown),
                "higress/spec.yaml: {path} is {shown}, not {wanted}"
            ),
        }
    }
}
