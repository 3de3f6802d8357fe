//! The built plugin costs what `benches/budget.json` says, and not more.

use std::collections::BTreeMap;

use warmroute::request::Api;
use warmroute_harness::bench::body::{Text, body};
use warmroute_harness::bench::budget::{Budget, Row, figures, measure_all};
use warmroute_harness::bench::memory::{self, Run};
use warmroute_harness::built::{artifact, built_with};
use warmroute_harness::host::Profile;
use warmroute_parts::Parts;

#[test]
fn every_case_stays_in_its_budget() {
    let budget = Budget::load().unwrap();
    let built_with = built_with().unwrap();
    let exact = budget.built_with == built_with;
    if !exact {
        println!(
            "built with {built_with}, figures are of {}: bounds alone are held",
            budget.built_with
        );
    }
    let faults = budget.faults(&figures(&measure_all().unwrap()), exact);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_parts_do_what_their_columns_say() {
    let mut parts = Parts::new(Api::Chat, body(Text::Ascii, 10 << 10, 1)).unwrap();
    let (parsed, read) = (parts.parse().unwrap(), parts.read().unwrap());
    assert!(parsed.blocks.is_empty());
    assert_eq!((parsed.bytes, &parsed.model), (read.bytes, &read.model));
    let blocks = u32::try_from(read.blocks.len()).unwrap();
    assert!(blocks > 30);
    assert_eq!(parts.find(), 0);
    parts.hold(3);
    assert_eq!(parts.find(), blocks);
    parts.record();
    assert_eq!(parts.find(), blocks);
}

#[test]
fn memory_stays_bounded_under_new_prompts() {
    let run = Run::short_prompts(2_000);
    let memory = memory::measure(&artifact(Profile::Higress).unwrap(), run).unwrap();
    println!("{memory:?}");
    assert!(memory.pairs > 100_000, "{memory:?}");
    // 48 MB for a million pairs, and what a plugin has without any.
    let bound = memory.first_bytes as u64 + memory.pairs * 48;
    assert!(memory.last_bytes as u64 <= bound, "{memory:?}");
}

/// `RECORDS`: new blocks that come when the index is full; five million were shown so, too.
#[test]
fn a_million_pairs_take_48_mb_and_more_records_take_no_more() {
    const BLOCKS: usize = 4_096;
    const PAIRS: usize = 1_000_000;
    let records = std::env::var("RECORDS").map_or(2_000_000, |text| text.parse().unwrap());
    // Half more than what fills it: the next listings find their room as well.
    let filling = (PAIRS + PAIRS / 2) / BLOCKS;
    let run = Run {
        hosts: 32,
        bytes: BLOCKS * 256 + (64 << 10),
        filling,
        requests: filling + records / BLOCKS,
    };
    let memory = memory::measure(&artifact(Profile::Higress).unwrap(), run).unwrap();
    println!("{memory:?}");
    assert_eq!(memory.pairs, PAIRS as u64, "{memory:?}");
    assert!(memory.evicted as usize > records * 9 / 10, "{memory:?}");
    assert!(memory.last_bytes <= 48_000_000, "{memory:?}");
    assert_eq!(memory.last_bytes, memory.full_bytes, "{memory:?}");
}

#[test]
fn a_figure_over_its_bound_or_far_from_the_one_written_down_is_a_fault() {
    let rows = BTreeMap::from([(
        "a".to_owned(),
        Row {
            allowed: 120,
            measured: 100,
        },
    )]);
    let budget = Budget {
        rows,
        ..Budget::default()
    };
    let faults = |figure, exact| budget.faults(&[("a".to_owned(), figure)], exact).len();
    assert_eq!(
        (faults(100, true), faults(104, true), faults(96, true)),
        (0, 0, 0)
    );
    assert_eq!(
        (faults(110, true), faults(90, true), faults(121, true)),
        (1, 1, 1)
    );
    assert_eq!(
        (faults(110, false), faults(90, false), faults(121, false)),
        (0, 0, 1)
    );
    assert_eq!(budget.faults(&[], true).len(), 1, "a row without a case");
    assert_eq!(
        budget
            .faults(&[("a".to_owned(), 100), ("b".to_owned(), 1)], true)
            .len(),
        1,
        "a case without a row"
    );
}
