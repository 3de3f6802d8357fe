//! What each fuzz target does with its bytes. The corpora run through the same functions in the tests.

#![allow(dead_code, reason = "each fuzz binary calls one of them")]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use warmroute::clock::Millis;
use warmroute::config::{IndexOptions, Plugin, PromptOptions, ReplicaOptions, Secret, StoreKind};
use warmroute::endpoints::{Slot, admin_clusters, gateway_hosts, scan, snapshot};
use warmroute::exchange::handover::Handover;
use warmroute::exchange::{Exchange, Member, Sought, What as Event, members};
use warmroute::prefix::{Depths, Index, RecordState};
use warmroute::raw_json::RawJsonStr;
use warmroute::replicas::etcd::Etcd;
use warmroute::replicas::redis::Redis;
use warmroute::replicas::store::{Store, What};
use warmroute::replicas::{Replicas, message};
use warmroute::request::{Api, BodyEnd, Feed, Prompt, PromptPlan, PromptReader, Seed, Unreadable};
use warmroute::telemetry::Telemetry;

const APIS: [Api; 6] = [
    Api::Chat,
    Api::Completions,
    Api::Responses,
    Api::Messages,
    Api::Embeddings,
    Api::Generate,
];

/// A body: the first byte says which call, the second how it is cut. However it is cut, it reads alike;
/// what is not all there never matches more than the whole.
pub fn body(data: &[u8]) {
    let [call, cuts, text @ ..] = data else {
        return;
    };
    let api = APIS[usize::from(*call) % APIS.len()];
    let plan = Rc::new(PromptPlan::new(&PromptOptions {
        block_bytes: 16,
        max_blocks: 64,
        ..PromptOptions::default()
    }));
    let whole = read(api, &plan, [text], BodyEnd::Complete);
    assert_eq!(whole, read(api, &plan, text.chunks(1), BodyEnd::Complete));
    let size = usize::from(*cuts) + 1;
    assert_eq!(
        whole,
        read(api, &plan, text.chunks(size), BodyEnd::Complete)
    );
    let part = &text[..text.len() * usize::from(*cuts) / 256];
    let cut = read(api, &plan, [part], BodyEnd::Cut);
    let chunked = read(api, &plan, part.chunks(7), BodyEnd::Cut);
    assert_eq!(cut, chunked);
    for prompt in [&whole, &cut].into_iter().flatten() {
        assert_eq!(prompt.blocks.len(), prompt.ends.len());
        assert!(prompt.ends.is_sorted() && prompt.blocks.len() <= 64);
        assert!(prompt.matched_bytes(usize::MAX) <= prompt.bytes);
    }
}

fn read<'a>(
    api: Api,
    plan: &Rc<PromptPlan>,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    end: BodyEnd,
) -> Result<Prompt, Unreadable> {
    let mut reader = PromptReader::new(api, Rc::clone(plan));
    for piece in pieces {
        if reader.feed(piece) == Feed::Stop {
            break;
        }
    }
    reader.finish(Seed::default(), end)
}

/// A configuration: read or refused, and the same each time.
pub fn config(data: &[u8]) {
    let first = Plugin::parse(data);
    let again = Plugin::parse(data);
    assert_eq!(format!("{first:?}"), format!("{again:?}"));
}

/// Everything that reads what engines and gateways say of endpoints.
pub fn metrics(data: &[u8]) {
    let plain = scan::scan(data);
    assert_eq!(format!("{plain:?}"), format!("{:?}", scan::scan(data)));
    let _ = scan::scan_escaped(RawJsonStr(data));
    let _ = gateway_hosts::health_of(data);
    let info = gateway_hosts::host_info(data);
    if let Some(text) = info.metrics {
        let _ = scan::scan_escaped(text);
    }
    for (address, json) in gateway_hosts::Hosts::new(data) {
        assert!(address.len() + json.len() <= data.len());
        let _ = gateway_hosts::host_info(json);
    }
    let _ = admin_clusters::parse(data, |_| true);
    if let Ok(endpoints) = snapshot::decode(data) {
        let bytes = snapshot::encode(&endpoints);
        let again = snapshot::decode(&bytes).expect("what was encoded can be decoded");
        assert_eq!(bytes, snapshot::encode(&again));
    }
}

/// Operations on an index, five bytes each, against sets of claims that know neither age nor room: with
/// enough of both they agree.
pub fn index(data: &[u8]) {
    let mut index = Index::new(&IndexOptions {
        max_pairs: 1_000_000,
        ttl: Duration::from_secs(1_000_000),
        ..IndexOptions::default()
    });
    // Claims of each (block, slot); `u32::MAX` = confirmed.
    let mut pairs: BTreeMap<(u64, u16), u32> = BTreeMap::new();
    for slot in 0..4 {
        index.set_capacity_blocks(Slot(slot), 100_000);
    }
    let mut depths = Depths::default();
    for (step, operation) in data.chunks_exact(5).take(4_000).enumerate() {
        let [what, slot, path, from, len] = operation else {
            return;
        };
        let now = Millis(step as u64 * 10);
        let slot = u16::from(slot % 4);
        let path = u64::from(path % 8) * 1_000 + 1;
        let blocks: Vec<u64> = (0..u64::from(len % 24))
            // Paths part at a block of their own.
            .map(|at| {
                if at < u64::from(from % 8) {
                    at + 1
                } else {
                    path + at
                }
            })
            .collect();
        match what % 6 {
            0 | 1 => {
                let confirmed = what % 6 == 1;
                let state = if confirmed {
                    RecordState::Confirmed
                } else {
                    RecordState::Tentative
                };
                index.record(&blocks, Slot(slot), state, now);
                for &block in &blocks {
                    let claims = pairs.entry((block, slot)).or_default();
                    *claims = if confirmed {
                        u32::MAX
                    } else {
                        claims.saturating_add(1)
                    };
                }
            }
            2 => {
                index.confirm(&blocks, Slot(slot), now);
                for &block in &blocks {
                    pairs
                        .entry((block, slot))
                        .and_modify(|claims| *claims = u32::MAX);
                }
            }
            3 => {
                index.withdraw(&blocks, Slot(slot));
                for &block in &blocks {
                    let claims = pairs.get(&(block, slot)).copied();
                    match claims {
                        Some(1) => drop(pairs.remove(&(block, slot))),
                        Some(u32::MAX) | None => {}
                        Some(claims) => drop(pairs.insert((block, slot), claims - 1)),
                    }
                }
            }
            4 => {
                let keep = usize::from(*from % 24);
                index.trim(&blocks, Slot(slot), keep as u32);
                for &block in blocks.iter().skip(keep) {
                    pairs.remove(&(block, slot));
                }
            }
            _ => {
                index.clear(Slot(slot));
                pairs.retain(|(_, holder), _| *holder != slot);
            }
        }
        index.matches(&blocks, now, &mut depths);
        for slot in 0..4 {
            let held = blocks
                .iter()
                .take_while(|&&block| pairs.contains_key(&(block, slot)));
            assert_eq!(depths.of(Slot(slot)) as usize, held.count());
        }
        assert_eq!(index.stats().pairs as usize, pairs.len());
    }
}

/// Heads, segments, member lists and handovers that another version, or nobody, wrote; then a true segment
/// behind them, which must still be read.
pub fn exchange(data: &[u8]) {
    let [vm, size, bytes @ ..] = data else {
        return;
    };
    let vm = u64::from(*vm);
    let mut member = Member::new(vm);
    for piece in bytes.chunks(usize::from(*size) + 24) {
        member.read_head(piece);
        let mut budget = 64;
        let mut folded = 0;
        member.read_segment(piece, &mut budget, &mut |entry| folded += entry.blocks());
        assert!(folded <= bytes.len() / 8);
        let _ = member.wanted();
        assert!(member.unread().count() <= 2);
        let blocks: Vec<u64> = piece.iter().map(|byte| u64::from(*byte)).collect();
        let mut budget = 64;
        let sought = Sought::of(&blocks);
        let mut found = 0;
        member.look_through(piece, &sought, &mut budget, &mut |told| {
            found += told.blocks.len();
        });
        assert!(found <= piece.len() / 8);
    }
    let listed = members::read(bytes).count();
    if let Some(joined) = members::join(bytes, vm, |_| false) {
        assert!(members::read(&joined).count() <= listed + 1);
        assert!(members::read(&joined).any(|other| other == vm));
    }
    let at = bytes.get(12..).and_then(|rest| rest.first_chunk::<8>());
    let at = Millis(at.map_or(0, |at| u64::from_le_bytes(*at)));
    if let Some(mut left) = Handover::read(bytes.to_vec(), at) {
        let mut folded = 0;
        while left.fold(&mut |entry| folded += entry.blocks()) {}
        assert!(folded <= bytes.len() / 8);
    }
    let mut exchange = Exchange::new(true);
    let (blocks, _) = bytes.as_chunks::<8>();
    let blocks: Vec<u64> = blocks
        .iter()
        .take(200)
        .map(|b| u64::from_le_bytes(*b))
        .collect();
    exchange.tell(Event::Recorded, 7, 70, &blocks);
    let head = exchange.outbox.head(vm, core::iter::empty(), Millis(1));
    let mut reader = Member::new(vm);
    assert!(reader.read_head(&head));
    if let Some((_, segment)) = exchange.outbox.segment(vm) {
        let mut seen = Vec::new();
        let mut budget = usize::MAX;
        reader.read_segment(&segment, &mut budget, &mut |entry| seen.push(entry.told()));
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].what, seen[0].name_hash), (Event::Recorded, 7));
        assert!(seen[0].blocks.iter().eq(&blocks));
        assert_eq!(reader.wanted(), None);
    }
}

/// What a store of the replicas answers, or something that is none; behind it a true message in a stream, which must
/// still be taken in.
pub fn replicas(data: &[u8]) {
    assert!((1..=64).contains(&answers::<Redis>(data)));
    assert!(answers::<Etcd>(data) <= 64);
}

/// Plays `data` as answers; returns how many replicas are heard of.
fn answers<S: Store>(data: &[u8]) -> usize {
    let options = ReplicaOptions {
        store: StoreKind::Redis,
        cluster: "c".to_owned(),
        interval: Duration::from_millis(100),
        group: "g".to_owned(),
        user: String::new(),
        password: Secret::default(),
    };
    let (mut telemetry, now) = (Telemetry::default(), Millis(1_000));
    let mut replicas = Replicas::<S>::new(&options, 0, 1, 1);
    replicas.lead(["c"].into_iter(), now);
    let (size, bytes) = data.split_first().unwrap_or((&0, &[]));
    for (number, piece) in bytes.chunks(usize::from(*size) + 24).enumerate() {
        let what = [What::Put, What::Read, What::Keep][number % 3];
        replicas.answer(what, Some((200, piece)), &mut telemetry, now);
        let _ = replicas.due(&mut telemetry, now);
    }
    let header = message::Header {
        process: u64::MAX,
        leader: 1,
        number: 1,
        at: now,
    };
    let message = message::begin(&header);
    let head = format!(
        "*1\r\n*2\r\n$1\r\nk\r\n*1\r\n*2\r\n$3\r\n9-9\r\n*2\r\n$1\r\nm\r\n${}\r\n",
        message.len()
    );
    let body = [head.as_bytes(), &message, b"\r\n"].concat();
    replicas.answer(What::Read, Some((200, &body)), &mut telemetry, now);
    let mut heads = 0;
    replicas.publish(now, &mut |_, place, _| {
        heads += usize::from(place.is_none());
    });
    assert_eq!(heads, 1);
    replicas.alive(now)
}
