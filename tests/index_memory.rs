//! What the prefix index takes from the allocator, by its own account and by the allocator's.

mod counting;

use core::time::Duration;

use warmroute::clock::Millis;
use warmroute::config::IndexOptions;
use warmroute::endpoints::Slot;
use warmroute::prefix::{Depths, Index, RecordState};

const MAX_PAIRS: u32 = 1_000_000;
const FEWER: u32 = 100_000;

/// Hashes that never repeat.
struct Fresh(u64);

impl Fresh {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    fn path<const N: usize>(&mut self) -> [u64; N] {
        core::array::from_fn(|_| self.next())
    }
}

/// An index, and what was allocated before it.
struct Measured {
    index: Index,
    max_pairs: u32,
    before: usize,
}

impl Measured {
    fn new(slots: u16, max_pairs: u32) -> Self {
        let before = counting::held_bytes();
        let options = IndexOptions {
            max_pairs,
            ttl: Duration::from_secs(3600),
            ..IndexOptions::default()
        };
        let mut index = Index::new(&options);
        for slot in 0..slots {
            index.set_capacity_blocks(Slot(slot), max_pairs);
        }
        Self {
            index,
            max_pairs,
            before,
        }
    }

    /// Bytes, after checking that both accounts agree and that the bound holds.
    fn bytes(&self) -> u64 {
        let allocated = counting::held_bytes().wrapping_sub(self.before) as u64;
        let stats = self.index.stats();
        assert_eq!(allocated, stats.bytes);
        assert!(stats.pairs <= self.max_pairs);
        assert!(allocated <= u64::from(self.max_pairs) * 42 + (256 << 10));
        allocated
    }
}

#[test]
fn memory_is_bounded_by_the_cap_and_then_flat() {
    an_idle_index_is_small();
    one_endpoint_holds_everything();
    blocks_change_from_few_to_many_holders();
}

fn an_idle_index_is_small() {
    assert!(Measured::new(8, 10_000).bytes() < 64 << 10);
}

/// Case 47: a million prompts, then a fixed head with changing ends; and five million records of new prompts.
fn one_endpoint_holds_everything() {
    let mut measured = Measured::new(1, MAX_PAIRS);
    let mut fresh = Fresh(0);
    let record = |measured: &mut Measured, path: &[u64], now_ms| {
        measured
            .index
            .record(path, Slot(0), RecordState::Tentative, Millis(now_ms))
            .new_blocks
    };
    for now_ms in 0..u64::from(MAX_PAIRS) {
        assert_eq!(record(&mut measured, &[fresh.next()], now_ms), 1);
    }
    let full = measured.bytes();
    let stats = measured.index.stats();
    assert_eq!(
        (stats.pairs, stats.blocks, stats.evictions),
        (MAX_PAIRS, MAX_PAIRS, 0)
    );
    assert!(full <= 40 * u64::from(MAX_PAIRS), "{full}");

    let calls = counting::calls();
    let head: [u64; 8] = fresh.path();
    for now_ms in 1_000_000..1_200_000 {
        let [a, b]: [u64; 2] = fresh.path();
        let [h0, h1, h2, h3, h4, h5, h6, h7] = head;
        record(
            &mut measured,
            &[h0, h1, h2, h3, h4, h5, h6, h7, a, b],
            now_ms,
        );
    }
    let mut depths = Depths::new();
    measured
        .index
        .matches(&head, Millis(1_200_000), &mut depths);
    assert_eq!(depths.of(Slot(0)), 8);
    for now_ms in 1_200_000..6_200_000 {
        record(&mut measured, &[fresh.next()], now_ms);
    }
    drop(depths);
    assert_eq!(measured.bytes(), full);
    assert_eq!(measured.index.stats().pairs, MAX_PAIRS);
    // Of these, one call each for the depths and this reading of them.
    assert!(counting::calls() - calls <= 1, "records allocate");
}

/// The worst case for each representation in turn, in one index: what one leaves behind, the next uses.
fn blocks_change_from_few_to_many_holders() {
    let mut measured = Measured::new(1024, FEWER);
    let mut fresh = Fresh(0);
    let mut now_ms = 0;
    for holders in [1_u16, 23, 24, 64, 1024, 2] {
        let slots_in_turn = (0..1024)
            .step_by(usize::from(holders))
            .map(|slot| slot % 1000);
        let mut starts = slots_in_turn.cycle();
        let goal = measured.index.stats().evictions + u64::from(FEWER);
        while measured.index.stats().evictions < goal {
            let path: [u64; 16] = fresh.path();
            let start = starts.next().unwrap_or(0);
            for slot in start..start + holders {
                now_ms += 1;
                let slot = Slot(slot % 1024);
                measured
                    .index
                    .record(&path, slot, RecordState::Confirmed, Millis(now_ms));
            }
        }
        measured.bytes();
    }
    for slot in 0..1024 {
        measured.index.remove(Slot(slot));
    }
    let stats = measured.index.stats();
    assert_eq!((stats.pairs, stats.blocks), (0, 0));
}
