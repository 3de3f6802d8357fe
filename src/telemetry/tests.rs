//! Places, names and what is handed on.

use super::*;

#[test]
fn every_counter_has_a_place_and_a_name_of_its_own() {
    let mut names: Vec<_> = Counter::all().map(Counter::name).collect();
    assert_eq!(names.len(), PLACES);
    for (at, counter) in Counter::all().enumerate() {
        assert_eq!(counter.place(), Some(at));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), PLACES);
}

#[test]
fn what_was_counted_is_handed_on_once() {
    let mut telemetry = Telemetry::default();
    telemetry.add(Counter::Fallback(Fallback::Malformed), 2);
    telemetry.observe(Histogram::TtftMs, 7);
    let (mut counted, mut observed) = (Vec::new(), Vec::new());
    telemetry.drain(
        |at, by| counted.push((Counter::all().nth(at).unwrap().name(), by)),
        |h, v| observed.push((h, v)),
    );
    assert_eq!(
        counted,
        [("warmroute_fallback_total.reason.malformed".to_owned(), 2)]
    );
    assert_eq!(observed, [(Histogram::TtftMs, 7)]);
    telemetry.drain(|_, _| panic!("nothing new"), |_, _| panic!("nothing new"));
}
