//! The codec of published endpoint states.

use warmroute::clock::Millis;
use warmroute::endpoints::load::{Adapters, Engine, Health, Load};
use warmroute::endpoints::role::Role;
use warmroute::endpoints::snapshot::{EndpointSnapshot, SnapshotError, VERSION, decode, encode};

fn random_snapshot(rng: &mut fastrand::Rng) -> EndpointSnapshot {
    fn maybe<T>(rng: &mut fastrand::Rng, make: impl FnOnce(&mut fastrand::Rng) -> T) -> Option<T> {
        rng.bool().then(|| make(rng))
    }
    let names = |rng: &mut fastrand::Rng| (0..rng.usize(..5)).map(|_| rng.u64(..)).collect();
    EndpointSnapshot {
        address: format!("10.0.0.{}:8000", rng.u8(..)),
        health: maybe(rng, |rng| Health::ALL[rng.usize(..4)]),
        role: maybe(rng, |rng| Role {
            decodes: rng.bool(),
            prefills: rng.bool(),
        }),
        load: Load {
            engine: maybe(rng, |rng| Engine::ALL[rng.usize(..7)]),
            waiting: maybe(rng, |rng| rng.f32() * 100.0),
            running: maybe(rng, |rng| rng.f32() * 100.0),
            kv_use: maybe(rng, fastrand::Rng::f32),
            capacity_tokens: maybe(rng, |rng| rng.u64(..)),
            block_tokens: maybe(rng, |rng| rng.u32(..)),
            prefix_queries: maybe(rng, |rng| rng.f64() * 1e9),
            prefix_hits: maybe(rng, |rng| rng.f64() * 1e9),
            external_prefix_queries: maybe(rng, |rng| rng.f64() * 1e9),
            external_prefix_hits: maybe(rng, |rng| rng.f64() * 1e9),
            cache_hit_rate: maybe(rng, fastrand::Rng::f32),
            adapters: maybe(rng, |rng| Adapters {
                running: names(rng),
                waiting: names(rng),
                max: maybe(rng, |rng| rng.u32(..1000)),
            }),
        },
        read_at: Millis(rng.u64(..)),
    }
}

#[test]
fn what_is_written_is_read() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..500 {
        let endpoints: Vec<_> = (0..rng.usize(..20))
            .map(|_| random_snapshot(&mut rng))
            .collect();
        let bytes = encode(&endpoints);
        assert_eq!(decode(&bytes), Ok(endpoints));
        for cut in 0..bytes.len().min(400) {
            assert_eq!(
                decode(&bytes[..cut]),
                Err(SnapshotError::Corrupt),
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = encode(&[EndpointSnapshot::default()]);
    bytes[0] = VERSION + 1;
    assert_eq!(decode(&bytes), Err(SnapshotError::Version(VERSION + 1)));
}

#[test]
fn an_endpoint_without_adapters_is_small() {
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..200 {
        let mut endpoint = random_snapshot(&mut rng);
        endpoint.load.adapters = None;
        let bytes = encode(std::slice::from_ref(&endpoint));
        assert!(bytes.len() - 3 - endpoint.address.len() < 100);
    }
}

#[test]
fn any_bytes_decode_or_are_refused() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut refused = 0;
    for _ in 0..20_000 {
        let endpoints = [random_snapshot(&mut rng), random_snapshot(&mut rng)];
        let mut bytes = encode(&endpoints);
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(1..bytes.len());
            bytes[at] = rng.u8(..);
        }
        match decode(&bytes) {
            Ok(read) => assert_eq!(decode(&encode(&read)), Ok(read)),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1_000);
}

#[test]
fn what_does_not_fit_is_left_out() {
    let long = EndpointSnapshot {
        address: "x".repeat(256),
        ..EndpointSnapshot::default()
    };
    assert_eq!(decode(&encode(&[long])), Ok(vec![]));
    let many = vec![EndpointSnapshot::default(); 1100];
    assert_eq!(decode(&encode(&many)).unwrap().len(), 1024);
}
