//! What the prefix index promises, one scenario a promise.

use core::time::Duration;

use warmroute::clock::Millis;
use warmroute::config::IndexOptions;
use warmroute::endpoints::Slot;
use warmroute::prefix::RecordState::{Confirmed, Tentative};
use warmroute::prefix::{Depths, EXPIRED_PER_RECORD, Index, Recorded};

const A: Slot = Slot(0);
const B: Slot = Slot(1);
const NOW: Millis = Millis(1_700_000_000_000);

/// An index whose slots 0..4 hold up to `capacity` blocks each.
fn index(max_pairs: u32, capacity: u32) -> Index {
    let ttl = Duration::from_secs(60);
    let mut index = Index::new(&IndexOptions {
        max_pairs,
        ttl,
        ..IndexOptions::default()
    });
    for slot in 0..4 {
        index.set_capacity_blocks(Slot(slot), capacity);
    }
    index
}

fn depth(index: &Index, blocks: &[u64], slot: Slot) -> u32 {
    depth_at(index, blocks, slot, NOW)
}

fn depth_at(index: &Index, blocks: &[u64], slot: Slot, now: Millis) -> u32 {
    let mut depths = Depths::new();
    index.matches(blocks, now, &mut depths);
    depths.of(slot)
}

#[test]
fn a_match_is_contiguous_from_the_head() {
    let mut index = index(100, 10);
    index.record(&[1, 2, 3, 4], A, Confirmed, NOW);
    index.record(&[1, 2], B, Confirmed, NOW);
    index.trim(&[1, 2], A, 1);
    index.record(&[9], B, Confirmed, NOW);
    assert_eq!(depth(&index, &[1, 2, 3, 4], A), 1);
    assert_eq!(depth(&index, &[1, 2, 3, 4], B), 2);
    assert_eq!(depth(&index, &[5, 1, 2], B), 0);
    assert_eq!(depth(&index, &[], A), 0);
    // The part behind the gap counts again when the gap is filled.
    index.record(&[1, 2], A, Confirmed, NOW);
    assert_eq!(depth(&index, &[1, 2, 3, 4], A), 4);
}

#[test]
fn depths_start_anew_with_each_match() {
    let mut index = index(100, 10);
    index.record(&[1, 2], A, Confirmed, NOW);
    index.record(&[1], B, Confirmed, NOW);
    let mut depths = Depths::new();
    index.matches(&[1, 2], NOW, &mut depths);
    assert_eq!(depths.iter().collect::<Vec<_>>(), [(A, 2), (B, 1)]);
    index.matches(&[7], NOW, &mut depths);
    assert_eq!(depths.iter().count(), 0);
    assert_eq!((depths.of(A), depths.of(Slot(u16::MAX))), (0, 0));
}

#[test]
fn a_claim_goes_when_withdrawn_and_stays_when_confirmed() {
    let mut index = index(100, 10);
    index.record(&[1, 2], A, Tentative, NOW);
    index.record(&[1, 2, 3], A, Tentative, NOW);
    index.withdraw(&[1, 2, 3], A);
    assert_eq!(depth(&index, &[1, 2, 3], A), 2);
    assert_eq!(index.confirm(&[1, 2], A, NOW), 2);
    index.record(&[1, 2], A, Tentative, NOW);
    index.withdraw(&[1, 2], A);
    assert_eq!(depth(&index, &[1, 2, 3], A), 2);
    // What is gone is not brought back by a late answer.
    index.trim(&[1, 2], A, 0);
    assert_eq!(index.confirm(&[1, 2], A, NOW), 0);
    assert_eq!(index.held_blocks(A), 0);
}

#[test]
fn a_burst_of_claims_goes_one_by_one_and_never_wraps() {
    let mut index = index(100, 10);
    for _ in 0..1000 {
        index.record(&[1], A, Tentative, NOW);
    }
    for _ in 0..999 {
        index.withdraw(&[1], A);
    }
    assert_eq!(index.held_blocks(A), 1);
    index.withdraw(&[1], A);
    assert_eq!(index.held_blocks(A), 0);
    for _ in 0..70_000 {
        index.record(&[1], A, Tentative, NOW);
    }
    for _ in 0..70_000 {
        index.withdraw(&[1], A);
    }
    assert_eq!(
        index.held_blocks(A),
        1,
        "counts as confirmed once there were too many to count"
    );
}

#[test]
fn ends_go_before_heads_and_a_long_path_keeps_its_head() {
    let mut index = index(100, 4);
    index.record(&[1, 2, 3], A, Confirmed, NOW);
    index.record(&[1, 7], A, Confirmed, NOW);
    let recorded = index.record(&[8, 9], A, Confirmed, NOW);
    assert_eq!(
        recorded,
        Recorded {
            new_blocks: 2,
            lately_used: 0,
            evicted: 2
        }
    );
    assert_eq!(
        (depth(&index, &[1, 2, 3], A), depth(&index, &[1, 7], A)),
        (1, 2)
    );
    let recorded = index.record(&[21, 22, 23, 24, 25, 26], A, Confirmed, NOW);
    assert_eq!(
        recorded,
        Recorded {
            new_blocks: 4,
            lately_used: 0,
            evicted: 4
        }
    );
    assert_eq!(depth(&index, &[21, 22, 23, 24, 25, 26], A), 4);
    index.set_capacity_blocks(A, 1);
    assert_eq!(depth(&index, &[21, 22], A), 1);
    index.set_capacity_blocks(A, 0);
    assert_eq!(index.record(&[1], A, Confirmed, NOW), Recorded::default());
}

#[test]
fn the_cap_takes_what_was_used_longest_ago_anywhere() {
    let mut index = index(4, 10);
    index.record(&[1, 2], A, Confirmed, NOW);
    index.record(&[1, 2], B, Confirmed, NOW.plus(2000));
    index.record(&[5], Slot(2), Confirmed, NOW.plus(4000));
    assert_eq!((index.held_blocks(A), index.held_blocks(B)), (1, 2));
    index.record(&[1, 2], A, Confirmed, NOW.plus(6000));
    assert_eq!((index.held_blocks(A), index.held_blocks(B)), (2, 1));
    assert_eq!(index.stats().evictions, 2);
    // A path longer than the cap ends where only itself could go.
    let path: Vec<u64> = (100..110).collect();
    assert_eq!(
        index.record(&path, A, Confirmed, NOW.plus(8000)).new_blocks,
        4
    );
    assert_eq!(index.stats().pairs, 4);
}

#[test]
fn reading_changes_no_recency() {
    let mut index = index(100, 2);
    index.record(&[1], A, Confirmed, NOW);
    index.record(&[2], A, Confirmed, NOW);
    assert_eq!(depth(&index, &[1], A), 1);
    index.record(&[3], A, Confirmed, NOW);
    assert_eq!((depth(&index, &[1], A), depth(&index, &[2], A)), (0, 1));
}

#[test]
fn entries_age_out_from_the_end_of_a_path() {
    let mut index = index(100, 10);
    index.record(&[1, 2, 3], A, Confirmed, NOW);
    index.record(&[1], A, Tentative, NOW.plus(30_000));
    assert_eq!(depth_at(&index, &[1, 2, 3], A, NOW.plus(59_000)), 3);
    assert_eq!(depth_at(&index, &[1, 2, 3], A, NOW.plus(61_000)), 1);
    assert_eq!(depth_at(&index, &[1, 2, 3], A, NOW.plus(91_000)), 0);
    assert_eq!(index.confirm(&[1, 2, 3], A, NOW.plus(61_000)), 1);
    // What had expired stands on the new claim alone.
    index.record(&[1, 2], B, Confirmed, NOW.plus(61_000));
    assert_eq!((index.stats().expired, index.held_blocks(A)), (2, 1));
    // A clock that steps back makes nothing younger.
    assert_eq!(depth_at(&index, &[1], A, NOW), 1);
    assert_eq!(index.record(&[1], A, Confirmed, NOW).new_blocks, 0);
}

/// One record clears away a bounded number of old entries; what is left of them stands for nothing.
#[test]
fn an_expired_entry_that_is_still_there_does_not_count() {
    let mut index = index(1000, 200);
    let path: Vec<u64> = (1..=100).collect();
    index.record(&path, A, Confirmed, NOW);
    let later = NOW.plus(61_000);
    assert_eq!(index.record(&path[..5], A, Tentative, later).new_blocks, 5);
    assert_eq!(u64::from(EXPIRED_PER_RECORD), index.stats().expired);
    assert_eq!(
        (depth_at(&index, &path, A, later), index.held_blocks(A)),
        (5, 36)
    );
    index.withdraw(&path[..5], A);
    assert_eq!(
        (depth_at(&index, &path, A, later), index.held_blocks(A)),
        (0, 31)
    );
}

/// Case 35, as far as it is ours: a slot that another endpoint was given knows nothing of the one before.
#[test]
fn a_slot_starts_empty_for_its_next_endpoint() {
    let mut index = index(100, 10);
    index.record(&[1, 2], A, Tentative, NOW);
    index.record(&[1], B, Confirmed, NOW);
    index.remove(A);
    assert_eq!((depth(&index, &[1, 2], A), index.held_blocks(A)), (0, 0));
    assert_eq!(
        index.record(&[1, 2], A, Confirmed, NOW),
        Recorded::default()
    );
    index.set_capacity_blocks(A, 10);
    assert_eq!(index.confirm(&[1, 2], A, NOW), 0);
    index.withdraw(&[1, 2], A);
    assert_eq!(
        (depth(&index, &[1, 2], A), depth(&index, &[1, 2], B)),
        (0, 1)
    );
    assert_eq!((index.stats().pairs, index.stats().evictions), (1, 0));
}

/// Case 46: an endpoint that cleared its cache and stayed. Each answer that tells takes a wrong path away.
#[test]
fn affinity_to_a_cleared_endpoint_fades() {
    let mut index = index(100, 20);
    let paths = [[1_u64, 2, 3], [1, 2, 4], [5, 6, 7]];
    for path in &paths {
        index.record(path, A, Confirmed, NOW);
    }
    index.trim(&paths[0], A, 0);
    assert_eq!(paths.map(|path| depth(&index, &path, A)), [0, 0, 3]);
    index.trim(&paths[2], A, 1);
    assert_eq!(paths.map(|path| depth(&index, &path, A)), [0, 0, 1]);
}

#[test]
fn a_block_of_every_endpoint_is_found_for_each() {
    let options = IndexOptions {
        max_pairs: 100_000,
        ..IndexOptions::default()
    };
    let mut index = Index::new(&options);
    let path: Vec<u64> = (1..=40).collect();
    for slot in 0..1024_u16 {
        index.set_capacity_blocks(Slot(slot), 40);
        let reach = usize::from(slot % 40) + 1;
        let recorded = index.record(&path[..reach], Slot(slot), Confirmed, NOW);
        assert_eq!(recorded.new_blocks as usize, reach);
    }
    let mut depths = Depths::new();
    index.matches(&path, NOW, &mut depths);
    assert_eq!(depths.iter().count(), 1024);
    assert!(
        depths
            .iter()
            .all(|(slot, depth)| depth == u32::from(slot.0 % 40) + 1)
    );
    for slot in (0..1024).filter(|slot| slot % 100 != 39) {
        index.remove(Slot(slot));
    }
    index.matches(&path, NOW, &mut depths);
    assert_eq!(depths.iter().count(), 10);
    assert_eq!(index.stats().blocks, 40);
}

#[test]
fn slots_and_paths_out_of_the_ordinary_do_no_harm() {
    let mut index = index(100, 10);
    let far = Slot(1024);
    index.set_capacity_blocks(far, 10);
    assert_eq!(index.record(&[1], far, Confirmed, NOW), Recorded::default());
    index.remove(far);
    index.record(&[7, 7, 7, 8, 7], A, Tentative, NOW);
    assert_eq!(index.held_blocks(A), 2);
    index.confirm(&[7, 7, 8], A, NOW);
    index.withdraw(&[3, 3], A);
    index.trim(&[7, 7], A, u32::MAX);
    assert_eq!(depth(&index, &[7, 8], A), 2);
    index.remove(A);
    assert_eq!(index.stats().pairs, 0);
}

/// Prompts built so that all their blocks meet in one bucket: a bounded number of them is kept.
#[test]
fn colliding_hashes_are_refused_beyond_a_bound() {
    let mut index = index(10_000, 10_000);
    // The inverse of the index's own mixing: hashes whose mixed upper halves are all zero.
    let mut inverse = 1_u64;
    for _ in 0..6 {
        let product = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(inverse);
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(product));
    }
    let path: Vec<u64> = (1..=1000_u64)
        .map(|low| low.wrapping_mul(inverse))
        .collect();
    assert_eq!(index.record(&path, A, Confirmed, NOW).new_blocks, 128);
    assert_eq!(depth(&index, &path, A), 128);
    assert_eq!(index.record(&[1, 2, 3], A, Confirmed, NOW).new_blocks, 3);
}
