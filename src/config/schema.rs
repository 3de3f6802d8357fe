//! The configuration's JSON schema and the table for people, both from the types that read the text.
//!
//! Built with the feature `schema` only; `cargo run -p warmroute --example schema` writes both files.

use core::fmt::Write as _;
use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::text::ConfigText;
use super::value::{
    Address, Alpha, ClassText, Given, HeaderName, List, Literal, Member, Name, Names, Object,
    SecretText, Share, Switch, UrlPath, Weight, Whole, Word,
};

/// The schema (draft 2020-12) of what a gateway hands to the plugin.
#[must_use]
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let _reference = generator.subschema_for::<ConfigText>();
    let mut defs = generator.take_definitions(true);
    let Some(Value::Object(mut rule)) = defs.remove("ConfigText") else {
        return Value::Null;
    };
    let mut top = rule.clone();
    let takes = |object: &mut Map<String, Value>, keep: fn(&str) -> bool| {
        if let Some(Value::Object(properties)) = object.get_mut("properties") {
            properties.retain(|key, _| keep(key));
        }
    };
    takes(&mut top, |key| !key.starts_with("_match_"));
    takes(&mut rule, |key| key != "_rules_");
    let matchers = [
        "_match_route_",
        "_match_service_",
        "_match_domain_",
        "_match_route_prefix_",
    ];
    let one_of_them: Vec<Value> = matchers
        .iter()
        .map(|key| json!({ "required": [key] }))
        .collect();
    rule.insert("anyOf".to_owned(), one_of_them.into());
    rule.insert(
        "description".to_owned(),
        "A configuration for the requests that it matches.".into(),
    );
    if let Some(items) = top
        .get_mut("properties")
        .and_then(|all| all.pointer_mut("/_rules_/items"))
    {
        *items = json!({ "$ref": "#/$defs/Rule" });
    }
    defs.insert("Rule".to_owned(), rule.into());
    top.insert(
        "description".to_owned(),
        "Configuration of the warmroute plugin.".into(),
    );
    let mut root = Map::new();
    root.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    root.insert("title".to_owned(), "warmroute".into());
    root.extend(top);
    root.insert("$defs".to_owned(), defs.into());
    let mut root = Value::Object(root);
    // The same text whatever map serde_json was built with.
    root.sort_all_objects();
    root
}

/// The schema as `plugin-config/schema.json` holds it.
#[must_use]
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

/// One key of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Dotted path; `[]` stands for each entry of a list.
    pub path: String,
    /// What it may be, with its range.
    pub kind: String,
    /// Default where it does not depend on other keys.
    pub default: Option<Value>,
    /// What it means.
    pub meaning: String,
    /// Whether it stands inside a rule of `_rules_` only.
    pub in_rule: bool,
}

/// Every key, by name; those of rules last.
#[must_use]
pub fn keys() -> Vec<Key> {
    let root = schema();
    let mut keys = Vec::new();
    collect(&root, &root, "", &mut keys);
    let rule = root
        .pointer("/$defs/Rule/properties")
        .and_then(Value::as_object);
    let matchers = rule
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("_match_"));
    keys.extend(matchers.map(|(key, schema)| Key {
        in_rule: true,
        ..leaf(key.clone(), schema)
    }));
    keys
}

fn collect(root: &Value, object: &Value, at: &str, keys: &mut Vec<Key>) {
    let properties = object.get("properties").and_then(Value::as_object);
    for (name, written) in properties.into_iter().flatten() {
        let path = if at.is_empty() {
            name.clone()
        } else {
            format!("{at}.{name}")
        };
        let schema = follow(root, written);
        let items = schema.get("items").map(|items| follow(root, items));
        if schema.get("properties").is_some() {
            collect(root, schema, &path, keys);
        } else if name != "_rules_" && items.is_some_and(|items| items.get("properties").is_some())
        {
            keys.push(leaf(path.clone(), written));
            collect(root, items.unwrap_or(schema), &format!("{path}[]"), keys);
        } else {
            keys.push(leaf(path, written));
        }
    }
}

fn follow<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|name| name.strip_prefix('#'));
    target
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

fn leaf(path: String, schema: &Value) -> Key {
    Key {
        path,
        kind: kind(schema),
        default: schema.get("default").cloned(),
        meaning: schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        in_rule: false,
    }
}

fn kind(schema: &Value) -> String {
    if let Some(title) = schema.get("title").and_then(Value::as_str) {
        return title.to_owned();
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let shown = words.iter().filter(|word| !word.is_null() && *word != "");
        return shown
            .map(|word| format!("`{}`", plain(word)))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let bound = |key: &str| schema.get(key).map(plain);
    match schema.get("type").and_then(Value::as_str) {
        Some("integer") => {
            let (min, max) = (bound("minimum"), bound("maximum"));
            format!(
                "whole number, {} to {}",
                min.unwrap_or_default(),
                max.unwrap_or_default()
            )
        }
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("array") => {
            let items = schema.get("items");
            let of = items
                .and_then(|items| items.get("title"))
                .map_or("object".to_owned(), plain);
            let (min, max) = (bound("minItems"), bound("maxItems"));
            format!(
                "list, {} to {}: {of}",
                min.unwrap_or_default(),
                max.unwrap_or_default()
            )
        }
        other => other.unwrap_or("object").to_owned(),
    }
}

/// A value without JSON's quotes.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The table as `docs/CONFIGURATION.md` holds it.
#[must_use]
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    let row = |text: &mut String, key: &Key| {
        let default = key
            .default
            .as_ref()
            .map_or(String::new(), |value| format!("`{}`", plain(value)));
        let _ = writeln!(
            text,
            "| `{}` | {} | {default} | {} |",
            key.path,
            key.kind,
            key.meaning.replace('|', "\\|")
        );
    };
    for key in keys().iter().filter(|key| !key.in_rule) {
        row(&mut text, key);
    }
    text.push_str(RULES);
    for key in keys().iter().filter(|key| key.in_rule) {
        row(&mut text, key);
    }
    text.push_str(FROM_HIGRESS);
    text
}

const HEAD: &str = "\
# Configuration

JSON, or the YAML that a gateway's control plane turns into it. No configuration at all means: on, with
the defaults below. A text with anything unknown, out of range or contradictory in it is refused as a
whole; the gateway's log then says key, value, reason and remedy in one line.

`plugin-config/schema.json` is the same as a JSON schema, `plugin-config/examples/` holds whole
configurations. This page is generated from the types that read the text.

| key | type and range | default | meaning |
|---|---|---|---|
";

const FROM_HIGRESS: &str = "
## From Higress's ai-endpoint-picker

Every key of that plugin is read here with its ranges. `profile: default` or `balanced`, or `weights`
without a profile, keeps its meaning and its defaults: weights 2, 2, 3, 0, 1, 0, blocks of 1024 tokens, 32
of them, tools by identity, 31250 cache blocks an endpoint. Two things differ:

- with neither `profile` nor `weights` the profile here is `cost`; write `profile: default` to keep
  the weighted sum;
- a key that is unknown, empty (`null`) or given twice refuses the text instead of being passed over.

| key there | becomes |
|---|---|
| `prefix.blockSizeTokens` | blocks of 4 times as many bytes of prompt |
| `prefix.maxBlocks` | the most blocks of a prompt; with `cost` and no block size, the same length of prompt in finer blocks |
| `prefix.maxCacheBlocksPerEndpoint` | 16 times as many tokens where the engine does not tell its cache, and the bound on the blocks that it tells |
| `feedback.ewmaAlpha` | the smoothing of the failure signal; no effect with `cost` |
| `picker.mode` | nothing: the best endpoint is always taken |
";

const RULES: &str = "
## Rules

An entry of `_rules_` is a whole configuration with one or more of these keys. Of several kinds in one
entry the first of these counts, as in every Higress plugin: route (with service), domain, service,
route prefix (with consumer).

| key | type and range | default | meaning |
|---|---|---|---|
";

macro_rules! same_schema_as_inner {
    ($($wrapper:ident),*) => {$(
        impl<T: JsonSchema> JsonSchema for $wrapper<T> {
            fn inline_schema() -> bool {
                T::inline_schema()
            }
            fn schema_name() -> Cow<'static, str> {
                T::schema_name()
            }
            fn schema_id() -> Cow<'static, str> {
                T::schema_id()
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                T::json_schema(generator)
            }
        }
    )*};
}

same_schema_as_inner!(Given, Object, Word);

macro_rules! inline_schema {
    ($([$($generic:tt)*] $name:ty: $schema:expr;)*) => {$(
        impl<$($generic)*> JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

inline_schema! {
    [const MIN: u64, const MAX: u64] Whole<MIN, MAX>:
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX });
    [] Share: json_schema!({
        "title": "number, 0 to 1", "type": "number", "minimum": 0, "maximum": 1
    });
    [] Alpha: json_schema!({
        "title": "number over 0, up to 1", "type": "number", "exclusiveMinimum": 0, "maximum": 1
    });
    [] Weight: json_schema!({
        "title": "number, 0 or more", "type": "number", "minimum": 0, "maximum": 1e300
    });
    [] HeaderName: json_schema!({
        "title": "header name", "type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"
    });
    [] Address: json_schema!({
        "title": "address", "type": "string", "pattern": "^([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}$"
    });
    [] Member: json_schema!({
        "title": "address or name", "type": "string", "minLength": 1, "maxLength": 512, "pattern": "^[^\\x00-\\x1f\\x7f]+$"
    });
    [] Name: json_schema!({
        "title": "name", "type": "string", "minLength": 1, "maxLength": 512, "pattern": "^[^\\x00-\\x1f\\x7f]+$"
    });
    [] UrlPath: json_schema!({
        "title": "path", "type": "string", "maxLength": 1024, "pattern": "^/[!-~]*$"
    });
    [] SecretText: json_schema!({
        "title": "secret", "type": "string", "minLength": 8, "maxLength": 256, "pattern": "^[!-~]+$"
    });
    [] Literal: json_schema!({
        "title": "text, 1 to 128 bytes", "type": "string", "minLength": 1, "maxLength": 128
    });
    [] ClassText: json_schema!({
        "title": "characters and ranges", "type": "string", "pattern": "^[ -~]+$"
    });
    [] Names: json_schema!({
        "title": "name, or list of names",
        "anyOf": [
            { "type": "string", "minLength": 1, "maxLength": 512 },
            { "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1, "maxLength": 512 } }
        ]
    });
    [] Switch: json_schema!({ "enum": [true, false, "on", "off"] });
}

impl<T: JsonSchema, const MIN: usize, const MAX: usize> JsonSchema for List<T, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": MIN, "maxItems": MAX })
    }
}
