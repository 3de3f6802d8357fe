//! Cases 41, 43, 44, 45, 46 and 48: what the cost profile does with a tiny set of books.

mod replicas;

use warmroute::clock::Millis;
use warmroute::config::PickOptions;
use warmroute::endpoints::Slot;
use warmroute::endpoints::cooldown::Cooldown;
use warmroute::pick::filter::{Excluded, Standing, eligible};
use warmroute::pick::{Ask, Branch, Candidate, Ranked, Signals, pick, rendezvous};

/// One endpoint as one worker sees it.
#[derive(Clone, Default)]
struct Page {
    matched_tokens: f64,
    prefill_tokens: f64,
    awaiting_first: u32,
    cold: f64,
    failure: f64,
    usual_backlog_tokens: f64,
    snapshot: Option<(f64, f64)>,
    freshness: f64,
}

fn candidate(at: u16, page: &Page) -> Candidate {
    Candidate {
        slot: Slot(at),
        name_hash: rendezvous::weight(u64::from(at) + 1, 77),
        matched_tokens: page.matched_tokens,
        unheard: 0.0,
        signals: Signals {
            waiting: page.snapshot.map(|(waiting, _)| waiting),
            running: page.snapshot.map(|(_, running)| running),
            freshness: page.freshness,
            inflight: page.awaiting_first,
            prefill_tokens: page.prefill_tokens,
            usual_backlog_tokens: page.usual_backlog_tokens,
            awaiting_first: page.awaiting_first,
            cold_recent: page.cold,
            failure: page.failure,
            ..Signals::default()
        },
    }
}

struct Worker {
    pages: Vec<Page>,
    /// What others may have sent to every other endpoint, from this one on.
    unheard: (f64, usize),
    ranked: Ranked,
    rng: fastrand::Rng,
}

impl Worker {
    fn new(endpoints: usize) -> Self {
        Self {
            pages: vec![Page::default(); endpoints],
            unheard: (0.0, 0),
            ranked: Ranked::new(2),
            rng: fastrand::Rng::with_seed(3),
        }
    }

    fn pick(&mut self, ask: &Ask) -> (usize, Branch) {
        let candidates: Vec<Candidate> = (0..)
            .zip(&self.pages)
            .map(|(at, page)| Candidate {
                unheard: if usize::from(at) % 2 == self.unheard.1 {
                    self.unheard.0
                } else {
                    0.0
                },
                ..candidate(at, page)
            })
            .collect();
        let options = PickOptions::default();
        let branch = pick(ask, &candidates, &options, &mut self.rng, &mut self.ranked).unwrap();
        (usize::from(self.ranked.winner().unwrap().slot.0), branch)
    }

    /// Picks, sends, and believes the prefix to be there from now on.
    fn send(&mut self, ask: &Ask, prefix_tokens: f64) -> usize {
        let (at, _) = self.pick(ask);
        let page = &mut self.pages[at];
        page.prefill_tokens += ask.prompt_tokens - page.matched_tokens;
        page.awaiting_first += 1;
        if self.ranked.cold() {
            page.cold += 1.0;
        }
        page.matched_tokens = prefix_tokens;
        at
    }
}

fn ask(prompt_tokens: f64, conversation: u64) -> Ask {
    Ask {
        prompt_tokens,
        conversation,
        ..Ask::default()
    }
}

#[test]
fn case_41_old_metrics_count_as_the_mean() {
    let mut worker = Worker::new(4);
    for page in &mut worker.pages {
        page.snapshot = Some((4.0, 20.0));
        page.freshness = 1.0;
    }
    // Says idle, but minutes ago.
    worker.pages[1].snapshot = Some((0.0, 0.0));
    worker.pages[1].freshness = 0.0;
    let mut got = [0; 4];
    for conversation in 0..400_u64 {
        got[worker
            .pick(&ask(2000.0, rendezvous::weight(conversation, 5)))
            .0] += 1;
    }
    assert!(got[1] < 150, "{got:?}");
    assert!(got.iter().all(|share| *share > 50), "{got:?}");
    // All old: neutral.
    for page in &mut worker.pages {
        page.freshness = 0.0;
    }
    let mut got = [0; 4];
    for conversation in 0..400_u64 {
        got[worker
            .pick(&ask(2000.0, rendezvous::weight(conversation, 5)))
            .0] += 1;
    }
    assert!(got.iter().all(|share| *share > 50), "{got:?}");
    // The same figures, fresh: now idle is idle.
    for page in &mut worker.pages {
        page.freshness = 1.0;
    }
    assert_eq!(worker.pick(&ask(2000.0, 9)).0, 1);
}

#[test]
fn case_43_a_shared_prompt_spills_over_and_a_sequence_stays() {
    let mut worker = Worker::new(4);
    let mut got = [0; 4];
    for number in 0..64_u64 {
        got[worker.send(&ask(3000.0, rendezvous::weight(number, 1)), 2048.0)] += 1;
    }
    assert!(got.iter().all(|share| (8..=24).contains(share)), "{got:?}");

    let mut worker = Worker::new(4);
    let first = worker.send(&ask(3000.0, 1), 2048.0);
    for number in 2..64_u64 {
        let page = &mut worker.pages[first];
        page.prefill_tokens = 0.0;
        page.awaiting_first = 0;
        let (at, branch) = worker.pick(&ask(3000.0, rendezvous::weight(number, 1)));
        assert_eq!((at, branch), (first, Branch::Prefix));
        worker.send(&ask(3000.0, rendezvous::weight(number, 1)), 2048.0);
    }
}

#[test]
fn case_44_a_cold_burst_is_never_all_on_one() {
    // Four workers that know nothing of each other: each has to spill by itself.
    for workers in [1, 4] {
        for (prompt, prefix) in [(2048.0, 2048.0), (8400.0, 8192.0), (12_000.0, 11_776.0)] {
            let mut views = vec![Worker::new(8); workers];
            let mut got = [0; 8];
            for number in 0..16 {
                // The same first message: the same key, the same home in every worker.
                got[views[number % workers].send(&ask(prompt, 1234), prefix)] += 1;
            }
            assert!(
                got.iter().all(|share| *share < 16),
                "{workers} workers: {got:?}"
            );
        }
    }
}

impl Clone for Worker {
    fn clone(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            unheard: self.unheard,
            ranked: Ranked::new(2),
            rng: fastrand::Rng::with_seed(3),
        }
    }
}

#[test]
fn case_45_a_new_endpoint_gets_its_share_and_no_more() {
    let mut worker = Worker::new(4);
    for page in &mut worker.pages {
        page.cold = 100.0;
    }
    worker.pages.push(Page::default());
    let mut got = [0; 5];
    for number in 0..500_u64 {
        let at = worker.pick(&ask(1500.0, rendezvous::weight(number, 11))).0;
        worker.pages[at].cold += 1.0;
        got[at] += 1;
    }
    assert!((50..=200).contains(&got[4]), "{got:?}");

    // Back with count 0 while the others are busy: its own tokens are counted at once.
    let mut worker = Worker::new(4);
    for page in worker.pages.iter_mut().skip(1) {
        page.prefill_tokens = 10_000.0;
        page.awaiting_first = 3;
    }
    let mut got = [0; 4];
    for number in 0..40_u64 {
        got[worker.send(&ask(1500.0, rendezvous::weight(number, 11)), 0.0)] += 1;
    }
    assert!((9..=20).contains(&got[0]), "{got:?}");
}

#[test]
fn case_45_what_fails_fast_does_not_look_idle() {
    let mut worker = Worker::new(3);
    worker.pages[0].failure = 0.6;
    for page in worker.pages.iter_mut().skip(1) {
        page.prefill_tokens = 12_000.0;
        page.awaiting_first = 4;
    }
    for number in 0..50_u64 {
        assert_ne!(
            worker.pick(&ask(1000.0, rendezvous::weight(number, 2))).0,
            0
        );
    }
}

#[test]
fn case_46_affinity_fades_with_the_match() {
    let mut worker = Worker::new(4);
    worker.pages[2].matched_tokens = 6000.0;
    worker.pages[2].prefill_tokens = 3000.0;
    assert_eq!(worker.pick(&ask(8000.0, 5)), (2, Branch::Prefix));
    // Deliveries below the prediction have trimmed its entries: the work ahead decides again.
    worker.pages[2].matched_tokens = 1000.0;
    assert_ne!(worker.pick(&ask(8000.0, 5)).0, 2);
}

#[test]
fn case_48_who_may_not_be_picked() {
    let now = Millis(1_000);
    let fine = Standing::default();
    assert_eq!(eligible(&fine, now), Ok(()));
    for (standing, excluded) in [
        (
            Standing {
                healthy: false,
                ..fine
            },
            Excluded::Unhealthy,
        ),
        (
            Standing {
                draining: true,
                ..fine
            },
            Excluded::Draining,
        ),
        (
            Standing {
                in_subset: false,
                ..fine
            },
            Excluded::NotInSubset,
        ),
        (
            Standing {
                serves_model: Some(false),
                ..fine
            },
            Excluded::WrongModel,
        ),
        (
            Standing {
                cooling_until: Some(Millis(1_001)),
                ..fine
            },
            Excluded::CoolingDown,
        ),
    ] {
        assert_eq!(eligible(&standing, now), Err(excluded));
    }
    assert_eq!(
        eligible(
            &Standing {
                cooling_until: Some(now),
                ..fine
            },
            now
        ),
        Ok(())
    );
}

#[test]
fn a_cooldown_is_half_open_after_its_time() {
    let options = PickOptions::default();
    let mut cooldown = Cooldown::default();
    let at = |ms| Millis(ms);
    cooldown.failed(at(0), &options);
    cooldown.failed(at(0), &options);
    assert_eq!(cooldown.until(at(0)), None);
    cooldown.succeeded();
    for _ in 0..3 {
        cooldown.failed(at(0), &options);
    }
    assert_eq!(cooldown.until(at(0)), Some(at(10_000)));
    // The request that tries it closes it for the others, for one cooldown.
    cooldown.picked(at(10_000), &options);
    assert_eq!(cooldown.until(at(10_000)), Some(at(20_000)));
    // A clock that was set back by an hour does not put it aside for an hour.
    assert_eq!(cooldown.until(at(9_000)), None);
    cooldown.succeeded();
    assert_eq!(cooldown.until(at(10_000)), None);
}

#[test]
fn a_later_turn_goes_home_while_nobody_knows_its_place() {
    let mut worker = Worker::new(8);
    let turn = Ask {
        head_tokens: 7000.0,
        later_turn: true,
        home_worth: 1.0,
        unseen: 1.0,
        ..ask(8000.0, 42)
    };
    let (home, branch) = worker.pick(&turn);
    assert_eq!(branch, Branch::Home);
    for alone in [
        Ask {
            home_worth: 0.0,
            ..turn
        },
        Ask {
            unseen: 0.0,
            ..turn
        },
    ] {
        assert_eq!(
            worker.pick(&alone).1,
            Branch::Tie,
            "nobody else could have sent it home"
        );
    }
    worker.pages[home].prefill_tokens = 4000.0;
    assert_eq!(worker.pick(&turn).0, home);
    // A real match beats a guess.
    let other = (home + 1) % 8;
    worker.pages[other].matched_tokens = 7000.0;
    assert_eq!(worker.pick(&turn), (other, Branch::Prefix));
}

#[test]
fn a_new_conversation_begins_where_its_later_turns_will_not_wait() {
    let mut worker = Worker::new(2);
    worker.pages[0].matched_tokens = 6000.0;
    worker.pages[0].usual_backlog_tokens = 1000.0;
    let first = Ask {
        turns_to_come: 10.0,
        ..ask(6500.0, 7)
    };
    assert_eq!(worker.pick(&first).0, 1, "a copy of the shared prefix pays");
    let only = Ask {
        turns_to_come: 0.0,
        ..first
    };
    assert_eq!(worker.pick(&only).0, 0);
    let later = Ask {
        later_turn: true,
        ..first
    };
    assert_eq!(worker.pick(&later).0, 0);
}

#[test]
fn a_strict_session_stays() {
    let mut worker = Worker::new(4);
    worker.pages[3].prefill_tokens = 90_000.0;
    let bound = Ask {
        sticky: Some(Slot(3)),
        ..ask(100.0, 1)
    };
    assert_eq!(worker.pick(&bound), (3, Branch::Session));
    assert_eq!(worker.ranked.entries().len(), 3);
    let gone = Ask {
        sticky: Some(Slot(9)),
        ..bound
    };
    assert_ne!(worker.pick(&gone).0, 3);
}
