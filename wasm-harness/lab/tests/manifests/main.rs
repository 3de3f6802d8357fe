//! The manifests for gateways with a control plane, as far as a real Envoy can judge them: it validates what
//! the control plane would make of each, which also loads the plugin and hands it its configuration; and
//! serves requests with it.

mod live;
mod place;

use place::{
    MANAGER, VIRTUAL_HOST, bare, documents, envoy_gateway, istio, merge, of_kind, places, shipped,
};
use serde_json::{Value, json};
use warmroute_lab::envoy::{PICK_HEADER, find_binary, validate};

fn check(config: &Value) {
    validate(&find_binary().unwrap(), config).unwrap();
}

#[test]
fn envoy_takes_what_envoy_gateway_makes_of_the_policies() {
    let config = envoy_gateway(shipped());
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

#[test]
fn envoy_takes_every_fragment_of_the_istio_filter_where_istio_puts_it() {
    let mut config = istio(shipped());
    check(&config);
    // What the README warns of: Istio's locality settings and a policy of one's own exclude each other.
    config["static_resources"]["clusters"][0]["common_lb_config"] =
        json!({"locality_weighted_lb_config": {}});
    let refusal = validate(&find_binary().unwrap(), &config).unwrap_err();
    assert!(
        format!("{refusal:#}").contains("common_lb_config"),
        "{refusal:#}"
    );
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
    let mut config = envoy_gateway(shipped());
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
    let mut config = bare(shipped());
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
