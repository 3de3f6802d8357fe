//! Readings.

use super::*;

#[test]
fn a_counter_that_went_back_is_a_restart_and_age_takes_weight_away() {
    let mut endpoint = Endpoint::new("a:1", 1);
    assert_eq!(endpoint.freshness(1000, Millis(5)), 0.0);
    let load = |queries, capacity| Load {
        prefix_queries: Some(queries),
        capacity_tokens: Some(capacity),
        ..Load::default()
    };
    assert_eq!(endpoint.read(load(5.0, 100), Millis(0)), Reading::Resized);
    assert_eq!(endpoint.read(load(6.0, 100), Millis(0)), Reading::Same);
    // A reading that was overtaken by the one after it.
    assert_eq!(endpoint.read(load(5.0, 100), Millis(0)), Reading::Same);
    assert_eq!(
        endpoint.read(load(1.0, 100), Millis(1000)),
        Reading::Restarted
    );
    assert_eq!(endpoint.freshness(1000, Millis(1250)), 0.75);
    assert_eq!(endpoint.freshness(1000, Millis(9999)), 0.0);
}
