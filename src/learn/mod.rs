//! What responses teach: bytes per token of a model, an endpoint's prefill rate, how far to trust the
//! index about an endpoint.
//!
//! Every figure moves only as fast as evidence comes (exponential smoothing) and stays inside fixed
//! bounds, so one odd answer cannot turn decisions over. [`Visit`] shows figures with their bounds, so that the
//! next VM can take them over. Cost: O(1) an answer.

mod traffic;

pub use traffic::Traffic;

use core::num::NonZeroUsize;
use core::ops::RangeInclusive;

use lru::LruCache;

use crate::number::{bounded, to_f64};

/// Bytes per token assumed for a model that no answer has told about.
pub const DEFAULT_BYTES_PER_TOKEN: f64 = 4.0;
const BYTES_PER_TOKEN: RangeInclusive<f64> = 0.5..=32.0;
/// Models remembered.
const MODELS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
/// Prompts shorter than this are mostly template: their ratio says little.
const MIN_PROMPT_TOKENS: u32 = 64;
const RATIO_ALPHA: f64 = 0.1;

/// Prefill rates that an accelerator can have, tokens per millisecond.
const RATE: RangeInclusive<f64> = 0.05..=1_000.0;
/// How far one prefill moves the rate, as a factor. What others sent unseen makes prefills look slow more often than a
/// cache that nobody knew of makes them look fast: so the rate is one that about one of three reaches.
const RATE_STEP: RangeInclusive<f64> = 0.95..=1.1;
/// What the first prefill is believed: one that was wrong by more would take long to be corrected.
const FIRST_RATE: RangeInclusive<f64> = 2.5..=40.0;
/// Shorter prefills say more about network and the engine's step than about its rate.
const MIN_PREFILL_TOKENS: u32 = 256;
const MIN_PREFILL_MS: u64 = 20;

/// Sees a learned figure with its bounds: reads it, or sets it to another one inside them.
pub type Visit<'a> = dyn FnMut(&mut f64, &RangeInclusive<f64>) + 'a;
/// Bounds of a share.
pub const SHARE: RangeInclusive<f64> = 0.0..=1.0;
/// Bounds of a count of tokens or requests.
const COUNT: RangeInclusive<f64> = 0.0..=1e12;

/// Bytes of prompt per token, by model.
pub struct BytesPerToken {
    models: LruCache<u64, f64>,
    overall: f64,
}

impl Default for BytesPerToken {
    fn default() -> Self {
        Self {
            models: LruCache::new(MODELS),
            overall: DEFAULT_BYTES_PER_TOKEN,
        }
    }
}

impl BytesPerToken {
    /// The ratio of a model (by the hash of its name); of all models while this one is unknown.
    #[must_use]
    pub fn of(&self, model: u64) -> f64 {
        self.models.peek(&model).copied().unwrap_or(self.overall)
    }

    /// The models whose ratio is known, with it; used last first.
    pub fn models(&self) -> impl ExactSizeIterator<Item = (u64, f64)> + DoubleEndedIterator {
        self.models.iter().map(|(model, ratio)| (*model, *ratio))
    }

    /// Shows the ratio over all models.
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        visit(&mut self.overall, &BYTES_PER_TOKEN);
    }

    /// Shows the ratio of a model, which is known from then on.
    pub fn visit_model(&mut self, model: u64, visit: &mut Visit<'_>) {
        let mut ratio = self.of(model);
        visit(&mut ratio, &BYTES_PER_TOKEN);
        self.models.put(model, ratio);
    }

    /// The ratio over all models.
    #[must_use]
    pub fn overall(&self) -> f64 {
        self.overall
    }

    /// An engine counted `tokens` for a prompt of `bytes`.
    pub fn observe(&mut self, model: u64, bytes: u64, tokens: u32) {
        if tokens < MIN_PROMPT_TOKENS {
            return;
        }
        let ratio = bounded(to_f64(bytes) / f64::from(tokens), &BYTES_PER_TOKEN);
        match self.models.get_mut(&model) {
            Some(known) => smooth(known, ratio, RATIO_ALPHA),
            None => {
                self.models.put(model, ratio);
            }
        }
        smooth(&mut self.overall, ratio, RATIO_ALPHA);
    }
}

/// An endpoint's prefill rate from the first tokens that it gave us.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefillRate {
    tokens_per_ms: Option<f64>,
}

impl PrefillRate {
    /// Tokens per millisecond, once known.
    #[must_use]
    pub fn tokens_per_ms(self) -> Option<f64> {
        self.tokens_per_ms
    }

    /// Shows the rate; 0 = unknown.
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        let mut rate = self.tokens_per_ms.unwrap_or(0.0);
        visit(&mut rate, &RATE);
        self.tokens_per_ms = (rate > 0.0).then_some(rate);
    }

    /// `tokens` of prompt were computed in `took_ms`.
    pub fn observe(&mut self, tokens: u32, took_ms: u64) {
        if tokens <= MIN_PREFILL_TOKENS || took_ms <= MIN_PREFILL_MS {
            return;
        }
        let rate = bounded(f64::from(tokens) / to_f64(took_ms), &RATE);
        match &mut self.tokens_per_ms {
            Some(known) => *known *= bounded(rate / *known, &RATE_STEP),
            unknown => *unknown = Some(bounded(rate, &FIRST_RATE)),
        }
    }
}

/// What an endpoint's first tokens take beyond the computing that was predicted: its step, its network,
/// what others sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queueing {
    ms: f64,
}

const QUEUEING_ALPHA: f64 = 0.1;
const QUEUEING_MS: RangeInclusive<f64> = 0.0..=60_000.0;

impl Queueing {
    /// The delay, milliseconds.
    #[must_use]
    pub fn ms(self) -> f64 {
        self.ms
    }

    /// Shows the delay.
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        visit(&mut self.ms, &QUEUEING_MS);
    }

    /// A first token came `ttft_ms` after its request, of which `computing_ms` were predicted.
    pub fn observe(&mut self, ttft_ms: u64, computing_ms: f64) {
        let beyond = bounded(to_f64(ttft_ms) - computing_ms, &QUEUEING_MS);
        smooth(&mut self.ms, beyond, QUEUEING_ALPHA);
    }
}

/// The work that decisions usually found ahead at an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct BacklogMean {
    tokens: f64,
}

const BACKLOG_ALPHA: f64 = 0.02;

impl BacklogMean {
    /// Uncached tokens ahead.
    #[must_use]
    pub fn tokens(self) -> f64 {
        self.tokens
    }

    /// Shows the mean.
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        visit(&mut self.tokens, &COUNT);
    }

    /// A decision found so many tokens ahead.
    pub fn observe(&mut self, tokens: f64) {
        smooth(&mut self.tokens, tokens, BACKLOG_ALPHA);
    }
}

/// How far the index is believed about an endpoint: a factor on its assumed cache size.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    factor: f64,
    blanks: u8,
}

const TRUST_MIN: f64 = 0.125;
const TRUST_LOST: f64 = 0.9;
const TRUST_WON: f64 = 1.02;
/// Predictions smaller than this prove nothing when they fail.
const MIN_PREDICTED_TOKENS: f64 = 256.0;
/// Predictions in a row of which next to nothing was there, until the cache is taken for emptied.
const BLANKS: u8 = 3;

/// What an engine's word on its cache means for the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// About what was predicted, or too little to judge by.
    Fits,
    /// Clearly less: it keeps less than assumed.
    Short,
    /// Nothing, again and again: its cache was emptied.
    Emptied,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            factor: 1.0,
            blanks: 0,
        }
    }
}

impl Trust {
    /// The factor, 1/8 to 1.
    #[must_use]
    pub fn factor(self) -> f64 {
        self.factor
    }

    /// Shows the factor.
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        visit(&mut self.factor, &(TRUST_MIN..=1.0));
    }

    /// An engine told how much of a prompt it had cached.
    pub fn compare(
        &mut self,
        predicted_tokens: f64,
        delivered_tokens: f64,
        block_tokens: f64,
    ) -> Verdict {
        if predicted_tokens < MIN_PREDICTED_TOKENS.max(2.0 * block_tokens) {
            return Verdict::Fits;
        }
        if delivered_tokens + 2.0 * block_tokens >= predicted_tokens * 0.9 {
            self.blanks = 0;
            self.factor = (self.factor * TRUST_WON).min(1.0);
            return Verdict::Fits;
        }
        self.factor = (self.factor * TRUST_LOST).max(TRUST_MIN);
        self.blanks = if delivered_tokens < predicted_tokens * 0.25 {
            self.blanks.saturating_add(1)
        } else {
            0
        };
        if self.blanks < BLANKS {
            return Verdict::Short;
        }
        *self = Self::default();
        Verdict::Emptied
    }
}

fn smooth(known: &mut f64, seen: f64, alpha: f64) {
    *known += alpha * (seen - *known);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_first_answer_sets_its_ratio_and_later_ones_move_it_slowly() {
        let mut learned = BytesPerToken::default();
        assert_eq!(learned.of(7), DEFAULT_BYTES_PER_TOKEN);
        learned.observe(7, 300, 100);
        assert_eq!(learned.of(7), 3.0);
        learned.observe(7, 100_000, 100);
        assert!(
            (learned.of(7) - 5.9).abs() < 1e-9,
            "bounded at 32 bytes a token, a tenth of the way"
        );
        assert!(learned.of(8) < DEFAULT_BYTES_PER_TOKEN + 3.0);
        learned.observe(9, 1, 10);
        assert_eq!(learned.of(9), learned.overall(), "too short to say");
    }

    #[test]
    fn the_rate_needs_real_work() {
        let mut rate = PrefillRate::default();
        rate.observe(100, 100);
        rate.observe(10_000, 1);
        assert_eq!(rate.tokens_per_ms(), None);
        rate.observe(10_000, 1000);
        assert_eq!(rate.tokens_per_ms(), Some(10.0));
    }

    /// The rate after prefills of 10,000 tokens that took so many milliseconds each.
    fn rate_after(rate: &mut PrefillRate, took_ms: impl IntoIterator<Item = u64>) -> f64 {
        took_ms
            .into_iter()
            .for_each(|took_ms| rate.observe(10_000, took_ms));
        rate.tokens_per_ms().unwrap()
    }

    #[test]
    fn the_rate_is_what_undisturbed_prefills_have() {
        let mut rate = PrefillRate::default();
        // More than every other prefill waits unseen for somebody else's, the first one, too.
        let took_ms = |round| if round % 5 < 3 { 4_000 } else { 1_000 };
        let learned = rate_after(&mut rate, (0..300).map(took_ms));
        assert!((9.0..=10.5).contains(&learned), "{learned}");
        let slowed = rate_after(&mut rate, [4_000; 40]);
        assert!((slowed - 2.5).abs() < 0.1, "it did slow down: {slowed}");
    }

    #[test]
    fn a_first_prefill_that_was_cached_unseen_is_corrected_soon() {
        let mut rate = PrefillRate::default();
        assert!(rate_after(&mut rate, [25]) > 20.0);
        let learned = rate_after(&mut rate, [1_000; 30]);
        assert!((learned - 10.0).abs() < 0.1, "{learned}");
    }

    #[test]
    fn queueing_is_what_computing_does_not_explain() {
        let mut queueing = Queueing::default();
        queueing.observe(100, 200.0);
        assert_eq!(queueing.ms(), 0.0, "faster than predicted is no queue");
        for _ in 0..100 {
            queueing.observe(300, 200.0);
        }
        assert!((queueing.ms() - 100.0).abs() < 1.0);
    }

    #[test]
    fn trust_falls_with_shortfalls_and_comes_back() {
        let mut trust = Trust::default();
        assert_eq!(trust.compare(1000.0, 500.0, 16.0), Verdict::Short);
        assert!(trust.factor() < 1.0);
        for _ in 0..200 {
            assert_eq!(trust.compare(1000.0, 1000.0, 16.0), Verdict::Fits);
        }
        assert_eq!(trust.factor(), 1.0);
        for _ in 0..200 {
            trust.compare(1000.0, 500.0, 16.0);
        }
        assert_eq!(trust.factor(), TRUST_MIN);
        assert_eq!(
            trust.compare(100.0, 0.0, 16.0),
            Verdict::Fits,
            "too small to prove anything"
        );
    }

    #[test]
    fn only_blanks_in_a_row_mean_an_emptied_cache() {
        let mut trust = Trust::default();
        for _ in 0..2 {
            assert_eq!(trust.compare(1000.0, 0.0, 16.0), Verdict::Short);
            assert_eq!(trust.compare(1000.0, 0.0, 16.0), Verdict::Short);
            assert_eq!(trust.compare(1000.0, 990.0, 16.0), Verdict::Fits);
        }
        trust.compare(1000.0, 0.0, 16.0);
        trust.compare(1000.0, 0.0, 16.0);
        assert_eq!(trust.compare(1000.0, 0.0, 16.0), Verdict::Emptied);
        assert_eq!(trust.factor(), 1.0, "judged afresh");
    }
}
