//! The weighted profile against sums worked out by hand, to the last bit.

use warmroute::config::{PickOptions, Profile, Weights};
use warmroute::endpoints::Slot;
use warmroute::pick::{Adapter, Ask, Branch, Candidate, Ranked, Signals, pick};

const NONE: Weights = Weights {
    queue: 0.0,
    kv_cache: 0.0,
    prefix_cache: 0.0,
    lora_affinity: 0.0,
    inflight: 0.0,
    failure: 0.0,
    failure_ewma_alpha: 0.2,
};

fn candidate(at: u16, matched_tokens: f64, signals: Signals) -> Candidate {
    Candidate {
        slot: Slot(at),
        name_hash: u64::from(at),
        matched_tokens,
        unheard: 0.0,
        signals,
    }
}

/// Scores by slot, and the winner.
fn scores(weights: Weights, candidates: &[Candidate], seed: u64) -> (Vec<f64>, u16) {
    let options = PickOptions {
        profile: Profile::Weighted(weights),
        ..PickOptions::default()
    };
    let ask = Ask {
        prompt_tokens: 16_384.0,
        ..Ask::default()
    };
    let mut ranked = Ranked::new(8);
    let mut rng = fastrand::Rng::with_seed(seed);
    let branch = pick(&ask, candidates, &options, &mut rng, &mut ranked);
    assert_eq!(branch, Some(Branch::Weighted));
    let winner = ranked.winner().unwrap().slot.0;
    let mut entries = ranked.entries().to_vec();
    entries.sort_by_key(|entry| entry.slot);
    (entries.iter().map(|entry| -entry.cost).collect(), winner)
}

#[test]
fn the_default_weights_by_hand() {
    let load = |waiting, kv_use, inflight| Signals {
        waiting: Some(waiting),
        kv_use: Some(kv_use),
        inflight,
        ..Signals::default()
    };
    let candidates = [
        candidate(0, 0.0, load(0.0, 0.5, 2)),
        candidate(1, 4096.0, load(4.0, 0.25, 0)),
        candidate(2, 16_384.0, load(8.0, 0.75, 4)),
    ];
    // queue 1, .5, 0; KV .5, .75, .25; prefix 0, .75/4 + .25/4, 1; inflight .5, 1, 0; over 8.
    let expected = [
        (2.0 * 1.0 + 2.0 * 0.5 + 3.0 * 0.0 + 0.5) / 8.0,
        (2.0 * 0.5 + 2.0 * 0.75 + 3.0 * 0.25 + 1.0) / 8.0,
        (2.0 * 0.0 + 2.0 * 0.25 + 3.0 * 1.0 + 0.0) / 8.0,
    ];
    assert_eq!(expected, [0.4375, 0.53125, 0.4375]);
    assert_eq!(
        scores(Weights::default(), &candidates, 1),
        (expected.to_vec(), 1)
    );
}

#[test]
fn a_missing_signal_scores_0_over_the_whole_sum() {
    let known = Signals {
        waiting: Some(3.0),
        kv_use: Some(1.0),
        ..Signals::default()
    };
    let unknown = Signals::default();
    let candidates = [candidate(0, 0.0, known), candidate(1, 0.0, unknown)];
    // One known queue is both the least and the most: 1.
    let (got, winner) = scores(Weights::default(), &candidates, 1);
    assert_eq!((got, winner), (vec![3.0 / 8.0, 1.0 / 8.0], 0));
}

#[test]
fn a_long_match_counts_by_its_square() {
    let weights = Weights {
        prefix_cache: 1.0,
        ..NONE
    };
    let candidates = [
        candidate(0, 2048.0, Signals::default()),
        candidate(1, 8192.0, Signals::default()),
        candidate(2, 12_288.0, Signals::default()),
    ];
    let (got, winner) = scores(weights, &candidates, 1);
    assert_eq!(
        got,
        [
            0.75 * 0.125 + 0.25 * 0.0625,
            0.75 * 0.5 + 0.25,
            0.75 * 0.75 + 0.25
        ]
    );
    assert_eq!(winner, 2);
}

#[test]
fn adapters_and_failures() {
    let weights = Weights {
        lora_affinity: 1.0,
        failure: 3.0,
        ..NONE
    };
    let of = |adapter, failure| Signals {
        adapter,
        failure,
        ..Signals::default()
    };
    let candidates = [
        candidate(0, 0.0, of(Adapter::Active, 0.5)),
        candidate(1, 0.0, of(Adapter::Room, 0.0)),
        candidate(2, 0.0, of(Adapter::Unknown, 0.25)),
    ];
    assert_eq!(
        scores(weights, &candidates, 1),
        (vec![0.625, 0.75, 0.5625], 1)
    );
}

#[test]
fn exact_ties_go_by_the_generator() {
    let candidates: Vec<Candidate> = (0..4)
        .map(|at| candidate(at, 0.0, Signals::default()))
        .collect();
    let mut got = [0; 4];
    for seed in 0..400 {
        let (_, winner) = scores(Weights::default(), &candidates, seed);
        assert_eq!(scores(Weights::default(), &candidates, seed).1, winner);
        got[usize::from(winner)] += 1;
    }
    assert!(
        got.iter().all(|share| (60..=140).contains(share)),
        "{got:?}"
    );
}

#[test]
fn without_one_weighted_signal_nobody_is_picked() {
    let weights = Weights {
        queue: 1.0,
        kv_cache: 1.0,
        ..NONE
    };
    let options = PickOptions {
        profile: Profile::Weighted(weights),
        ..PickOptions::default()
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ranked = Ranked::new(0);
    let candidates = [candidate(0, 500.0, Signals::default()); 2];
    assert_eq!(
        pick(
            &Ask::default(),
            &candidates,
            &options,
            &mut rng,
            &mut ranked
        ),
        None
    );
    assert!(ranked.entries().is_empty());
}
