//! Endpoints that failed again and again are put aside for a while.
//!
//! Every mark expires by itself. Cost: O(1), no allocation.

use crate::clock::Millis;
use crate::config::PickOptions;
use crate::number::millis;

/// Consecutive failures of one endpoint, and the time aside they earn.
///
/// After its cooldown an endpoint is half open: one request tries it, and until that one has ended
/// the next cooldown already runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooldown {
    consecutive: u32,
    /// From when until when it is put aside.
    aside: Option<(Millis, Millis)>,
}

impl Cooldown {
    /// When the endpoint may be tried again. A clock that was set back before its cooldown ends that.
    #[must_use]
    pub fn until(&self, now: Millis) -> Option<Millis> {
        let (from, until) = self.aside?;
        (from <= now).then_some(until)
    }

    /// A request to it failed.
    pub fn failed(&mut self, now: Millis, options: &PickOptions) {
        self.consecutive = self.consecutive.saturating_add(1);
        if self.consecutive >= options.cooldown_failures.max(1) {
            self.begin(now, options);
        }
    }

    fn begin(&mut self, now: Millis, options: &PickOptions) {
        self.aside = Some((now, now.plus(millis(options.cooldown))));
    }

    /// A request to it went well.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// It was picked: where its cooldown is over, this request is the one that tries it.
    pub fn picked(&mut self, now: Millis, options: &PickOptions) {
        if self.aside.is_some_and(|(_, until)| now >= until) {
            self.begin(now, options);
        }
    }
}
