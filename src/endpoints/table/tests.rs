//! Listings, slots and readings.

use super::*;

fn listed(table: &mut Table, addresses: &[&str]) -> Vec<Slot> {
    table.begin_listing();
    for address in addresses {
        table.list(address, Health::Healthy);
    }
    let mut left = Vec::new();
    table.end_listing(|slot, _| left.push(slot));
    left
}

#[test]
fn who_is_not_listed_has_left_and_its_slot_is_used_again() {
    let mut table = Table::default();
    assert_eq!(listed(&mut table, &["a:1", "b:1"]), []);
    let b = table.slot_of("b:1").unwrap();
    assert_eq!(listed(&mut table, &["a:1"]), [b]);
    assert_eq!(table.slot_of("b:1"), None);
    assert_eq!(listed(&mut table, &["a:1", "c:1"]), []);
    assert_eq!(table.slot_of("c:1"), Some(b));
    assert_eq!(table.len(), 2);
}

#[test]
fn more_endpoints_than_there_is_room_for_are_left_out() {
    let mut table = Table::default();
    table.begin_listing();
    for n in 0..MAX_ENDPOINTS + 10 {
        table.list(&format!("10.0.0.1:{n}"), Health::Healthy);
    }
    assert_eq!(table.len(), MAX_ENDPOINTS);
}

#[test]
fn a_counter_that_went_back_is_a_restart_and_age_takes_weight_away() {
    let mut table = Table::default();
    listed(&mut table, &["a:1"]);
    let endpoint = table.get_mut(Slot(0)).unwrap();
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
    let mut table = Table::default();
    listed(&mut table, &["a:1"]);
    let endpoint = table.get_mut(Slot(0)).unwrap();
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
    let mut table = Table::default();
    listed(&mut table, &["a:1"]);
    let endpoint = table.get_mut(Slot(0)).unwrap();
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
    let mut table = Table::default();
    listed(&mut table, &["a:1"]);
    let endpoint = table.get_mut(Slot(0)).unwrap();
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
