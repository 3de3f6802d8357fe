//! What is generated from the configuration's types, and the files that people start from.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use warmroute::config::{Plugin, schema};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join(folder))
        .expect(folder)
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect();
    files.sort();
    files
}

#[test]
fn generated_files_are_fresh() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect(path);
    let how = "stale: cargo run -p warmroute --example schema";
    assert!(
        read("plugin-config/schema.json") == schema::schema_text(),
        "{how}"
    );
    assert!(read("docs/CONFIGURATION.md") == schema::markdown(), "{how}");
}

#[test]
fn every_key_is_described() {
    for key in schema::keys() {
        assert!(
            key.meaning.len() > 4 && key.meaning.ends_with('.'),
            "{}: {}",
            key.path,
            key.meaning
        );
        assert!(!key.kind.is_empty(), "{}", key.path);
    }
}

#[test]
fn examples_are_read_and_fit_the_schema() {
    let schema = schema::schema();
    let examples = files("plugin-config/examples");
    assert!(examples.len() >= 8);
    for path in examples {
        let text = fs::read_to_string(&path).expect("an example");
        if let Err(error) = Plugin::parse(text.as_bytes()) {
            panic!("{}: {error}", path.display());
        }
        let value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(fits(&schema, &schema, &value), Ok(()), "{}", path.display());
    }
}

#[test]
fn refusals_say_what_is_written_beside_them() {
    let cases = files("plugin-config/invalid");
    assert!(cases.len() >= 60);
    for path in cases {
        let text = fs::read(&path).expect("a case");
        let message = Plugin::parse(&text)
            .expect_err(&path.display().to_string())
            .to_string();
        let wanted = fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
        assert_eq!(wanted.trim_end(), message, "{}", path.display());
    }
}

/// Refusals that come from several keys together, or from what a pattern says: the schema lets them pass.
const BEYOND_THE_SCHEMA: [&str; 25] = [
    "debug_secret_alone",
    "blocks_twice",
    "block_size_twice",
    "capacity_twice",
    "endpoints_header_of_the_pick",
    "endpoints_static_name",
    "endpoints_static_no_port",
    "endpoints_static_port_zero",
    "endpoints_static_twice",
    "header_name_with_space",
    "ignore_class_backwards",
    "disaggregation_prefill_name",
    "disaggregation_prefill_port",
    "key_twice",
    "metrics_path_relative",
    "prior_with_weighted_sum",
    "profiles_allow_empty_name",
    "replicas_user_with_etcd",
    "replicas_without_exchange",
    "rule_contradiction",
    "rules_empty",
    "slo_with_weighted_sum",
    "stale_before_refresh",
    "weights_all_zero",
    "weights_with_cost",
];

#[test]
fn the_schema_refuses_what_one_key_can_get_wrong() {
    let schema = schema::schema();
    for path in files("plugin-config/invalid") {
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        let Ok(value) = serde_json::from_slice::<Value>(&fs::read(&path).expect("a case")) else {
            continue;
        };
        let passes = fits(&schema, &schema, &value).is_ok();
        assert_eq!(passes, BEYOND_THE_SCHEMA.contains(&name), "{name}");
    }
}

/// The part of JSON Schema that our schema uses, patterns left out; an unknown keyword is an error.
fn fits(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for (keyword, rule) in schema.as_object().expect("a schema") {
        let number = || rule.as_f64().expect("a bound");
        let size = value
            .as_array()
            .map(Vec::len)
            .or(value.as_str().map(|text| text.chars().count()));
        #[allow(clippy::cast_precision_loss)]
        let size = size
            .or(value.as_object().map(serde_json::Map::len))
            .map_or(0.0, |size| size as f64);
        let good = match keyword.as_str() {
            "$defs" | "$schema" | "title" | "description" | "default" | "pattern" => true,
            "$ref" => {
                let target = rule
                    .as_str()
                    .and_then(|name| root.pointer(&name[1..]))
                    .expect("a definition");
                fits(root, target, value)?;
                true
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                kind => is(kind, value),
            },
            "enum" => rule.as_array().expect("words").contains(value),
            "minimum" => value.as_f64().is_none_or(|value| value >= number()),
            "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > number()),
            "maximum" => value.as_f64().is_none_or(|value| value <= number()),
            "minItems" | "minLength" => size >= number(),
            "maxItems" | "maxLength" | "maxProperties" => size <= number(),
            "items" => {
                value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .try_for_each(|value| fits(root, rule, value))?;
                true
            }
            "anyOf" => rule
                .as_array()
                .expect("schemas")
                .iter()
                .any(|one| fits(root, one, value).is_ok()),
            "required" => {
                let names = rule.as_array().expect("names");
                names
                    .iter()
                    .all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    rule.get(name)
                        .map_or(Ok(()), |schema| fits(root, schema, value))?;
                }
                true
            }
            "additionalProperties" => {
                let known = &schema["properties"];
                value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .all(|(name, _)| known.get(name).is_some())
            }
            other => panic!("keyword {other}"),
        };
        if !good {
            return Err(format!("{keyword} {rule}: {value}"));
        }
    }
    Ok(())
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        other => panic!("type {other}"),
    }
}
