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

#[test]
fn what_a_response_tells_of_load_is_no_reading_of_the_counters() {
    let mut endpoint = Endpoint::new("a:1", 1);
    let load = |queries| Load {
        prefix_queries: Some(queries),
        prefix_hits: Some(0.0),
        ..Load::default()
    };
    endpoint.read(load(0.0), Millis(0));
    endpoint.own.send(10_000, true, false, 10.0, Millis(1));
    endpoint.sent_more(10_000.0);
    let told = Load {
        waiting: Some(3.0),
        ..Load::default()
    };
    for at in 2..6 {
        endpoint.told(&told, Millis(at));
    }
    assert_eq!(endpoint.load.waiting, Some(3.0));
    assert_eq!(endpoint.freshness(1000, Millis(505)), 0.5);
    // What it began is what we sent.
    endpoint.read(load(10_000.0), Millis(10));
    let rate = endpoint.prefill_rate();
    endpoint.own = Own::new(2);
    assert_eq!((endpoint.unseen_tokens(Millis(10)), rate), (0.0, 10.0));
}

#[test]
fn an_outer_tier_that_an_engine_no_longer_has_answers_nothing() {
    let mut endpoint = Endpoint::new("a:1", 1);
    let load = |external: Option<f64>| Load {
        prefix_queries: Some(1_000.0),
        external_prefix_queries: external,
        external_prefix_hits: external,
        ..Load::default()
    };
    for round in 1..20_u64 {
        endpoint.read(load(Some(f64::from(round as u32) * 100.0)), Millis(round));
    }
    assert!(endpoint.outer_hit_share > 0.9);
    // A text that tells nothing at all says nothing of it either.
    endpoint.read(Load::default(), Millis(50));
    assert!(endpoint.outer_hit_share > 0.9);
    endpoint.read(load(None), Millis(100));
    assert_eq!(endpoint.outer_hit_share, 0.0);
}

#[test]
fn a_restart_is_seen_across_words_that_lack_the_counter() {
    let mut endpoint = Endpoint::new("a:1", 1);
    let load = |queries| Load {
        running: Some(1.0),
        prefix_queries: queries,
        prefix_hits: queries.map(|_| 0.0),
        ..Load::default()
    };
    endpoint.read(load(Some(50_000.0)), Millis(0));
    for at in 1..5 {
        endpoint.sent_more(1_000.0);
        assert_eq!(endpoint.read(load(None), Millis(at)), Reading::Same);
    }
    // What was sent meanwhile is not others'.
    let all = endpoint.read(load(Some(54_000.0)), Millis(5));
    assert_eq!(
        (all, endpoint.unseen_tokens(Millis(5))),
        (Reading::Same, 0.0)
    );
    assert_eq!(
        endpoint.read(load(Some(100.0)), Millis(6)),
        Reading::Restarted
    );
}
