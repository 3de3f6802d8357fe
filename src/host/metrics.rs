//! Counts handed on to the gateway's metrics.
//!
//! Metrics are defined when they first change: a gateway that counts nothing lists nothing. Gauges are
//! handed on as differences, so that the gateway's figure is the sum over all VMs.

use super::abi;
use crate::engine::Engine;
use crate::telemetry::{Counter, Gauge, Histogram};

/// Ids of defined metrics, and the levels handed on last.
#[derive(Default)]
pub struct Metrics {
    counters: Vec<Option<u32>>,
    gauges: [Option<u32>; Gauge::ALL.len()],
    histograms: [Option<u32>; Histogram::ALL.len()],
    levels: [u64; Gauge::ALL.len()],
}

impl Metrics {
    /// Hands on what an engine counted.
    pub fn flush(&mut self, engine: &mut Engine) {
        let (counters, histograms) = (&mut self.counters, &mut self.histograms);
        engine.telemetry.drain(
            |place, by| {
                if counters.len() <= place {
                    counters.resize(place + 1, None);
                }
                let Some(id) = counters.get_mut(place) else {
                    return;
                };
                let defined = id.or_else(|| {
                    let name = Counter::all().nth(place)?.name();
                    abi::define_metric(abi::Metric::Counter, &name)
                });
                *id = defined;
                if let Some(id) = defined {
                    let _ = abi::increment_metric(id, i64::try_from(by).unwrap_or(i64::MAX));
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

    /// Hands on the present levels: the sum over the engines of this VM.
    pub fn set_levels(&mut self, levels: &[u64; Gauge::ALL.len()]) {
        for (((gauge, id), handed_on), level) in Gauge::ALL
            .iter()
            .zip(&mut self.gauges)
            .zip(&mut self.levels)
            .zip(levels)
        {
            if handed_on == level {
                continue;
            }
            *id = id.or_else(|| abi::define_metric(abi::Metric::Gauge, gauge.name()));
            let difference = i64::try_from(*level).unwrap_or(i64::MAX)
                - i64::try_from(*handed_on).unwrap_or(i64::MAX);
            if let Some(id) = *id
                && abi::increment_metric(id, difference).is_ok()
            {
                *handed_on = *level;
            }
        }
    }
}
