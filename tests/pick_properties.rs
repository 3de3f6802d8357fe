//! What holds for every input: order does not matter, nonsense never wins, a thousand endpoints work.

use warmroute::config::{PickOptions, Profile, Weights};
use warmroute::endpoints::{MAX_ENDPOINTS, Slot};
use warmroute::pick::{Adapter, Ask, Branch, Candidate, Ranked, Signals, pick, rendezvous};

fn signals(rng: &mut fastrand::Rng) -> Signals {
    let adapters = [
        Adapter::Unknown,
        Adapter::Active,
        Adapter::Room,
        Adapter::Waiting,
        Adapter::Full,
    ];
    let awaiting_first = rng.u32(..5);
    let waiting = rng.f64() * 6.0;
    Signals {
        waiting: rng.bool().then_some(waiting),
        running: rng.bool().then(|| rng.f64() * 40.0),
        kv_use: rng.bool().then(|| rng.f64()),
        freshness: rng.f64(),
        waiting_own: rng.u32(..3),
        inflight_own: rng.u32(..3),
        inflight: awaiting_first + rng.u32(..10),
        prefill_tokens: f64::from(awaiting_first) * 3000.0 * rng.f64(),
        unseen_tokens: rng.f64() * 4000.0,
        usual_backlog_tokens: rng.f64() * 4000.0,
        awaiting_first,
        streams: rng.u32(..10),
        failure: if rng.u8(..4) == 0 { rng.f64() } else { 0.0 },
        adapter: adapters[rng.usize(..adapters.len())],
        outer_hit_share: rng.f64(),
        cold_recent: rng.f64() * 20.0,
        prefill_tokens_per_ms: rng.bool().then(|| 5.0 + rng.f64() * 10.0),
        queue_ms: rng.f64() * 100.0,
    }
}

fn candidates(rng: &mut fastrand::Rng, count: u16) -> Vec<Candidate> {
    (0..count)
        .map(|at| Candidate {
            slot: Slot(at),
            name_hash: rendezvous::weight(u64::from(at) + 1, 99),
            matched_tokens: f64::from(rng.u32(..9000)),
            unheard: rng.f64(),
            signals: signals(rng),
        })
        .collect()
}

fn ask(rng: &mut fastrand::Rng) -> Ask {
    Ask {
        prompt_tokens: f64::from(rng.u32(1..20_000)),
        head_tokens: f64::from(rng.u32(..10_000)),
        conversation: rng.u64(..),
        later_turn: rng.bool(),
        sticky: None,
        mean_miss_tokens: f64::from(rng.u32(..4000)),
        turns_to_come: rng.f64() * 20.0,
        home_worth: rng.f64(),
        unseen: rng.f64(),
    }
}

fn weighted() -> PickOptions {
    PickOptions {
        profile: Profile::Weighted(Weights::default()),
        ..PickOptions::default()
    }
}

#[test]
fn the_order_of_candidates_has_no_effect() {
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..2000_u64 {
        let count = rng.u16(1..40);
        let mut all = candidates(&mut rng, count);
        let ask = ask(&mut rng);
        let aim = core::time::Duration::from_millis(800);
        let slo_ttft = rng.bool().then_some(aim);
        let options = PickOptions {
            slo_ttft,
            ..PickOptions::default()
        };
        let (mut first, mut second) = (Ranked::new(8), Ranked::new(8));
        let branch = pick(&ask, &all, &options, &mut rng, &mut first);
        rng.shuffle(&mut all);
        assert_eq!(
            pick(&ask, &all, &options, &mut rng, &mut second),
            branch,
            "round {round}"
        );
        let slots = |ranked: &Ranked| ranked.entries().iter().map(|e| e.slot).collect::<Vec<_>>();
        assert_eq!(slots(&first), slots(&second), "round {round}");
        assert_eq!(first.entries().len(), usize::from(count).min(9));
        let rest = first.entries().get(1..).unwrap();
        assert!(rest.is_sorted_by(|a, b| a.cost <= b.cost), "round {round}");
    }
}

#[test]
fn the_ranking_holds_the_cheapest() {
    let mut rng = fastrand::Rng::with_seed(8);
    for _ in 0..500 {
        let all = candidates(&mut rng, 30);
        let ask = ask(&mut rng);
        let mut whole = Ranked::new(8);
        pick(&ask, &all, &PickOptions::default(), &mut rng, &mut whole);
        for fallbacks in 0..8_u8 {
            let mut ranked = Ranked::new(fallbacks);
            pick(&ask, &all, &PickOptions::default(), &mut rng, &mut ranked);
            assert_eq!(
                ranked.entries(),
                &whole.entries()[..usize::from(fallbacks) + 1]
            );
        }
    }
}

/// What nonsense does to one field of an otherwise idle endpoint.
fn spoil(candidate: &mut Candidate, field: usize, x: f64) {
    let signals = &mut candidate.signals;
    match field {
        0 => candidate.matched_tokens = x,
        1 => signals.waiting = Some(x),
        2 => signals.running = Some(x),
        3 => signals.kv_use = Some(x),
        4 => signals.freshness = x,
        5 => signals.prefill_tokens = x,
        6 => signals.failure = x,
        7 => signals.outer_hit_share = x,
        8 => signals.cold_recent = x,
        9 => signals.prefill_tokens_per_ms = Some(x),
        10 => signals.usual_backlog_tokens = x,
        _ => signals.queue_ms = x,
    }
}

#[test]
fn nonsense_gains_nothing() {
    let mut rng = fastrand::Rng::with_seed(9);
    for field in 0..12 {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -1e300] {
            // Nine equal endpoints, of which one has a field of nonsense: at most its share.
            let mut spoilt_wins = 0;
            for conversation in 0..450_u64 {
                let mut all = candidates(&mut rng, 9);
                for candidate in &mut all {
                    candidate.matched_tokens = 0.0;
                    candidate.signals = Signals {
                        waiting: Some(1.0),
                        running: Some(4.0),
                        kv_use: Some(0.3),
                        freshness: 1.0,
                        ..Signals::default()
                    };
                }
                spoil(&mut all[4], field, x);
                let ask = Ask {
                    prompt_tokens: 4000.0,
                    conversation: rendezvous::weight(conversation, 3),
                    ..Ask::default()
                };
                let mut ranked = Ranked::new(1);
                let options = PickOptions::default();
                assert!(pick(&ask, &all, &options, &mut rng, &mut ranked).is_some());
                spoilt_wins += u32::from(ranked.winner().unwrap().slot == Slot(4));
                assert!(pick(&ask, &all, &weighted(), &mut rng, &mut ranked).is_some());
            }
            assert!(
                spoilt_wins <= 80,
                "field {field}, {x}: {spoilt_wins} of 450"
            );
        }
    }
}

#[test]
fn nonsense_in_the_request_is_survived() {
    let mut rng = fastrand::Rng::with_seed(10);
    for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300] {
        for field in 0..6 {
            let mut ask = ask(&mut rng);
            ask.later_turn = true;
            match field {
                0 => ask.prompt_tokens = x,
                1 => ask.head_tokens = x,
                2 => ask.turns_to_come = x,
                3 => ask.home_worth = x,
                4 => ask.unseen = x,
                _ => ask.mean_miss_tokens = x,
            }
            let all = candidates(&mut rng, 12);
            for options in [PickOptions::default(), weighted()] {
                let mut ranked = Ranked::new(3);
                assert!(pick(&ask, &all, &options, &mut rng, &mut ranked).is_some());
                assert!(ranked.entries().iter().all(|entry| entry.cost.is_finite()));
            }
        }
    }
}

#[test]
fn nobody_and_a_thousand() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut ranked = Ranked::new(8);
    let ask = ask(&mut rng);
    assert_eq!(
        pick(&ask, &[], &PickOptions::default(), &mut rng, &mut ranked),
        None
    );
    assert!(ranked.winner().is_none());
    let mut all = candidates(&mut rng, u16::try_from(MAX_ENDPOINTS).unwrap());
    all[700].matched_tokens = ask.prompt_tokens;
    all[700].signals = Signals {
        freshness: 1.0,
        waiting: Some(0.0),
        ..Signals::default()
    };
    assert!(pick(&ask, &all, &PickOptions::default(), &mut rng, &mut ranked).is_some());
    assert_eq!(ranked.entries().len(), 9);
    assert!(ranked.entries().iter().any(|entry| entry.slot == Slot(700)));
}

#[test]
fn among_those_in_time_the_most_cached() {
    let aim = core::time::Duration::from_millis(500);
    let options = PickOptions {
        slo_ttft: Some(aim),
        ..PickOptions::default()
    };
    let of = |slot, matched_tokens, prefill_tokens| Candidate {
        slot: Slot(slot),
        name_hash: u64::from(slot),
        matched_tokens,
        unheard: 0.0,
        signals: Signals {
            prefill_tokens,
            prefill_tokens_per_ms: Some(10.0),
            ..Signals::default()
        },
    };
    // 400 ms without a cache; 490 ms with most of it; too late with all.
    let all = [
        of(0, 0.0, 0.0),
        of(1, 3000.0, 3900.0),
        of(2, 4000.0, 9000.0),
    ];
    let ask = Ask {
        prompt_tokens: 4000.0,
        ..Ask::default()
    };
    let mut rng = fastrand::Rng::with_seed(12);
    let mut ranked = Ranked::new(2);
    assert_eq!(
        pick(&ask, &all, &options, &mut rng, &mut ranked),
        Some(Branch::Slo)
    );
    assert_eq!(
        ranked.winner().map(|e| (e.slot, e.ttft_ms)),
        Some((Slot(1), Some(490.0)))
    );
    // Nobody can: the least work.
    let late = Ask {
        prompt_tokens: 9000.0,
        ..Ask::default()
    };
    assert_ne!(
        pick(&late, &all, &options, &mut rng, &mut ranked),
        Some(Branch::Slo)
    );
    assert_eq!(ranked.winner().map(|e| e.slot), Some(Slot(0)));
}

#[test]
fn a_key_moves_only_with_its_endpoint() {
    let home = |key: u64, names: &[u64]| {
        names
            .iter()
            .copied()
            .max_by_key(|name| rendezvous::weight(key, *name))
            .unwrap()
    };
    let names: Vec<u64> = (1..=10).map(|at| rendezvous::weight(at, 1)).collect();
    let mut share = [0; 10];
    for key in (0..5000).map(|key| rendezvous::weight(key, 2)) {
        let all = home(key, &names);
        share[names.iter().position(|name| *name == all).unwrap()] += 1;
        if all != names[3] {
            let fewer: Vec<u64> = names
                .iter()
                .copied()
                .filter(|name| *name != names[3])
                .collect();
            assert_eq!(home(key, &fewer), all);
        }
    }
    assert!(
        share.iter().all(|share| (400..=600).contains(share)),
        "{share:?}"
    );
}
