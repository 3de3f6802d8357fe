//! The dashboard and the alert rules in `envoy/` against the metrics that there are, by the names that
//! Prometheus gets: `.reason.x` and the like as labels, histograms as `_bucket`, `_sum` and `_count`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use warmroute::fallback::Fallback;
use warmroute::overload::Refusal;
use warmroute::pick::Branch;
use warmroute::request::Cut;
use warmroute::telemetry::{Counter, Gauge, Histogram, Series};

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// Counters by their names before the first label, gauges, histograms: what a reader asks for.
fn metrics() -> BTreeSet<String> {
    let counters = Counter::all().map(|counter| {
        counter
            .name()
            .split('.')
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    let gauges = Gauge::ALL.map(|gauge| gauge.name().to_owned());
    let histograms = Histogram::ALL.map(|histogram| histogram.name().to_owned());
    let series = Series::ALL.map(|series| series.name().to_owned());
    let all = counters.chain(gauges).chain(histograms).chain(series);
    all.collect()
}

/// The metrics that a text names, without the suffixes of histograms; panics on one that is not there.
fn named(text: &str) -> BTreeSet<String> {
    let metrics = metrics();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("warmroute_") {
        let name: String = text[at..].chars().take_while(|c| word(*c)).collect();
        let series = Histogram::ALL.iter().find_map(|histogram| {
            let suffix = name.strip_prefix(histogram.name())?;
            assert!(
                ["_bucket", "_sum", "_count"].contains(&suffix),
                "{name}: a histogram has no such series"
            );
            Some(histogram.name().to_owned())
        });
        let metric = series.unwrap_or_else(|| name.clone());
        assert!(metrics.contains(&metric), "no such metric: {name}");
        found.insert(metric);
    }
    found
}

fn expressions() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&text("envoy/grafana-dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    targets
        .map(|target| target["expr"].as_str().expect("an expression").to_owned())
        .collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_none_that_is_not_there() {
    assert_eq!(named(&expressions().join("\n")), metrics());
}

#[test]
fn each_label_is_asked_of_the_metric_that_has_it() {
    for expression in expressions() {
        let label = |name: &str| expression.contains(&format!("by ({name})"));
        assert_eq!(
            label("branch"),
            expression.contains("warmroute_decision_total"),
            "{expression}"
        );
        assert_eq!(
            label("reason"),
            expression.contains("warmroute_fallback_total"),
            "{expression}"
        );
        assert_eq!(
            label("budget"),
            expression.contains("warmroute_prompt_cut_total"),
            "{expression}"
        );
        assert!(
            !label("endpoint") || expression.contains("warmroute_endpoint_"),
            "{expression}"
        );
        assert_eq!(
            label("status"),
            expression.contains("warmroute_answered_total"),
            "{expression}"
        );
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_imports() {
    let dashboard: Value =
        serde_json::from_str(&text("envoy/grafana-dashboard.json")).expect("JSON");
    assert!(dashboard["title"].is_string() && dashboard["uid"].is_string());
    assert!(
        dashboard["schemaVersion"]
            .as_u64()
            .is_some_and(|version| version >= 36)
    );
    assert!(
        dashboard.get("id").is_none(),
        "an id would overwrite somebody's own dashboard"
    );
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().expect("an id")),
            "ids are unique"
        );
        assert!(panel["type"].is_string() && panel["title"].is_string());
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for row in place("y")..place("y") + place("h") {
            for column in place("x")..place("x") + place("w") {
                assert!(
                    taken.insert((row, column)),
                    "{} lies on another panel",
                    panel["title"]
                );
            }
        }
    }
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let names: Vec<_> = variables
        .iter()
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    assert_eq!(names, ["datasource", "job"]);
}

#[test]
fn the_alerts_name_metrics_and_reasons_that_are_there() {
    let alerts = text("envoy/alerts.yaml");
    let found = named(&alerts);
    for metric in [
        "warmroute_fallback_total",
        "warmroute_predicted_hit_tokens_total",
        "warmroute_delivered_hit_tokens_total",
        "warmroute_snapshot_age_ms",
        "warmroute_exchange_gap_total",
    ] {
        assert!(found.contains(metric), "no alert looks at {metric}");
    }
    let mut filters = 0;
    for filter in alerts.split("{reason").skip(1) {
        let reasons = filter.split('"').nth(1).expect("a quoted filter");
        for reason in reasons.split('|') {
            assert!(
                Fallback::ALL.iter().any(|known| known.name() == reason),
                "no such reason: {reason}"
            );
        }
        filters += 1;
    }
    assert!(filters >= 2);
}

#[test]
fn every_labelled_metric_has_its_rule_in_both_files() {
    let (bootstrap, relabel) = (
        text("envoy/envoy.yaml"),
        text("envoy/prometheus-relabel.yaml"),
    );
    let labelled = [
        Counter::Fallback(Fallback::NoBody).name(),
        Counter::Decision(Branch::Prefix).name(),
        Counter::Cut(Cut::ALL[0]).name(),
        Counter::Answered(Refusal::Overloaded).name(),
    ];
    for name in labelled {
        let [metric, label, _] = *name.split('.').collect::<Vec<_>>() else {
            panic!("{name}")
        };
        let tag = format!(r"tag_name: {label}, regex: '^wasmcustom\.{metric}(\.{label}\.(\w+))$'");
        assert!(bootstrap.contains(&tag), "envoy.yaml lacks {tag}");
        let value = format!("regex: {metric}_{label}_(.+)\n    target_label: {label}");
        assert!(
            relabel.contains(&value),
            "prometheus-relabel.yaml lacks {value}"
        );
        let rename = format!("regex: ({metric})_{label}_.+\n    target_label: __name__");
        assert!(
            relabel.contains(&rename),
            "prometheus-relabel.yaml lacks {rename}"
        );
    }
    // Addresses hold dots and colons: the whole rest is the label's value.
    let tag =
        r"tag_name: endpoint, regex: '^wasmcustom\.warmroute_endpoint_\w+(\.endpoint\.(.+))$'";
    assert!(bootstrap.contains(tag), "envoy.yaml lacks {tag}");
    let names = Series::ALL.map(|series| {
        let suffix = series.name().strip_prefix("warmroute_endpoint_");
        suffix.expect("one prefix for all")
    });
    let names = names.join("|");
    for rule in [
        format!("regex: warmroute_endpoint_(?:{names})_endpoint_(.+)\n    target_label: endpoint"),
        format!("regex: (warmroute_endpoint_(?:{names}))_endpoint_.+\n    target_label: __name__"),
    ] {
        assert!(
            relabel.contains(&rule),
            "prometheus-relabel.yaml lacks {rule}"
        );
    }
    let dots = Counter::all()
        .filter(|counter| counter.name().contains('.'))
        .count();
    assert_eq!(
        dots,
        Fallback::ALL.len() + Branch::ALL.len() + Cut::ALL.len() + Refusal::ALL.len(),
        "a metric with a new label"
    );
}
