//! Replicas of a gateway over a real Redis: the built plugin in the harness's host, whose Redis calls go to a
//! server that each test starts. Needs `make build`; without a redis-server every test says so and is skipped.

mod redis;
mod replica;

use redis::Redis;
use replica::Replica;
use warmroute_harness::built;
use warmroute_harness::host::{Artifact, Fault, Nth, Profile};

const CLUSTER: &str = "engines";
const STORE: &str = "store";
const TICK_MS: u64 = 100;

fn artifact() -> Artifact {
    built::artifact(Profile::Higress).unwrap()
}

fn tick(replicas: &mut [Replica], times: u32) {
    for _ in 0..times {
        replicas.iter_mut().for_each(Replica::tick);
    }
}

/// Two replicas that know where requests go, and each other.
fn pair(redis: &Redis, workers: usize, more: &str) -> [Replica; 2] {
    let artifact = artifact();
    let mut replicas = [0, 1].map(|number| Replica::start(&artifact, number, workers, redis, more));
    for replica in &mut replicas {
        for worker in 0..workers {
            replica.ask(worker, &text(1, 10));
        }
    }
    tick(&mut replicas, 5);
    replicas
}

/// Text of about `words` words that no other seed gives.
fn text(seed: u64, words: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut word = || -> String { (0..7).map(|_| rng.lowercase()).collect() };
    (0..words).map(|_| word() + " ").collect()
}

#[test]
fn a_prompt_of_one_replica_is_found_by_every_worker_of_the_other() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let mut replicas = pair(&redis, 3, "");
    for seed in 10..16 {
        let first = replicas[0].ask(seed as usize % 3, &text(seed, 2_000));
        assert_eq!(first.matched, 0);
        tick(&mut replicas, 3);
        for worker in 0..3 {
            let other = replicas[1].ask(worker, &text(seed, 2_000));
            assert_eq!(other.picked, first.picked, "seed {seed}, worker {worker}");
            assert!(other.matched > 50, "{}", other.matched);
        }
    }
    assert_eq!(replicas[0].metric("warmroute_replicas"), 1);
    assert_eq!(replicas[1].metric("warmroute_replica_failure_total"), 0);
    assert_eq!(replicas[1].metric("warmroute_replica_gap_total"), 0);
    // It goes when all are gone.
    let left_ms: i64 = redis.say(&["PTTL", "warmroute:1:default"]).parse().unwrap();
    assert!((1..=60_000).contains(&left_ms), "{left_ms}");
}

#[test]
fn groups_do_not_see_each_other() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let artifact = artifact();
    let mut replicas = [(0, "a"), (1, "b")].map(|(number, group)| {
        Replica::start(
            &artifact,
            number,
            1,
            &redis,
            &format!(r#","group":"{group}""#),
        )
    });
    replicas.iter_mut().for_each(|replica| {
        replica.ask(0, &text(1, 10));
    });
    tick(&mut replicas, 5);
    replicas[0].ask(0, &text(2, 2_000));
    tick(&mut replicas, 3);
    assert_eq!(replicas[1].ask(0, &text(2, 2_000)).matched, 0);
    assert_eq!(replicas[1].metric("warmroute_replicas"), 0);
}

#[test]
fn load_of_one_replica_counts_at_the_other_until_it_is_silent() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let mut replicas = pair(&redis, 2, "");
    let stream = replicas[0].send(0, &text(20, 20_000));
    let busy = replicas[0].workers[0]
        .seen(stream)
        .unwrap()
        .picked
        .clone()
        .unwrap();
    tick(&mut replicas, 3);
    for worker in 0..2 {
        let said = replicas[1].ask(worker, &text(21 + worker as u64, 100));
        assert_ne!(said.picked, busy);
        let best = said.costs[0].1;
        assert!(said.cost(&busy) > best + 10_000.0, "{:?}", said.costs);
    }
    // The busy one dies: what it had in flight counts for two seconds more.
    for _ in 0..25 {
        replicas[1].tick();
    }
    let said = replicas[1].ask(0, &text(23, 100));
    assert!(
        said.cost(&busy) < said.costs[0].1 + 1_000.0,
        "{:?}",
        said.costs
    );
    assert_eq!(replicas[1].metric("warmroute_replicas"), 0);
}

#[test]
fn a_store_that_dies_and_comes_back_is_said_once_and_costs_no_request() {
    let Some(mut redis) = Redis::start(&[]) else {
        return;
    };
    let mut replicas = pair(&redis, 2, "");
    redis.kill();
    for seed in 30..40 {
        replicas[0].ask(0, &text(seed, 500));
        tick(&mut replicas, 3);
    }
    assert!(replicas[0].metric("warmroute_replica_failure_total") >= 10);
    assert_eq!(replicas[0].metric("warmroute_replicas"), 0);
    let log = replicas[0].log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(
        log[0].contains("replicas' store: it cannot be reached"),
        "{log:?}"
    );
    redis.restart();
    tick(&mut replicas, 15);
    let first = replicas[0].ask(1, &text(40, 2_000));
    tick(&mut replicas, 3);
    let other = replicas[1].ask(1, &text(40, 2_000));
    assert_eq!((other.picked, other.matched > 50), (first.picked, true));
    assert_eq!(replicas[0].log().len(), 1);
}

#[test]
fn a_leader_that_dies_is_followed_by_another_worker() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let mut replicas = pair(&redis, 3, "");
    // Which one led does not show: the first is rebuilt, then the second.
    for (dead, seed) in [(0, 50), (1, 51)] {
        replicas[0].workers.remove(0);
        tick(&mut replicas, 30);
        let first = replicas[0].ask(0, &text(seed, 2_000));
        tick(&mut replicas, 3);
        let other = replicas[1].ask(0, &text(seed, 2_000));
        assert_eq!(
            (other.picked, other.matched > 50),
            (first.picked, true),
            "{dead}"
        );
        assert_eq!(replicas[1].metric("warmroute_replicas"), 1);
    }
}

#[test]
fn a_thread_whose_calls_the_gateway_refuses_lets_another_one_lead() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let artifact = artifact();
    let mut replicas = [0, 1].map(|number| Replica::start(&artifact, number, 2, &redis, ""));
    // It ticks first, and so is the first to lead.
    replicas[0].workers[0].add_fault(Fault {
        function: "proxy_redis_call".to_owned(),
        nth: Nth::Every,
        status: 12,
    });
    for replica in &mut replicas {
        replica.ask(0, &text(1, 10));
    }
    tick(&mut replicas, 5);
    assert_eq!(replicas[0].metric("warmroute_replicas"), 0);
    tick(&mut replicas, 40);
    assert_eq!(replicas[0].metric("warmroute_replicas"), 1);
    let first = replicas[0].ask(0, &text(55, 2_000));
    tick(&mut replicas, 3);
    let other = replicas[1].ask(0, &text(55, 2_000));
    assert_eq!((other.picked, other.matched > 50), (first.picked, true));
}

#[test]
fn the_password_opens_and_a_wrong_one_is_said_without_it() {
    let Some(redis) = Redis::start(&["--requirepass", "open-sesame"]) else {
        return;
    };
    let artifact = artifact();
    let with = |number, password: &str| {
        let more = format!(r#","password":"{password}""#);
        Replica::start(&artifact, number, 1, &redis, &more)
    };
    let mut replicas = [
        with(0, "open-sesame"),
        with(1, "open-sesame"),
        with(2, "open-onions"),
    ];
    for replica in &mut replicas {
        replica.ask(0, &text(1, 10));
    }
    tick(&mut replicas, 10);
    replicas[0].ask(0, &text(60, 2_000));
    tick(&mut replicas, 3);
    assert!(replicas[1].ask(0, &text(60, 2_000)).matched > 50);
    assert_eq!(replicas[2].ask(0, &text(60, 2_000)).matched, 0);
    assert_eq!(replicas[0].log(), Vec::<&str>::new());
    let log = replicas[2].log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("it refuses: NOAUTH"), "{log:?}");
    assert!(!log[0].contains("onions"));
    assert!(replicas[2].metric("warmroute_replica_failure_total") > 5);
}

#[test]
fn a_full_store_foreign_data_and_another_version_are_counted() {
    let Some(redis) = Redis::start(&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"])
    else {
        return;
    };
    let mut replicas = pair(&redis, 1, "");
    redis.say(&[
        "XADD",
        "warmroute:1:default",
        "*",
        "m",
        "wrr9 of another version",
    ]);
    redis.say(&["XADD", "warmroute:1:default", "*", "a", "b", "c", "d"]);
    tick(&mut replicas, 3);
    assert_eq!(replicas[0].metric("warmroute_replica_foreign_total"), 2);
    replicas[0].ask(0, &text(70, 2_000));
    tick(&mut replicas, 3);
    assert!(
        replicas[1].ask(0, &text(70, 2_000)).matched > 50,
        "it reads on behind them"
    );

    redis.say(&["SET", "ballast", &"x".repeat(100_000)]);
    while redis
        .say(&["APPEND", "ballast", &"x".repeat(100_000)])
        .parse::<u64>()
        .is_ok()
    {}
    replicas[0].ask(0, &text(71, 2_000));
    tick(&mut replicas, 3);
    assert!(
        replicas[0]
            .log()
            .iter()
            .any(|line| line.contains("it refuses: OOM"))
    );
    redis.say(&["DEL", "ballast"]);
    tick(&mut replicas, 3);

    redis.say(&["DEL", "warmroute:1:default"]);
    redis.say(&["SET", "warmroute:1:default", "a text"]);
    replicas[0].ask(0, &text(72, 2_000));
    tick(&mut replicas, 3);
    assert!(
        replicas[0]
            .log()
            .iter()
            .any(|line| line.contains("it refuses: WRONGTYPE"))
    );
    redis.say(&["DEL", "warmroute:1:default"]);
    replicas[0].ask(0, &text(73, 2_000));
    tick(&mut replicas, 3);
    assert!(
        replicas[1].ask(0, &text(73, 2_000)).matched > 50,
        "and on a new stream"
    );
}

#[test]
fn a_store_that_is_slow_is_not_waited_for() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let mut replicas = pair(&redis, 1, "");
    redis.say(&["CLIENT", "PAUSE", "1500", "ALL"]);
    // The host gives each call a second of real time, then tells the plugin that it failed.
    tick(&mut replicas[..1], 1);
    assert_eq!(replicas[0].metric("warmroute_replica_failure_total"), 0);
    replicas[0].tick();
    let said = replicas[0].ask(0, &text(80, 2_000));
    assert!(!said.picked.is_empty());
    assert!(replicas[0].metric("warmroute_replica_failure_total") >= 1);
}

/// What the figures in docs/REPLICAS.md are from: `-- --nocapture figures`.
#[test]
fn figures_at_a_thousand_requests_a_second() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let mut replicas = pair(&redis, 4, "");
    let names = ["call", "sent_bytes", "received_bytes", "gap"];
    let counts = |replica: &Replica| {
        names.map(|name| replica.metric(&format!("warmroute_replica_{name}_total")))
    };
    let before = counts(&replicas[0]);
    const TICKS: u64 = 20;
    for turn in 0..TICKS {
        for request in 0..100 {
            for (number, replica) in replicas.iter_mut().enumerate() {
                // 4 KB of prompt, the first half of it one of a hundred: some 1,000 tokens, half of them new.
                let name = turn * 1_000 + request * 2 + number as u64;
                let prompt = text(name % 100, 256) + &text(100_000 + name, 256);
                replica.ask(request as usize % 4, &prompt);
            }
        }
        tick(&mut replicas, 1);
    }
    let after = counts(&replicas[0]);
    let second = |at: usize| (after[at] - before[at]) * 1_000 / (TICKS * TICK_MS);
    println!(
        "a second and replica, of 2, at 1,000 requests/s each: {} calls, {} bytes out, {} bytes in, {} gaps",
        second(0),
        second(1),
        second(2),
        second(3)
    );
    assert!(second(0) <= 21, "two calls an interval");
    assert!((20_000..300_000).contains(&second(1)), "{}", second(1));
    assert!(
        second(2) <= 3 * second(1),
        "its own messages and the other's"
    );
    assert_eq!(second(3), 0);
}
