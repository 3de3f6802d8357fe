//! Where each key's range ends, and that its default written out changes nothing: by the schema's own figures.

use serde_json::{Value, json};
use warmroute::config::{Config, schema};

use super::{parse, refused};

/// A configuration that gives one key, with what else the key needs around it.
pub fn with(path: &str, value: Value) -> String {
    let mut value = value;
    for name in path.split('.').rev() {
        value = match name.strip_suffix("[]") {
            Some(list) => json!({ list: [value] }),
            None => json!({ name: value }),
        };
    }
    if let Some(entry) = value
        .pointer_mut("/prompt/ignore/0")
        .and_then(Value::as_object_mut)
    {
        entry.entry("prefix").or_insert(json!("a"));
        entry.entry("class").or_insert(json!("b"));
    }
    if let Some(split) = value
        .pointer_mut("/disaggregation")
        .and_then(Value::as_object_mut)
    {
        split.entry("prefill").or_insert(json!(["10.0.0.1:8000"]));
    }
    if let Some(profiles) = value
        .pointer_mut("/profiles")
        .and_then(Value::as_object_mut)
    {
        profiles.entry("allow").or_insert(json!(["cost"]));
    }
    if let Some(replicas) = value
        .pointer_mut("/replicas")
        .and_then(Value::as_object_mut)
    {
        replicas.entry("store").or_insert(json!("redis"));
        replicas.entry("cluster").or_insert(json!("c"));
    }
    if let Some(metrics) = value.pointer_mut("/metrics").and_then(Value::as_object_mut) {
        // Each alone would contradict the other's default at the far end of its range.
        if metrics.contains_key("refreshMs") {
            metrics.insert("staleAfterMs".into(), json!(60_000));
        } else if metrics.contains_key("staleAfterMs") {
            metrics.insert("refreshMs".into(), json!(50));
        }
    }
    value.to_string()
}

#[test]
fn every_whole_number_ends_where_the_schema_says() {
    let mut checked = 0;
    for key in schema::keys() {
        let Some(range) = key.kind.strip_prefix("whole number, ") else {
            continue;
        };
        let (min, max) = range.split_once(" to ").expect("a range");
        let (min, max): (i64, i64) = (min.parse().expect("min"), max.parse().expect("max"));
        #[allow(clippy::cast_precision_loss)]
        let spelled_as_double = json!(max as f64);
        for good in [json!(min), json!(max), spelled_as_double] {
            parse(&with(&key.path, good));
        }
        for bad in [
            json!(min - 1),
            json!(max + 1),
            json!(1.5),
            json!(1e30),
            json!("1"),
            json!(null),
            json!([1]),
        ] {
            let error = refused(&with(&key.path, bad));
            let path = key.path.replace("[]", "[0]");
            assert!(
                error.starts_with(&path) && error.ends_with(range),
                "{error}"
            );
        }
        checked += 1;
    }
    assert!(checked >= 18, "{checked} keys hold whole numbers");
}

#[test]
fn every_other_number_ends_where_the_schema_says() {
    let mut checked = 0;
    for key in schema::keys() {
        let (good, bad) = match key.kind.as_str() {
            "number, 0 to 1" => (
                vec![json!(0), json!(1), json!(0.5)],
                vec![json!(-0.1), json!(1.0001)],
            ),
            "number over 0, up to 1" => {
                (vec![json!(1e-9), json!(1)], vec![json!(0), json!(1.0001)])
            }
            "number, 0 or more" => (vec![json!(0), json!(1e300)], vec![json!(-1), json!(1e301)]),
            _ => continue,
        };
        for value in good {
            parse(&with(&key.path, value));
        }
        for value in bad
            .into_iter()
            .chain([json!("1"), json!(null), json!(true)])
        {
            let error = refused(&with(&key.path, value));
            assert!(error.starts_with(&key.path), "{error}");
        }
        checked += 1;
    }
    assert_eq!(checked, 11);
}

/// What turns on the section of a key that does nothing without it.
fn opt_in(path: &str) -> Option<&'static str> {
    match path.split_once('.')? {
        ("overload", name) if name != "mode" => Some(r#"{"overload":{"mode":"shed"}}"#),
        ("profiles", _) => Some(r#"{"profiles":{"allow":["cost"]}}"#),
        ("disaggregation", _) => Some(r#"{"disaggregation":{"prefill":["10.0.0.1:80"]}}"#),
        _ => None,
    }
}

#[test]
fn a_default_written_out_changes_nothing() {
    let mut checked = 0;
    for key in schema::keys() {
        let Some(default) = key.default else { continue };
        let (text, base) = if key.path.starts_with("weights") {
            (with(&key.path, default), parse(r#"{"profile":"default"}"#))
        } else if key.path.starts_with("prompt") {
            (
                with(&key.path, default),
                parse(r#"{"prompt":{"ignore":[{"prefix":"a","class":"b"}]}}"#),
            )
        } else if let Some(base) = opt_in(&key.path) {
            let mut written: Value = serde_json::from_str(base).expect("JSON");
            let (section, name) = key.path.split_once('.').expect("a section");
            written[section][name] = default;
            (written.to_string(), parse(base))
        } else if key.path.starts_with("replicas") {
            (
                with(&key.path, default),
                parse(r#"{"replicas":{"store":"redis","cluster":"c"}}"#),
            )
        } else {
            let mut written = json!({});
            let mut at = &mut written;
            for name in key.path.split('.') {
                at = &mut at[name];
            }
            *at = default;
            (written.to_string(), Config::default())
        };
        assert_eq!(parse(&text), base, "{text}");
        checked += 1;
    }
    assert!(checked >= 28, "{checked} keys have a default");
}
