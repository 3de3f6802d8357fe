//! Replicas that talk through the stores' own bytes; what a store really answers is tried on real ones in the
//! harness.

mod protocols;

use super::etcd::Etcd;
use super::message::{MAX_BYTES, Section};
use super::redis::Redis;
use super::*;
use crate::config::{Secret, StoreKind};
use crate::exchange::{Count, RING, ReplicaPlace, Told, What as Event};
use core::time::Duration;

fn options() -> ReplicaOptions {
    ReplicaOptions {
        store: StoreKind::Redis,
        cluster: "store".to_owned(),
        interval: Duration::from_millis(100),
        group: "g".to_owned(),
        user: String::new(),
        password: Secret::default(),
    }
}

/// One process with one worker, as far as the machine sees it.
struct Process {
    replicas: Replicas<Redis>,
    worker: Outbox,
    ring: Vec<Vec<u8>>,
    telemetry: Telemetry,
}

const CLUSTER: &str = "engines";

impl Process {
    fn new(process: u64) -> Self {
        Self {
            replicas: Replicas::new(&options(), 0, process, 1),
            worker: Outbox::default(),
            ring: vec![Vec::new(); RING as usize],
            telemetry: Telemetry::default(),
        }
    }

    fn tell(&mut self, blocks: &[u64]) {
        self.worker.tell(Event::Recorded, 7, 70, blocks);
    }

    /// Gathers, and gives the message of a put, when one is due.
    fn put(&mut self, inflight: u32, now: Millis) -> Option<Vec<u8>> {
        self.replicas.lead([CLUSTER].into_iter(), now);
        self.replicas.listen(0, [1, REPLICAS_BIT | 1].into_iter());
        let counts = (inflight > 0).then_some(Count {
            name_hash: 7,
            inflight,
            oldest_at: Millis(now.0 - 40),
            oldest_tokens: 9,
            ..Count::default()
        });
        let head = self.worker.head(1, counts.into_iter(), now);
        let worker = self.replicas.worker(0, 0)?;
        assert!(worker.read_head(&head));
        if let Some((_, segment)) = self.worker.segment(1) {
            self.replicas.hear(0, 0, &segment, &mut self.telemetry);
        }
        let queries = self.replicas.due(&mut self.telemetry, now);
        let put = queries.into_iter().find(|query| query.what == What::Put)?;
        let at = put.bytes.windows(4).position(|four| four == b"wrr2")?;
        Some(put.bytes[at..put.bytes.len() - 2].to_vec())
    }

    fn put_answered(&mut self, id: &str, now: Millis) {
        let body = format!("${}\r\n{id}\r\n", id.len());
        self.answer(What::Put, Some(body.as_bytes()), now);
    }

    fn answer(&mut self, what: What, body: Option<&[u8]>, now: Millis) {
        let answer = body.map(|body| (0, body));
        self.replicas.answer(what, answer, &mut self.telemetry, now);
    }

    fn counted(&mut self, counter: Counter) -> u64 {
        let mut found = 0;
        let place = Counter::all().position(|known| known == counter);
        self.telemetry.drain(
            |at, by| found += if Some(at) == place { by } else { 0 },
            |_, _| {},
        );
        found
    }
}

fn stream(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut body = format!(
        "*1\r\n*2\r\n$13\r\nwarmroute:1:g\r\n*{}\r\n",
        messages.len()
    )
    .into_bytes();
    for (number, message) in messages.iter().enumerate() {
        body.extend(
            format!("*2\r\n$7\r\n1000-{:02}\r\n*2\r\n$1\r\nm\r\n", number + 10).into_bytes(),
        );
        body.extend(format!("${}\r\n", message.len()).into_bytes());
        body.extend(message);
        body.extend(b"\r\n");
    }
    body
}

/// What a worker hears from the member that stands for the replicas.
fn heard(process: &mut Process, now: Millis) -> (Member, Vec<Told>) {
    let member = process.replicas.member();
    let (mut reader, mut told) = (Member::new(member), Vec::new());
    let ring = &mut process.ring;
    process.replicas.publish(now, &mut |cluster, place, bytes| {
        assert_eq!(cluster, CLUSTER);
        match place {
            Some(place) => ring[place as usize] = bytes.to_vec(),
            None => assert!(reader.read_head(bytes)),
        }
    });
    while let Some(place) = reader.wanted() {
        let mut no_budget = usize::MAX;
        let read = reader.read_segment(&ring[place as usize], &mut no_budget, &mut |entry| {
            told.push(entry.told());
        });
        if read.is_none() {
            break;
        }
    }
    (reader, told)
}

#[test]
fn what_one_replica_has_another_ones_workers_hear() {
    let (mut one, mut two) = (Process::new(1), Process::new(2));
    one.tell(&[1, 2, 3]);
    let message = one.put(3, Millis(5_000)).unwrap();
    // The other's clock is a minute ahead.
    let now = Millis(65_020);
    two.replicas.lead([CLUSTER].into_iter(), now);
    two.answer(What::Read, Some(&stream(&[message])), now);
    let (reader, told) = heard(&mut two, now);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].name_hash, &*told[0].blocks), (7, &[1, 2, 3][..]));
    assert_eq!(reader.counts.len(), 1);
    assert_eq!((reader.counts[0].inflight, reader.at), (3, now));
    assert_eq!(reader.counts[0].oldest_at, Millis(now.0 - 40));
    assert_eq!(two.replicas.alive(now), 1);
    assert_eq!(reader.replica_place, ReplicaPlace { number: 1, of: 2 });
    // Silent: it has nothing in flight any more.
    let later = now.plus(EXPIRY_MS);
    let (reader, _) = heard(&mut two, later);
    assert_eq!((reader.counts.len(), two.replicas.alive(later)), (0, 0));
    assert_eq!(reader.replica_place, ReplicaPlace { number: 0, of: 1 });
}

#[test]
fn a_replica_that_gets_no_requests_is_left_no_endpoints() {
    let (mut one, mut two) = (Process::new(1), Process::new(2));
    one.tell(&[1, 2, 3]);
    for round in 0..200 {
        let now = Millis(5_000 + round * 100);
        // Long answers are still under way.
        let message = one.put(3, now).unwrap();
        one.put_answered("1000-1", now);
        two.replicas.lead([CLUSTER].into_iter(), now);
        two.answer(What::Read, Some(&stream(&[message])), now);
        let of = heard(&mut two, now).0.replica_place.of;
        match round {
            0..50 => assert_eq!(of, 2),
            150.. => assert_eq!((two.replicas.alive(now), of), (1, 1)),
            _ => {}
        }
    }
    one.tell(&[4]);
    let now = Millis(60_000);
    let message = one.put(3, now).unwrap();
    two.answer(What::Read, Some(&stream(&[message])), now);
    let (reader, _) = heard(&mut two, now);
    assert_eq!(reader.replica_place, ReplicaPlace { number: 1, of: 2 });
}

#[test]
fn own_messages_old_ones_and_foreign_bytes_change_nothing() {
    let mut one = Process::new(1);
    one.tell(&[1]);
    let own = one.put(1, Millis(5_000)).unwrap();
    let mut two = Process::new(2);
    two.tell(&[2]);
    let other = two.put(1, Millis(5_000)).unwrap();
    let bodies = [
        own,
        other.clone(),
        other,
        b"nonsense".to_vec(),
        b"wrr2".to_vec(),
    ];
    one.answer(What::Read, Some(&stream(&bodies)), Millis(5_010));
    let (_, told) = heard(&mut one, Millis(5_010));
    assert_eq!(told.len(), 1, "its own and the second copy are not told");
    assert_eq!(one.counted(Counter::ReplicaForeign), 2);
}

#[test]
fn what_was_lost_or_did_not_fit_is_counted() {
    let (mut one, mut two) = (Process::new(1), Process::new(2));
    let mut messages = Vec::new();
    let blocks: Vec<u64> = (0..900).collect();
    for turn in 0..3_u64 {
        for _ in 0..7 {
            one.tell(&blocks);
            let segment = one.worker.segment(1).unwrap().1;
            let now = Millis(5_000 + turn * 100);
            one.replicas.lead([CLUSTER].into_iter(), now);
            one.replicas.listen(0, [1].into_iter());
            one.replicas
                .worker(0, 0)
                .unwrap()
                .read_head(&one.worker.head(1, core::iter::empty(), now));
            one.replicas.hear(0, 0, &segment, &mut one.telemetry);
        }
        let message = one.put(0, Millis(5_000 + turn * 100)).unwrap();
        assert!(message.len() <= MAX_BYTES);
        messages.push(message);
        one.put_answered("1000-1", Millis(5_001 + turn * 100));
    }
    // The second never arrives; of the others six of seven entries fit.
    messages.remove(1);
    two.replicas.lead([CLUSTER].into_iter(), Millis(5_300));
    two.answer(What::Read, Some(&stream(&messages)), Millis(5_300));
    assert_eq!(two.counted(Counter::ReplicaGaps), 1 + 7);
    let (_, told) = heard(&mut two, Millis(5_300));
    assert_eq!(told.len(), 12, "over several segments");
}

#[test]
fn an_idle_replica_is_quiet_and_a_call_a_kind_is_out() {
    let mut one = Process::new(1);
    assert!(one.put(1, Millis(1_000)).is_some());
    assert!(
        one.put(1, Millis(1_100)).is_none(),
        "the last is not answered"
    );
    assert!(one.put(1, Millis(3_000)).is_some(), "it is given up");
    assert_eq!(one.counted(Counter::ReplicaFailures), 1);
    one.put_answered("1000-1", Millis(3_001));
    assert!(
        one.put(0, Millis(3_100)).is_some(),
        "that there is nothing any more"
    );
    one.put_answered("1000-2", Millis(3_101));
    assert!(one.put(0, Millis(3_200)).is_none());
    assert!(one.put(1, Millis(3_300)).is_some());
    // One that begins while the store is down asks until it knows where the present is.
    let mut idle = Process::new(2);
    for at in [1_000, 1_100, 1_200] {
        assert!(idle.put(0, Millis(at)).is_some());
        idle.answer(What::Put, None, Millis(at));
    }
    assert!(idle.put(0, Millis(1_300)).is_some());
    idle.put_answered("1000-1", Millis(1_301));
    assert!(idle.put(0, Millis(1_400)).is_none());
}

#[test]
fn trouble_is_said_once() {
    let mut one = Process::new(1);
    one.answer(
        What::Put,
        Some(b"-NOAUTH Authentication required.\r\n"),
        Millis(1),
    );
    let said = one.replicas.take_news().unwrap();
    assert!(said.contains("it refuses: NOAUTH;"), "{said}");
    one.answer(
        What::Put,
        Some(b"-NOAUTH Authentication required.\r\n"),
        Millis(2),
    );
    assert_eq!(one.replicas.take_news(), None);
    one.answer(What::Read, None, Millis(3));
    assert!(
        one.replicas
            .take_news()
            .unwrap()
            .contains("cannot be reached")
    );
    // The two in turn are no news either; what came back after a minute is.
    for at in 4..100 {
        one.answer(What::Put, Some(b"-NOAUTH x\r\n"), Millis(at));
        one.answer(What::Read, None, Millis(at));
        assert_eq!(one.replicas.take_news(), None);
    }
    one.answer(What::Read, None, Millis(60_200));
    assert!(one.replicas.take_news().is_some());
    assert_eq!(one.counted(Counter::ReplicaFailures), 3 + 2 * 96 + 1);
}

#[test]
fn any_bytes_can_be_a_message() {
    let mut one = Process::new(1);
    one.tell(&[1, 2, 3]);
    let good = one.put(1, Millis(5_000)).unwrap();
    let mut rng = fastrand::Rng::with_seed(9);
    let (mut others, mut telemetry) = (Others::new(9), Telemetry::default());
    for now in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..rng.usize(0..4) {
            let at = rng.usize(4..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(..=bytes.len()));
        others.take(&bytes, &mut telemetry, Millis(now), &mut |_, _| {});
        assert!(others.alive(Millis(now)) <= others::MAX_REPLICAS);
    }
    let (_, sections) = message::read(&good).unwrap();
    assert!(matches!(sections[..], [Section { first: 0, .. }]));
}

#[test]
fn what_fifty_replicas_tell_in_an_interval_reaches_the_workers_whole() {
    const OTHERS: u64 = 49;
    let now = Millis(5_000);
    let messages: Vec<Vec<u8>> = (2..2 + OTHERS)
        .map(|process| {
            // A hundred requests of 2 KB of new prompt each, as at 1,000 requests a second.
            let mut entries = Vec::new();
            for request in 0..100 {
                let blocks: Vec<u64> = (0..9).map(|n| process << 32 | request << 8 | n).collect();
                Told::write(Event::Recorded, 7, 70, &blocks, &mut entries);
            }
            let header = Header {
                process,
                leader: 1,
                number: 0,
                at: now,
            };
            let count = Count {
                name_hash: 7,
                inflight: 1,
                ..Count::default()
            };
            let mut message = message::begin(&header);
            message::add(&mut message, scope(0, CLUSTER), 0, &[count], &entries);
            message
        })
        .collect();
    let mut one = Process::new(1);
    one.replicas.lead([CLUSTER].into_iter(), now);
    one.answer(What::Read, Some(&stream(&messages)), now);
    let (reader, told) = heard(&mut one, now);
    assert_eq!((told.len(), reader.counts[0].inflight), (4_900, 49));
    assert_eq!(one.counted(Counter::ReplicaGaps), 0);
}
