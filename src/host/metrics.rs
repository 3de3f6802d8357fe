//! Counts handed on to the gateway's metrics.
//!
//! Metrics are defined when they first change: a gateway that counts nothing lists nothing. Gauges are
//! handed on as differences, so that the gateway's figure is the sum over all VMs; a configuration that
//! ends takes its share back.

use super::{abi, shared};
use crate::engine::Engine;
use crate::telemetry::{Counter, Gauge, Histogram, MAX_SERIES, OTHER, Series, Tally};

/// Ids of defined metrics, and the levels handed on last.
#[derive(Default)]
pub struct Metrics {
    counters: Vec<Option<u32>>,
    histograms: [Option<u32>; Histogram::ALL.len()],
    gauges: [Level; Gauge::ALL.len()],
    /// By hash.
    endpoints: Vec<Endpoint>,
    /// Hashes of the endpoints of the process that have series of their own, as last seen.
    listed: Vec<u8>,
    has_ended: bool,
}

/// A gauge.
#[derive(Default)]
struct Level {
    id: Option<u32>,
    now: u64,
    handed_on: u64,
}

/// One endpoint's series.
struct Endpoint {
    /// Hash of its address; 0 = the rest.
    hash: u64,
    name: Box<str>,
    inflight: Level,
    counters: [Option<u32>; 3],
}

impl Metrics {
    /// Hands on what an engine counted.
    #[inline(never)]
    pub fn flush(&mut self, engine: &mut Engine) {
        let (counters, histograms) = (&mut self.counters, &mut self.histograms);
        engine.telemetry.drain(
            |place, by| {
                if counters.len() <= place {
                    counters.resize(place + 1, None);
                }
                if let Some(id) = counters.get_mut(place) {
                    count(id, by, &|| Counter::all().nth(place).map(Counter::name));
                }
            },
            |histogram, value| {
                let Some(id) = histograms.get_mut(histogram as usize) else {
                    return;
                };
                *id = id.or_else(|| abi::define_metric(abi::Metric::Histogram, histogram.name()));
                if let Some(id) = *id {
                    let _ = abi::record_metric(id, value);
                }
            },
        );
    }

    /// Hands on what an engine counted by endpoint, and notes its part of the levels.
    pub fn note(&mut self, engine: &mut Engine, levels: &[(Gauge, u64)]) {
        for (level, (_, now)) in self.gauges.iter_mut().zip(levels) {
            level.now = level.now.saturating_add(*now);
        }
        engine.by_endpoint(&mut |address, hash, inflight, tally| {
            let Some(endpoint) = self.endpoint(address, hash) else {
                return;
            };
            endpoint.inflight.now += u64::from(inflight);
            let Tally {
                requests,
                failures,
                hit_tokens,
            } = tally;
            let counted = [
                (Series::Requests, requests),
                (Series::Failures, failures),
                (Series::HitTokens, hit_tokens),
            ];
            for (id, (series, by)) in endpoint.counters.iter_mut().zip(counted) {
                count(id, by, &|| Some(series.of(&endpoint.name)));
            }
        });
    }

    /// The series of an endpoint: its own, or those of the rest.
    #[inline(never)]
    fn endpoint(&mut self, address: &str, hash: u64) -> Option<&mut Endpoint> {
        let (mut hash, mut name, mut at) = (hash, address, self.place(hash));
        if at.is_err() && !self.claim(hash) {
            (hash, name) = (0, OTHER);
            at = self.place(hash);
        }
        let at = at.unwrap_or_else(|at| {
            let endpoint = Endpoint {
                hash,
                name: name.into(),
                inflight: Level::default(),
                counters: [None; 3],
            };
            self.endpoints.insert(at, endpoint);
            at
        });
        self.endpoints.get_mut(at)
    }

    #[inline(never)]
    fn place(&self, hash: u64) -> Result<usize, usize> {
        self.endpoints
            .binary_search_by_key(&hash, |endpoint| endpoint.hash)
    }

    /// Whether an endpoint, by the hash of its address, gets series of its own: all VMs agree on who does.
    #[inline(never)]
    fn claim(&mut self, hash: u64) -> bool {
        let listed = &mut self.listed;
        if add(listed, hash) == Place::Full {
            return false;
        }
        let mut place = Place::Added;
        // Without shared data each VM goes by its own list.
        shared::update("warmroute/1/series", |list| {
            *listed = list.to_vec();
            place = add(listed, hash);
            (place == Place::Added).then(|| listed.clone())
        });
        place != Place::Full
    }

    /// Hands on the noted levels, or, when a configuration `ends`, that nothing is left of them.
    pub fn hand_on(&mut self, ends: bool) {
        self.has_ended |= ends;
        for Endpoint { name, inflight, .. } in &mut self.endpoints {
            inflight.hand_on(self.has_ended, &|| Series::Inflight.of(name));
        }
        for (level, gauge) in self.gauges.iter_mut().zip(Gauge::ALL) {
            level.hand_on(self.has_ended, &|| gauge.name().to_owned());
        }
    }
}

impl Level {
    /// Defined at once: a level that was never above 0 is shown as 0, not missing.
    #[inline(never)]
    fn hand_on(&mut self, has_ended: bool, name: &dyn Fn() -> String) {
        let mut now = core::mem::take(&mut self.now);
        if has_ended {
            now = 0;
        }
        if self.handed_on == now && self.id.is_some() {
            return;
        }
        self.id = self
            .id
            .or_else(|| abi::define_metric(abi::Metric::Gauge, &name()));
        let whole = |level| i64::try_from(level).unwrap_or(i64::MAX);
        if let Some(id) = self.id
            && abi::increment_metric(id, whole(now) - whole(self.handed_on)).is_ok()
        {
            self.handed_on = now;
        }
    }
}

/// What became of a hash in a list of them.
#[derive(PartialEq)]
enum Place {
    There,
    Added,
    Full,
}

#[inline(never)]
fn add(list: &mut Vec<u8>, hash: u64) -> Place {
    let hash = hash.to_le_bytes();
    if list.chunks_exact(hash.len()).any(|one| one == hash) {
        return Place::There;
    }
    if list.len() >= MAX_SERIES * hash.len() {
        return Place::Full;
    }
    list.extend(hash);
    Place::Added
}

/// Adds to a counter, which is defined when it first grows.
#[inline(never)]
fn count(id: &mut Option<u32>, by: u64, name: &dyn Fn() -> Option<String>) {
    if by == 0 {
        return;
    }
    *id = id.or_else(|| abi::define_metric(abi::Metric::Counter, &name()?));
    if let Some(id) = *id {
        let _ = abi::increment_metric(id, i64::try_from(by).unwrap_or(i64::MAX));
    }
}
