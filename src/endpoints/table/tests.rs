//! Listings and slots.

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
    assert_eq!(usize::try_from(table.len()), Ok(MAX_ENDPOINTS));
}

#[test]
fn every_endpoint_has_its_place_in_the_order_of_names() {
    let mut table = Table::default();
    for addresses in [&["a:1", "b:1", "c:1", "d:1"][..], &["d:1", "b:1", "e:1"]] {
        listed(&mut table, addresses);
        let mut all: Vec<(u64, u32)> = table
            .iter()
            .map(|(_, endpoint)| (endpoint.name_hash, endpoint.order))
            .collect();
        all.sort_unstable();
        let orders: Vec<u32> = all.iter().map(|(_, order)| *order).collect();
        assert_eq!(orders, (0..table.len()).collect::<Vec<_>>());
    }
}
