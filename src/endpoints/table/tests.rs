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
