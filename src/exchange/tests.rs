//! What is told is heard once, in order, whatever the bytes.

use super::*;

/// A ring of segments, as shared data holds it.
type Ring = Vec<Vec<u8>>;

/// A log, its ring, and somebody who hears of it.
fn fresh() -> (Outbox, Ring, Member) {
    let ring = vec![Vec::new(); RING as usize];
    (Outbox::default(), ring, Member::new(1))
}

fn told(what: What, blocks: &[u64]) -> Told {
    Told {
        what,
        name_hash: 7,
        uncached_tokens: 70,
        blocks: blocks.to_vec(),
    }
}

fn tell(outbox: &mut Outbox, ring: &mut Ring, entry: &Told) {
    outbox.tell(
        entry.what,
        entry.name_hash,
        entry.uncached_tokens,
        &entry.blocks,
    );
    let (place, bytes) = outbox.segment(1).unwrap();
    ring[place as usize] = bytes;
}

fn listen(
    member: &mut Member,
    outbox: &Outbox,
    ring: &Ring,
    mut budget: usize,
) -> (Vec<Told>, u32) {
    let (mut heard, mut missed) = (Vec::new(), 0);
    assert!(member.read_head(&outbox.head(1, core::iter::empty(), Millis(5))));
    for _ in 0..=RING {
        let Some(place) = member.wanted() else { break };
        match member.read_segment(&ring[place as usize], &mut budget, &mut |entry| {
            heard.push(entry.told());
        }) {
            Some(more) => missed += more,
            None => break,
        }
        if budget == 0 {
            break;
        }
    }
    (heard, missed)
}

#[test]
fn what_is_told_is_heard_once_and_in_order() {
    let (mut outbox, mut ring, mut member) = fresh();
    let first = told(What::Recorded, &[1, 2, 3]);
    let second = told(What::Withdrawn, &[3]);
    tell(&mut outbox, &mut ring, &first);
    tell(&mut outbox, &mut ring, &second);
    assert_eq!(
        listen(&mut member, &outbox, &ring, 100),
        (vec![first.clone(), second], 0)
    );
    assert_eq!(listen(&mut member, &outbox, &ring, 100), (vec![], 0));
    tell(&mut outbox, &mut ring, &first);
    assert_eq!(listen(&mut member, &outbox, &ring, 100), (vec![first], 0));
}

#[test]
fn a_budget_spreads_the_work_and_loses_nothing() {
    let (mut outbox, mut ring, mut member) = fresh();
    let entries: Vec<_> = (0..500u64)
        .map(|n| told(What::Recorded, &[n, n + 1, n + 2]))
        .collect();
    let mut heard = Vec::new();
    for entry in &entries {
        tell(&mut outbox, &mut ring, entry);
        heard.extend(listen(&mut member, &outbox, &ring, 4).0);
    }
    while member.wanted().is_some() {
        heard.extend(listen(&mut member, &outbox, &ring, 4).0);
    }
    assert_eq!(heard, entries);
}

/// What a decision about a prompt of `blocks` finds in the log.
fn look(member: &Member, ring: &Ring, blocks: &[u64], mut budget: usize) -> Vec<Vec<u64>> {
    let mut found = Vec::new();
    for place in member.unread() {
        let sought = Sought::of(blocks);
        member.look_through(&ring[place as usize], &sought, &mut budget, &mut |told| {
            found.push(told.blocks);
        });
    }
    found
}

#[test]
fn a_decision_finds_its_own_blocks_and_a_tick_all_the_same_hears_everything() {
    let (mut outbox, mut ring, mut member) = fresh();
    // Hashes as they are: spread over all bits.
    let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let path = |numbers: &[u64]| numbers.iter().map(|n| hash(*n)).collect::<Vec<_>>();
    let entries = [
        told(What::Recorded, &path(&[1, 2, 3, 4])),
        told(What::Recorded, &path(&[50, 51, 52])),
        told(What::Withdrawn, &path(&[2, 3])),
        told(What::Recorded, &path(&[2, 3, 9])),
        told(What::Recorded, &path(&[1, 60])),
    ];
    for entry in &entries {
        tell(&mut outbox, &mut ring, entry);
    }
    assert!(member.read_head(&outbox.head(1, core::iter::empty(), Millis(5))));
    let prompt = path(&[1, 2, 3, 5]);
    let found = vec![path(&[1, 2, 3]), path(&[2, 3])];
    assert_eq!(look(&member, &ring, &prompt, 100), found);
    assert_eq!(look(&member, &ring, &prompt, 1), found[..1]);
    assert_eq!(listen(&mut member, &outbox, &ring, 100).0, entries);
    assert_eq!(look(&member, &ring, &prompt, 100), Vec::<Vec<u64>>::new());
}

#[test]
fn only_the_newest_segments_are_looked_through() {
    let (mut outbox, mut ring, mut member) = fresh();
    let blocks: Vec<u64> = (0..100).collect();
    let mut looked_at = 0;
    for _ in 0..1000 {
        tell(&mut outbox, &mut ring, &told(What::Recorded, &blocks));
        assert!(member.read_head(&outbox.head(1, core::iter::empty(), Millis(5))));
        looked_at = look(&member, &ring, &blocks, usize::MAX)
            .len()
            .max(looked_at);
    }
    // Segments of 8 KiB hold ten such entries, and one more that fills them.
    assert_eq!(looked_at, 2 * 11);
}

#[test]
fn a_reader_that_is_too_slow_counts_what_it_missed_and_goes_on() {
    let (mut outbox, mut ring, mut member) = fresh();
    tell(&mut outbox, &mut ring, &told(What::Recorded, &[0]));
    listen(&mut member, &outbox, &ring, 100);
    let blocks: Vec<u64> = (0..100).collect();
    for _ in 0..1000 {
        tell(&mut outbox, &mut ring, &told(What::Recorded, &blocks));
    }
    let (heard, missed) = listen(&mut member, &outbox, &ring, usize::MAX);
    assert!(missed > 0 && !heard.is_empty());
    assert_eq!(heard.len() + missed as usize, 1000);
    assert_eq!(member.wanted(), None);
}

#[test]
fn any_bytes_can_be_read() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut outbox = Outbox::default();
    outbox.tell(What::Recorded, 7, 70, &[1, 2, 3]);
    let (_, segment) = outbox.segment(1).unwrap();
    let head = outbox.head(
        1,
        [Count {
            name_hash: 7,
            inflight: 1,
            ..Count::default()
        }]
        .into_iter(),
        Millis(1),
    );
    for _ in 0..20_000 {
        let mut bytes = if rng.bool() {
            segment.clone()
        } else {
            head.clone()
        };
        for _ in 0..rng.usize(0..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(..=bytes.len()));
        let mut member = Member::new(1);
        member.read_head(&bytes);
        member.read_segment(&bytes, &mut 10, &mut |_| {});
        let _ = members::join(&bytes, 5, |_| false);
    }
}

#[test]
fn members_join_once_and_the_oldest_makes_room() {
    let mut value = Vec::new();
    for vm in 0..300 {
        value = members::join(&value, vm, |_| false).unwrap();
        assert_eq!(members::join(&value, vm, |_| false), None);
    }
    let vms: Vec<_> = members::read(&value).collect();
    assert_eq!(
        (vms.len(), vms.first(), vms.last()),
        (MAX_MEMBERS, Some(&44), Some(&299))
    );
    let value = members::join(&value, 299, |vm| vm < 290).unwrap();
    assert_eq!(
        members::read(&value).collect::<Vec<_>>(),
        (290..300).collect::<Vec<_>>()
    );
}

#[test]
fn silence_ends_what_counts() {
    let mut member = Member::new(1);
    let outbox = Outbox::default();
    member.read_head(&outbox.head(1, [Count::default()].into_iter(), Millis(1000)));
    assert_eq!(member.counts.len(), 1);
    assert!(member.is_alive(Millis(2999)));
    assert!(!member.is_alive(Millis(3000)));
}

#[test]
fn who_is_heard_after_long_is_heard_all_the_same() {
    for next in [0, 1 << 20, (1 << 31) + 9, u32::MAX - 3] {
        let mut outbox = Outbox::default();
        (outbox.next, outbox.first) = (next, next);
        let mut ring = vec![Vec::new(); RING as usize];
        for at in 0..1000_u64 {
            let blocks: Vec<u64> = (at..at + 100).collect();
            tell(&mut outbox, &mut ring, &told(What::Recorded, &blocks));
        }
        let mut member = Member::new(1);
        member.read_head(&outbox.head(1, core::iter::empty(), Millis(5)));
        assert!(look(&member, &ring, &[999, 1000], 100).contains(&vec![999, 1000]));
        let (heard, missed) = listen(&mut member, &outbox, &ring, usize::MAX);
        // All that the ring has; what was told before anybody listened was not missed.
        assert_eq!(heard.last().map(|told| told.blocks[0]), Some(999));
        assert!(heard.len() > 70, "{}", heard.len());
        assert_eq!((missed, member.wanted()), (0, None));
    }
}

#[test]
fn a_clock_that_was_set_back_keeps_nobody_alive() {
    let mut member = Member::new(1);
    let outbox = Outbox::default();
    member.read_head(&outbox.head(1, core::iter::empty(), Millis(5_000_000)));
    assert!(member.is_alive(Millis(4_999_999)), "it spoke while we read");
    assert!(!member.is_alive(Millis(4_000_000)));
}
