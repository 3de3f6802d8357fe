//! Conversions between numbers that cannot fail.

use core::ops::RangeInclusive;
use core::time::Duration;

/// As a float. Counts here stay far below 2^53, where `f64` is exact.
#[expect(clippy::cast_precision_loss)]
#[must_use]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

/// As an integer: rounded down, saturating; NaN and negative values become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#[must_use]
pub fn to_u32(value: f64) -> u32 {
    value as u32
}

/// `value`, or the bound that it is beyond; the lower one for what is no number.
// Not `f64::clamp`: its panic about bounds would be in the plugin, and what prints numbers with it.
#[must_use]
pub fn bounded(value: f64, bounds: &RangeInclusive<f64>) -> f64 {
    value.max(*bounds.start()).min(*bounds.end())
}

/// Whole milliseconds, saturating.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
