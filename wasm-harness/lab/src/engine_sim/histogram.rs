//! The histograms of a vLLM 0.32 process: which there are, their buckets, their counts.

/// Upper bounds of the buckets, `+Inf` apart.
pub(crate) type Bounds = &'static [f64];

const TOKENS: Bounds = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];
const STEP_TOKENS: Bounds = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const FIRST_TOKEN: Bounds = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: Bounds = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const PHASE: Bounds = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const HTTP_FINE: Bounds = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];

/// The histograms that are kept, by place in the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Histo {
    PromptTokens,
    GenerationTokens,
    StepTokens,
    MaxGeneration,
    ParamN,
    ParamMaxTokens,
    FirstToken,
    InterToken,
    PerOutputToken,
    EndToEnd,
    Queue,
    Inference,
    Prefill,
    Decode,
    Preemptions,
    Computed,
    HttpFine,
    HttpCoarse,
}

impl Histo {
    /// All of them, in the order of the enum.
    pub(crate) const ALL: [(Self, Bounds); 18] = [
        (Self::PromptTokens, TOKENS),
        (Self::GenerationTokens, TOKENS),
        (Self::StepTokens, STEP_TOKENS),
        (Self::MaxGeneration, TOKENS),
        (Self::ParamN, &[1.0, 2.0, 5.0, 10.0, 20.0]),
        (Self::ParamMaxTokens, TOKENS),
        (Self::FirstToken, FIRST_TOKEN),
        (Self::InterToken, PER_TOKEN),
        (Self::PerOutputToken, PER_TOKEN),
        (Self::EndToEnd, PHASE),
        (Self::Queue, PHASE),
        (Self::Inference, PHASE),
        (Self::Prefill, PHASE),
        (Self::Decode, PHASE),
        (Self::Preemptions, &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
        (Self::Computed, TOKENS),
        (Self::HttpFine, HTTP_FINE),
        (Self::HttpCoarse, &[0.1, 0.5, 1.0]),
    ];
}

/// A histogram with its buckets not yet added up.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    pub(crate) bounds: Bounds,
    /// One more than bounds: the last is above all of them.
    pub(crate) buckets: Vec<u64>,
    pub(crate) sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            buckets: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    pub(crate) fn observe(&mut self, value: f64, times: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += times;
        }
        self.sum += value * times as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::Histo;

    #[test]
    fn the_enum_and_its_table_are_in_one_order() {
        for (place, (which, bounds)) in Histo::ALL.iter().enumerate() {
            assert_eq!(*which as usize, place);
            assert!(bounds.is_sorted());
        }
    }
}
