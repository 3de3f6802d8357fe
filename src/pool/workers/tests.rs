//! What workers tell each other of, and what is then taken for others'.

use super::*;
use crate::config::Config;
use crate::endpoints::load::{Health, Load};
use crate::exchange::members::REPLICAS_BIT;
use crate::exchange::{Outbox, ReplicaPlace};
use crate::pool::{Figures, Listed, Question};
use crate::request::Prompt;

const ADDRESS: &str = "10.0.0.1:8000";

fn pool() -> Pool {
    let config = Config::default();
    let mut pool = Pool::new(&config);
    let listed = [Listed {
        address: ADDRESS,
        health: Health::Healthy,
        role: None,
        said: None::<Figures>,
    }];
    pool.list(
        listed.into_iter(),
        &config,
        &mut Telemetry::default(),
        Millis(0),
    );
    pool
}

fn counted(tokens: f64) -> Load {
    Load {
        prefix_queries: Some(tokens),
        prefix_hits: Some(0.0),
        ..Load::default()
    }
}

/// Tokens that count as unseen others', when an engine has begun with 8,000 and a worker told of so many.
fn unseen_after(told_tokens: u32) -> f64 {
    let mut pool = pool();
    let slot = pool.table.slot_of(ADDRESS).unwrap();
    pool.table
        .get_mut(slot)
        .unwrap()
        .read(counted(0.0), Millis(0));
    let mut outbox = Outbox::default();
    let name_hash = pool.table.get(slot).unwrap().name_hash;
    outbox.tell(What::Recorded, name_hash, told_tokens, &[1, 2, 3]);
    pool.exchange.listen([9].into_iter());
    let head = outbox.head(9, core::iter::empty(), Millis(10));
    assert!(pool.hear_head(9, 1, &head, Millis(10)));
    let (_, segment) = outbox.segment(9).unwrap();
    let mut budget = 100;
    pool.hear_segment(
        9,
        &segment,
        &mut budget,
        &mut Telemetry::default(),
        Millis(10),
    );
    let endpoint = pool.table.get_mut(slot).unwrap();
    endpoint.read(counted(8_000.0), Millis(20));
    endpoint.unseen_tokens(Millis(20)).round()
}

#[test]
fn what_workers_told_of_is_no_unseen_work() {
    assert!(unseen_after(0) > 7_000.0);
    assert_eq!(unseen_after(8_000), 0.0);
}

#[test]
fn this_replicas_place_is_what_the_vm_that_leads_now_tells() {
    let mut pool = pool();
    let before_it = REPLICAS_BIT | 1;
    pool.exchange
        .listen([before_it, REPLICAS_BIT | 2].into_iter());
    let tell = |pool: &mut Pool, member, of, now| {
        let mut outbox = Outbox::default();
        outbox.replica_place = ReplicaPlace { number: 0, of };
        let head = outbox.head(member, core::iter::empty(), now);
        assert!(pool.hear_head(member, of.into(), &head, now));
        pool.sum_others(now);
        pool.split.unheard(3, 4)
    };
    assert_eq!(tell(&mut pool, before_it, 1, Millis(1_000)), 0.0);
    let two = tell(&mut pool, REPLICAS_BIT | 2, 2, Millis(1_100));
    assert!(two > 0.0, "the newer word counts");
    pool.sum_others(Millis(3_050));
    assert_eq!(pool.split.unheard(3, 4), two, "the first is silent");
    pool.sum_others(Millis(60_000));
    assert_eq!(pool.split.unheard(3, 4), 0.0);
}

#[test]
fn a_prefill_that_anothers_request_came_into_tells_no_rate() {
    let (config, mut telemetry) = (Config::default(), Telemetry::default());
    let prompt = Prompt {
        bytes: 40_000,
        stream: true,
        ..Prompt::default()
    };
    let question = Question {
        prompt: &prompt,
        session: None,
        subset: None,
        pick: &config.pick,
        limits: None,
    };
    for (first_token_at, rate) in [(900, Some(10.0)), (1_500, None)] {
        let mut pool = pool();
        let mut rng = fastrand::Rng::with_seed(1);
        let now = Millis(1_000);
        let sent = pool.decide(
            &question,
            Vec::new(),
            &config,
            &mut rng,
            &mut telemetry,
            now,
        );
        let mut sent = sent.unwrap();
        let endpoint = pool.table.get_mut(sent.slot).unwrap();
        // Told later: when this request was sent, nobody knew of the other.
        endpoint.others.ahead.first_token_at = Millis(first_token_at);
        pool.first_token(&mut sent, &config, &mut telemetry, Millis(2_000));
        let learned = pool.table.get(sent.slot).unwrap().rate.tokens_per_ms();
        assert_eq!(learned, rate, "first token of another at {first_token_at}");
    }
}

#[test]
fn endpoints_that_requests_name_have_their_place_at_once() {
    let config = Config::default();
    let mut pool = Pool::new(&config);
    for addresses in [&["a:1", "b:1"][..], &["c:1", "d:1"]] {
        pool.name(addresses, &config, Millis(1_000));
    }
    let mut orders: Vec<u32> = pool.table.iter().map(|(_, known)| known.order).collect();
    orders.sort_unstable();
    assert_eq!(orders, [0, 1, 2, 3]);
}

#[test]
fn an_engine_that_tells_nothing_any_more_is_learned_about_all_the_same() {
    let mut pool = pool();
    let slot = pool.table.slot_of(ADDRESS).unwrap();
    let endpoint = pool.table.get_mut(slot).unwrap();
    let load = Load {
        waiting: Some(3.0),
        ..Load::default()
    };
    endpoint.read(load, Millis(1_000));
    assert!(!endpoint.is_ours_alone(Millis(1_100)));
    assert!(endpoint.is_ours_alone(Millis(100_000)));
}
