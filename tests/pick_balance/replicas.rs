//! What replicas leave each other of the endpoints while they have not heard of each other.

use warmroute::config::PickOptions;
use warmroute::pick::{Ask, Ranked, pick, rendezvous};

use super::{Page, Worker, ask, candidate};

/// How many endpoints two replicas both sent to, who decide about eight cold prompts on eight idle endpoints before
/// they hear of each other.
fn collisions(unheard: f64, round: u64) -> usize {
    let mut sent = [[0; 8]; 2];
    for (replica, sent) in sent.iter_mut().enumerate() {
        let mut worker = Worker::new(8);
        worker.unheard = (unheard, replica);
        for request in 0..4 {
            let conversation = rendezvous::weight(round * 100 + request, 5 + replica as u64);
            let ask = Ask {
                mean_miss_tokens: 8_000.0,
                ..ask(8_000.0, conversation)
            };
            sent[worker.send(&ask, 0.0)] += 1;
        }
    }
    (0..8).filter(|at| sent[0][*at] * sent[1][*at] > 0).count()
}

#[test]
fn replicas_that_have_not_heard_of_each_other_yet_keep_apart() {
    let all = |unheard| {
        (0..100)
            .map(|round| collisions(unheard, round))
            .sum::<usize>()
    };
    assert_eq!(all(0.5), 0);
    assert!(all(0.0) > 100, "or else there is nothing to avoid");
}

#[test]
fn a_cache_is_followed_while_it_saves_more_than_others_may_have_sent() {
    for (unheard, expected) in [(0.5, 1), (8.0, 0)] {
        let mut worker = Worker::new(2);
        worker.unheard = (unheard, 1);
        worker.pages[1].matched_tokens = 7_000.0;
        let ask = Ask {
            mean_miss_tokens: 8_000.0,
            ..ask(8_000.0, 9)
        };
        assert_eq!(worker.pick(&ask).0, expected, "{unheard}");
    }
}

#[test]
fn what_is_unheard_is_no_part_of_a_prediction() {
    let predicted = |unheard| {
        let mut one = candidate(0, &Page::default());
        one.signals.prefill_tokens_per_ms = Some(10.0);
        one.unheard = unheard;
        let (mut rng, mut ranked) = (fastrand::Rng::with_seed(1), Ranked::new(0));
        pick(
            &ask(8_000.0, 1),
            &[one],
            &PickOptions::default(),
            &mut rng,
            &mut ranked,
        );
        ranked.winner().unwrap().ttft_ms
    };
    assert_eq!(predicted(8.0), predicted(0.0));
}
