//! The README names every metric and every reason to fall back.

use std::fs;

use warmroute::fallback::Fallback;
use warmroute::pick::Branch;
use warmroute::request::Cut;
use warmroute::telemetry::{Counter, Gauge, Histogram, Series};

fn readme() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap()
}

#[test]
fn every_metric_is_in_the_readme() {
    let readme = readme();
    let counters = Counter::all().map(|counter| match counter {
        Counter::Decision(_) => "warmroute_decision_total.branch.<branch>".to_owned(),
        Counter::Fallback(_) => "warmroute_fallback_total.reason.<reason>".to_owned(),
        Counter::Answered(_) => "warmroute_answered_total.status.<status>".to_owned(),
        Counter::Cut(_) => "warmroute_prompt_cut_total.budget.<budget>".to_owned(),
        plain => plain.name(),
    });
    let gauges = Gauge::ALL.map(|gauge| gauge.name().to_owned());
    let histograms = Histogram::ALL.map(|histogram| histogram.name().to_owned());
    let series = Series::ALL.map(|series| series.of("<endpoint>"));
    for name in counters.chain(gauges).chain(histograms).chain(series) {
        assert!(
            readme.contains(&format!("`{name}`")),
            "README.md lacks `{name}`"
        );
    }
}

#[test]
fn every_label_is_in_the_readme() {
    let readme = readme();
    for reason in Fallback::ALL {
        assert!(
            readme.contains(&format!("| `{}` |", reason.name())),
            "README.md lacks {}",
            reason.name()
        );
    }
    for name in Branch::ALL
        .map(Branch::name)
        .into_iter()
        .chain(Cut::ALL.map(Cut::name))
    {
        assert!(
            readme.contains(&format!("`{name}`")),
            "README.md lacks {name}"
        );
    }
}

#[test]
fn the_readme_names_no_metric_that_is_not_there() {
    let readme = readme();
    let known: Vec<String> = Counter::all()
        .map(Counter::name)
        .chain(Gauge::ALL.map(|gauge| gauge.name().to_owned()))
        .chain(Histogram::ALL.map(|histogram| histogram.name().to_owned()))
        .chain(Series::ALL.map(|series| series.name().to_owned()))
        .collect();
    for word in readme
        .split('`')
        .filter(|word| word.starts_with("warmroute_"))
    {
        let stem = word.split('.').next().unwrap_or(word);
        assert!(
            known
                .iter()
                .any(|name| name.split('.').next() == Some(stem)),
            "no such metric: {word}"
        );
    }
}
