//! What Higress's console and control plane read of `higress/`, and what the migration page advises, held
//! against the plugin's own schema and reader.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warmroute::config::Plugin;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn document(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
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
    let manifest = document("higress/wasmplugin.yaml");
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
fn versions_are_the_crates() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(text("higress/VERSION").trim(), version);
    assert_eq!(document("higress/spec.yaml")["info"]["version"], version);
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
                form["type"] = json!("boolean");
            }
            "enum" => {
                let words = rule.as_array().unwrap().iter();
                let words = words.filter(|one| one.as_str().is_some_and(|one| !one.is_empty()));
                form[keyword] = words.cloned().collect();
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
    let shown = &document("higress/spec.yaml")["spec"]["configSchema"]["openAPIV3Schema"];
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

/// The configurations that the migration page tells people to write, in its code spans.
#[test]
fn the_plugin_takes_what_the_migration_page_says_to_write() {
    let page = text("docs/MIGRATION.md");
    let advice: Vec<&str> = page
        .split('`')
        .filter(|span| {
            ["weights: {", "session: {"]
                .iter()
                .any(|start| span.starts_with(start))
        })
        .collect();
    assert!(advice.len() >= 5, "{advice:?}");
    for span in advice {
        let config: Value =
            serde_saphyr::from_str(&span.replace("<hash_header>", "x-user")).unwrap();
        Plugin::parse(config.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{span}: {error}"));
    }
}
