//! What requests teach about the traffic: how long prompts miss caches, how long conversations get, who
//! else sends requests, and whether conversations are found at their homes.
//!
//! Invariant: every figure is a slow mean, so no single request turns decisions over. Cost: O(1) a request.

use super::{COUNT, SHARE, Visit, smooth};

/// One pool's traffic, as this worker saw it.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    miss_tokens: f64,
    later_share: f64,
    /// Requests that engines told of, and those of them that were ours.
    told: Option<(f64, f64)>,
    home_right: f64,
}

const MISS_ALPHA: f64 = 0.02;
const LATER_ALPHA: f64 = 0.01;
const TOLD_ALPHA: f64 = 0.02;
/// So few requests that nobody here knows of prove nothing: engines' words lag behind our counts.
const TOLD_FEW: f64 = 0.3;
const HOME_ALPHA: f64 = 0.02;
/// Longer conversations than this count as no longer.
const TURNS_LIMIT: f64 = 32.0;
/// Share of right guesses that is enough to follow homes in full. Caches forget, so that even where
/// everybody sends conversations home only about every fifth guess is right; below this it is chance.
const HOME_RIGHT_ENOUGH: f64 = 0.1;

impl Default for Traffic {
    /// Other workers and replicas send conversations home as this one does, until answers say otherwise.
    fn default() -> Self {
        Self {
            miss_tokens: 0.0,
            later_share: 0.0,
            told: None,
            home_right: 1.0,
        }
    }
}

impl Traffic {
    /// Shows every figure; engines that tell no requests are told of as -1.
    pub fn visit(&mut self, visit: &mut Visit<'_>) {
        visit(&mut self.miss_tokens, &COUNT);
        visit(&mut self.later_share, &SHARE);
        visit(&mut self.home_right, &SHARE);
        let (mut all, mut ours) = self.told.unwrap_or((-1.0, -1.0));
        visit(&mut all, &COUNT);
        visit(&mut ours, &COUNT);
        self.told = (all >= 0.0 && ours >= 0.0).then_some((all, ours));
    }

    /// A request was decided that will compute `miss_tokens`; `told` = the engines' requests at that
    /// moment, and those of them that were ours, where engines tell.
    pub fn decided(&mut self, later_turn: bool, miss_tokens: f64, told: Option<(f64, f64)>) {
        if self.miss_tokens == 0.0 {
            self.miss_tokens = miss_tokens;
        }
        smooth(&mut self.miss_tokens, miss_tokens, MISS_ALPHA);
        smooth(
            &mut self.later_share,
            f64::from(u8::from(later_turn)),
            LATER_ALPHA,
        );
        if let Some((all, ours)) = told {
            let (known_all, known_ours) = self.told.get_or_insert_default();
            smooth(known_all, all, TOLD_ALPHA);
            smooth(known_ours, ours, TOLD_ALPHA);
        }
    }

    /// The head of a conversation that was or was not known here was found at its home, or was not.
    pub fn found_at_home(&mut self, was_there: bool) {
        smooth(
            &mut self.home_right,
            f64::from(u8::from(was_there)),
            HOME_ALPHA,
        );
    }

    /// Uncached tokens of a usual request; 0 = not learned yet.
    #[must_use]
    pub fn miss_tokens(&self) -> f64 {
        self.miss_tokens
    }

    /// Turns that usually follow one.
    #[must_use]
    pub fn turns_to_come(&self) -> f64 {
        let first_share = (1.0 - self.later_share).max(1.0 / TURNS_LIMIT);
        1.0 / first_share - 1.0
    }

    /// The share of requests that other workers and replicas send, unseen by this one, 0 to 1; 1 while
    /// no engine tells its requests.
    #[must_use]
    pub fn unseen(&self) -> f64 {
        match self.told {
            None => 1.0,
            Some((all, ours)) if all > ours + TOLD_FEW => (all - ours - TOLD_FEW) / all,
            Some(_) => 0.0,
        }
    }

    /// How far homes are worth following, 0 to 1.
    #[must_use]
    pub fn home_worth(&self) -> f64 {
        (self.home_right / HOME_RIGHT_ENOUGH).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_followed_until_they_are_hardly_ever_right() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.home_worth(), 1.0);
        for turn in 0..500 {
            traffic.found_at_home(turn % 5 == 0);
        }
        assert_eq!(traffic.home_worth(), 1.0, "caches forget");
        for _ in 0..500 {
            traffic.found_at_home(false);
        }
        assert!(traffic.home_worth() < 0.01);
    }

    #[test]
    fn requests_of_others_are_what_ours_do_not_explain() {
        let mut traffic = Traffic::default();
        traffic.decided(false, 10.0, None);
        assert_eq!(traffic.unseen(), 1.0, "nobody tells");
        traffic.decided(false, 10.0, Some((0.0, 0.0)));
        assert_eq!(traffic.unseen(), 0.0);
        for _ in 0..1000 {
            traffic.decided(false, 10.0, Some((8.0, 2.0)));
        }
        assert!((traffic.unseen() - 5.7 / 8.0).abs() < 1e-3);
        for _ in 0..1000 {
            traffic.decided(false, 10.0, Some((8.0, 9.0)));
        }
        assert_eq!(traffic.unseen(), 0.0, "told late, not negative");
    }

    #[test]
    fn conversations_are_as_long_as_they_lately_were() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.turns_to_come(), 0.0);
        for turn in 0..2000 {
            traffic.decided(turn % 10 != 0, 10.0, None);
        }
        assert!((8.0..10.0).contains(&traffic.turns_to_come()));
        for _ in 0..2000 {
            traffic.decided(true, 10.0, None);
        }
        assert_eq!(traffic.turns_to_come(), TURNS_LIMIT - 1.0);
        assert!((traffic.miss_tokens() - 10.0).abs() < 1e-9);
    }
}
