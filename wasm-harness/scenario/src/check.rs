//! Compares an outcome with what its scenario expects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{Action, Scenario};
use crate::outcome::{Outcome, RequestOutcome};
use crate::request::{Pick, Request};

/// One thing that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where: a request's name and what of it, a metric.
    pub place: String,
    /// What the file expects.
    pub wanted: String,
    /// What came.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: wanted {}, got {}",
            self.place, self.wanted, self.got
        )
    }
}

/// All differences; none = the scenario holds.
#[must_use]
pub fn check(scenario: &Scenario, outcome: &Outcome) -> Vec<Difference> {
    let mut found = Found(Vec::new());
    found.compare(
        "configuration accepted",
        &!scenario.expect.config_refused,
        &outcome.accepted,
    );
    for error in &outcome.errors {
        found.add("run", "no error", error);
    }
    if outcome.accepted {
        for step in &scenario.steps {
            match &step.action {
                Action::Request(request) => found.request(request, outcome),
                Action::Response(response) => {
                    let headers = outcome
                        .requests
                        .get(&response.to)
                        .map(|got| &got.downstream_headers);
                    found.headers(
                        &response.to,
                        "response",
                        &response.downstream_headers,
                        headers,
                    );
                }
                _ => {}
            }
        }
    }
    if outcome.all_ended {
        for name in ["warmroute_inflight", "warmroute_backlog_tokens"] {
            let left = outcome.metrics.get(name).unwrap_or(&0);
            found.compare(&format!("{name} after all streams ended"), &0, left);
        }
    }
    let picks = outcome
        .requests
        .values()
        .filter_map(|got| got.picked.as_ref());
    let picked = picks.collect::<BTreeSet<_>>().len();
    if picked < scenario.expect.endpoints_picked_at_least {
        let wanted = scenario.expect.endpoints_picked_at_least;
        found.add("endpoints picked", format!("at least {wanted}"), picked);
    }
    for (name, wanted) in &scenario.expect.metrics {
        found.compare(
            &format!("metric {name}"),
            wanted,
            &sum(&outcome.metrics, name),
        );
    }
    found.0
}

/// A metric; named without its label, all of them together.
fn sum(metrics: &BTreeMap<String, u64>, name: &str) -> u64 {
    let is_it = |known: &str| {
        let label = known.strip_prefix(name);
        label.is_some_and(|label| label.is_empty() || label.starts_with('.'))
    };
    let named = metrics.iter().filter(|(known, _)| is_it(known));
    named.map(|(_, count)| count).sum()
}

struct Found(Vec<Difference>);

impl Found {
    fn add(&mut self, place: &str, wanted: impl fmt::Display, got: impl fmt::Display) {
        self.0.push(Difference {
            place: place.to_owned(),
            wanted: wanted.to_string(),
            got: got.to_string(),
        });
    }

    fn compare<T: PartialEq + fmt::Debug>(&mut self, place: &str, wanted: &T, got: &T) {
        if wanted != got {
            self.add(place, format!("{wanted:?}"), format!("{got:?}"));
        }
    }

    fn request(&mut self, request: &Request, outcome: &Outcome) {
        let name = &request.name;
        let Some(got) = outcome.requests.get(name) else {
            self.add(name, "to be played", "nothing");
            return;
        };
        self.pick(request, got, outcome);
        self.compare(
            &format!("{name}: body untouched"),
            &true,
            &got.body_untouched,
        );
        self.compare(&format!("{name}: hangs"), &request.hangs, &got.hangs);
        self.compare(
            &format!("{name}: local reply"),
            &request.local_reply,
            &got.local_reply,
        );
        if let Some(wanted) = &request.access_log {
            let there = got.access_log.as_ref();
            if !fits(Some(wanted), there) {
                self.add(&format!("{name}: access log"), wanted, format!("{there:?}"));
            }
        }
        self.headers(
            name,
            "request",
            &request.upstream_headers,
            Some(&got.upstream_headers),
        );
    }

    fn pick(&mut self, request: &Request, got: &RequestOutcome, outcome: &Outcome) {
        let picked = got.picked.as_ref();
        let of = |other: &String| {
            outcome
                .requests
                .get(other)
                .and_then(|other| other.picked.as_ref())
        };
        let holds = match &request.pick {
            Pick::To(address) => picked == Some(address),
            Pick::OneOf(addresses) => picked.is_some_and(|address| addresses.contains(address)),
            Pick::SameAs(other) => picked.is_some() && picked == of(other),
            Pick::NotAs(other) => picked.is_some() && of(other).is_some() && picked != of(other),
            Pick::Any => picked.is_some(),
            Pick::None => picked.is_none(),
        };
        if !holds {
            self.add(
                &format!("{}: pick", request.name),
                format!("{:?}", request.pick),
                format!("{picked:?}"),
            );
        }
    }

    fn headers(
        &mut self,
        name: &str,
        kind: &str,
        wanted: &BTreeMap<String, Option<String>>,
        got: Option<&BTreeMap<String, String>>,
    ) {
        for (header, value) in wanted {
            let there = got.and_then(|headers| headers.get(header));
            let holds = fits(value.as_ref(), there);
            if !holds {
                self.add(
                    &format!("{name}: {kind} header {header}"),
                    format!("{value:?}"),
                    format!("{there:?}"),
                );
            }
        }
    }
}

/// Whether a value is the wanted one; `*a*` = something with `a` in it.
fn fits(wanted: Option<&String>, there: Option<&String>) -> bool {
    let part = wanted.and_then(|wanted| wanted.strip_prefix('*')?.strip_suffix('*'));
    match (part, there) {
        (Some(part), Some(there)) => there.contains(part),
        _ => wanted == there,
    }
}
