//! What one VM leaves another one has; whatever else stands there changes nothing.

use super::*;
use crate::endpoints::load::Health;
use crate::exchange::handover::{FOLD_HANDOVER, MAX_AGE_MS};
use crate::pool::{Figures, Listed};
use crate::prefix::RecordState;

const NOW: Millis = Millis(1_000_000_000);
const LATER: Millis = Millis(NOW.0 + 5_000);
const ADDRESSES: [&str; 3] = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"];

fn config() -> Config {
    let mut config = Config::default();
    config.index.default_capacity_tokens = 10_000_000;
    config
}

fn pool(addresses: &[&str]) -> Pool {
    let mut pool = Pool::new(&config());
    let listed = addresses.iter().map(|address| Listed {
        address,
        health: Health::Healthy,
        role: None,
        said: None::<Figures>,
    });
    pool.list(listed, &config(), &mut Telemetry::default(), NOW);
    pool
}

fn slot(pool: &Pool, address: &str) -> Slot {
    pool.table.slot_of(address).unwrap()
}

fn record(pool: &mut Pool, address: &str, blocks: core::ops::Range<u64>, now: Millis) {
    let blocks: Vec<u64> = blocks.collect();
    let slot = slot(pool, address);
    pool.index
        .record(&blocks, slot, RecordState::Confirmed, now);
}

fn held(pool: &Pool, address: &str) -> Vec<u64> {
    pool.index.newest(slot(pool, address), LATER).collect()
}

fn learned() -> Pool {
    let mut pool = pool(&ADDRESSES);
    pool.bytes_per_token.observe(7, 3_000, 1_000);
    pool.bytes_per_token.observe(8, 5_000, 1_000);
    for _ in 0..50 {
        pool.traffic.decided(true, 700.0, Some((8.0, 2.0)));
        pool.traffic.found_at_home(false);
    }
    let second = slot(&pool, ADDRESSES[1]);
    let endpoint = pool.table.get_mut(second).unwrap();
    endpoint.rate.observe(10_000, 500);
    endpoint.queueing.observe(300, 100.0);
    endpoint.trust.compare(1000.0, 500.0, 16.0);
    endpoint.usual_backlog.observe(5_000.0);
    endpoint.outer_hit_share = 0.25;
    pool
}

/// All that is learned, for comparing.
fn figures(pool: &mut Pool) -> Vec<u64> {
    let mut all = Vec::new();
    pool.bytes_per_token
        .visit(&mut |figure, _| all.push(figure.to_bits()));
    pool.traffic
        .visit(&mut |figure, _| all.push(figure.to_bits()));
    all.extend([7, 8, 9].map(|model| pool.bytes_per_token.of(model).to_bits()));
    for endpoint in pool.table.iter_mut() {
        endpoint.visit(&mut |figure, _| all.push(figure.to_bits()));
    }
    all
}

#[test]
fn what_was_learned_is_known_again() {
    let mut before = learned();
    let bytes = before.leave_learned(NOW);
    assert_eq!(learned_at(&bytes), Some(NOW));
    let mut after = pool(&ADDRESSES);
    assert_ne!(figures(&mut after), figures(&mut before));
    after.take_learned(&bytes, &config(), LATER);
    assert_eq!(figures(&mut after), figures(&mut before));

    // Only who was learned about is told of, and only who is there is heard about.
    assert_eq!(
        bytes.len(),
        8 * (2 + 1 + 5 + 1 + 2 * 2 + 1 + LEARNED_FIGURES)
    );
    let mut elsewhere = pool(&["10.0.0.9:8000"]);
    elsewhere.take_learned(&bytes, &config(), LATER);
    let endpoint = elsewhere.table.iter_mut().next().unwrap();
    assert_eq!(endpoint.rate.tokens_per_ms(), None);
}

#[test]
fn trust_bounds_what_an_endpoint_may_hold_from_the_start() {
    let mut before = learned();
    let mut config = config();
    config.index.default_capacity_tokens = 100_000;
    let capacity_of = |pool: &mut Pool, address| {
        record(pool, address, 0..1_000_000, LATER);
        held(pool, address).len()
    };
    let mut after = pool(&ADDRESSES);
    after.take_learned(&before.leave_learned(NOW), &config, LATER);
    let [first, second] = [ADDRESSES[0], ADDRESSES[1]].map(|at| capacity_of(&mut after, at));
    assert_eq!(second, first * 9 / 10);
}

#[test]
fn pairs_come_over_in_their_order_of_use() {
    let mut before = pool(&ADDRESSES);
    record(&mut before, ADDRESSES[0], 0..5_000, NOW);
    record(&mut before, ADDRESSES[0], 10_000..10_100, NOW.plus(1_000));
    record(&mut before, ADDRESSES[0], 0..50, NOW.plus(2_000));
    record(&mut before, ADDRESSES[2], 0..70, NOW.plus(3_000));
    let bytes = before.leave_pairs(1, NOW.plus(4_000));
    let mut after = pool(&ADDRESSES);
    after.take_pairs(bytes, &mut Telemetry::default(), LATER);
    for address in ADDRESSES {
        assert_eq!(held(&after, address), held(&before, address));
    }
    assert_eq!(held(&after, ADDRESSES[0]).len(), 5_100);
    assert!(after.handover.is_none(), "all was read");
}

#[test]
fn only_the_newest_come_over_and_bit_by_bit() {
    let mut before = pool(&ADDRESSES);
    record(&mut before, ADDRESSES[0], 0..150_000, NOW);
    record(&mut before, ADDRESSES[1], 0..50_000, NOW);
    let bytes = before.leave_pairs(1, NOW);
    assert!(bytes.len() < 8 * MAX_PAIRS as usize + 2_000);
    let mut after = pool(&ADDRESSES);
    let telemetry = &mut Telemetry::default();
    after.take_pairs(bytes, telemetry, LATER);
    let mut parts = vec![after.index.stats().pairs];
    while after.handover.is_some() {
        after.fold_handover(telemetry, LATER);
        parts.push(after.index.stats().pairs);
    }
    assert_eq!(parts.last(), Some(&MAX_PAIRS));
    let an_entry = u32::try_from(PAIRS_AN_ENTRY).unwrap();
    let at_a_time = u32::try_from(FOLD_HANDOVER).unwrap() + an_entry;
    let steps = parts.windows(2).map(|two| two[1] - two[0]);
    assert!(steps.chain([parts[0]]).all(|step| step <= at_a_time));
    let newest: Vec<u64> = (0..u64::from(MAX_PAIRS) * 3 / 4).collect();
    assert_eq!(held(&after, ADDRESSES[0]), newest);
}

#[test]
fn expired_pairs_stay_behind() {
    let mut before = pool(&ADDRESSES);
    record(&mut before, ADDRESSES[0], 0..10, NOW);
    let much_later = NOW.plus(crate::number::millis(config().index.ttl));
    record(&mut before, ADDRESSES[0], 100..105, much_later);
    let mut after = pool(&ADDRESSES);
    let bytes = before.leave_pairs(1, much_later);
    after.take_pairs(bytes, &mut Telemetry::default(), much_later);
    assert_eq!(after.index.stats().pairs, 5);
}

#[test]
fn stale_and_foreign_words_change_nothing() {
    let mut before = learned();
    record(&mut before, ADDRESSES[0], 0..100, NOW);
    let (figured, pairs) = (before.leave_learned(NOW), before.leave_pairs(1, NOW));
    let stale = NOW.plus(MAX_AGE_MS + 1);
    let from_the_future = Millis(NOW.0 - MAX_AGE_MS - 1);
    let other_version = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[0] ^= 1;
        bytes
    };
    for (learned, pairs, now) in [
        (figured.clone(), pairs.clone(), stale),
        (figured.clone(), pairs.clone(), from_the_future),
        (other_version(&figured), other_version(&pairs), LATER),
        (pairs.clone(), figured.clone(), LATER),
        (Vec::new(), Vec::new(), LATER),
    ] {
        let mut after = pool(&ADDRESSES);
        let fresh = figures(&mut after);
        let mut telemetry = Telemetry::default();
        after.take_learned(&learned, &config(), now);
        after.take_pairs(pairs, &mut telemetry, now);
        assert_eq!(figures(&mut after), fresh);
        assert_eq!(after.index.stats().pairs, 0);
        assert!(after.handover.is_none());
    }
    let mut after = pool(&ADDRESSES);
    after.take_learned(&figured, &config(), LATER);
    after.take_pairs(pairs, &mut Telemetry::default(), LATER);
    assert_eq!(figures(&mut after), figures(&mut before));
    assert_eq!(after.index.stats().pairs, 100);
}

#[test]
fn any_bytes_can_be_read_and_figures_stay_inside_their_bounds() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut before = learned();
    record(&mut before, ADDRESSES[0], 0..3_000, NOW);
    let whole = [before.leave_learned(NOW), before.leave_pairs(1, NOW)];
    for round in 0..4_000 {
        let mut garbled = whole.clone();
        for bytes in &mut garbled {
            // What stands before is needed for the rest to be looked at.
            let from = if round % 4 == 0 { 0 } else { 32 };
            for _ in 0..rng.usize(1..40) {
                let at = rng.usize(from.min(bytes.len() - 1)..bytes.len());
                bytes[at] = rng.u8(..);
            }
            bytes.truncate(rng.usize(..=bytes.len()));
        }
        let [learned, pairs] = garbled;
        let mut after = pool(&ADDRESSES);
        let telemetry = &mut Telemetry::default();
        after.take_learned(&learned, &config(), LATER);
        after.take_pairs(pairs, telemetry, LATER);
        after.fold_handover(telemetry, LATER);
        assert!(after.handover.is_none());
        assert!(after.index.stats().pairs <= 3_000);
        let mut is_inside = true;
        let mut check = |figure: &mut f64, bounds: &core::ops::RangeInclusive<f64>| {
            // A rate of 0 and requests of -1 are those that nobody knows.
            is_inside &= bounds.contains(figure) || *figure == 0.0 || *figure == -1.0;
        };
        after.bytes_per_token.visit(&mut check);
        after.traffic.visit(&mut check);
        after.table.iter_mut().for_each(|at| at.visit(&mut check));
        assert!(is_inside);
    }
}

#[test]
fn models_used_lately_are_not_the_first_to_go() {
    let mut before = pool(&ADDRESSES);
    for model in 0..64 {
        before.bytes_per_token.observe(model, 1_000, 500);
    }
    let mut after = pool(&ADDRESSES);
    after.take_learned(&before.leave_learned(NOW), &config(), LATER);
    after.bytes_per_token.observe(64, 30_000, 1_000);
    assert_eq!(after.bytes_per_token.of(63), 2.0);
    assert_ne!(after.bytes_per_token.of(0), 2.0);
}

#[test]
fn who_served_nothing_knows_less_than_who_did() {
    let mut idle = pool(&ADDRESSES);
    let endpoints = idle.table.iter_mut();
    endpoints.for_each(|endpoint| endpoint.outer_hit_share = 0.5);
    assert!(idle.leave_learned(NOW).len() < learned().leave_learned(NOW).len());
}
