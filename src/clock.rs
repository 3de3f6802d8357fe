//! Time as the core sees it: an argument.

/// Milliseconds since the Unix epoch, as the host tells them. May step back (a clock is set):
/// every difference saturates at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds from `earlier` to `self`; 0 when the clock stepped back.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whether `ms` have passed since `earlier`. A clock that stepped back ends every wait: else it would last
    /// for as long as the step was wide.
    #[must_use]
    pub fn is_over(self, earlier: Self, ms: u64) -> bool {
        self < earlier || self.since(earlier) >= ms
    }

    /// This moment plus `ms`.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}
