//! Near ties: how much an endpoint may cost more than the cheapest, and who of those is picked.
//!
//! Near ties go to the conversation's home, so that workers which know nothing of each other agree; a cold prompt
//! passes over endpoints that got more than their share of cold prompts lately, and everybody over those that another
//! replica has for its own.

use super::Pool;
use crate::config::PickOptions;
use crate::pick::{Ask, Branch, Candidate, Entry, rendezvous, sane};

/// By what share of the best cost the home may cost more, where others look for conversations there and
/// hardly anything waits.
const UNSEEN_TIE_RATIO: f64 = 0.2;
/// How much of a cold prompt the home may cost more then, as long as nothing waits there.
const UNSEEN_TIE_PROMPT: f64 = 1.6;

impl Pool {
    /// What counts as a near tie.
    pub(super) fn reach(&self, ask: &Ask, options: &PickOptions, best: f64) -> Reach {
        let near = (best * options.tie_ratio).max(f64::from(options.tie_tokens));
        // A match that is known outweighs a home that is guessed: an engine's snapshot may still show our own
        // finished requests, which then look like another gateway's.
        let unseen = if self.credit_tokens > self.matched_tokens || self.is_cold(ask) {
            self.unseen
        } else {
            0.0
        };
        let guess = UNSEEN_TIE_PROMPT * unseen * sane(ask.prompt_tokens, 0.0);
        let short = near + UNSEEN_TIE_RATIO * self.unseen * best;
        Reach {
            near,
            short,
            empty: short + guess,
        }
    }

    /// Whether most of the prompt has to be computed wherever it goes.
    fn is_cold(&self, ask: &Ask) -> bool {
        self.matched_tokens.max(self.credit_tokens) * 2.0 < ask.prompt_tokens
    }

    /// The cheapest; among near ties the one whose rendezvous weight is highest.
    pub(super) fn winner(
        &self,
        ask: &Ask,
        candidates: &[Candidate],
        scores: &[Entry],
        best: f64,
        reach: Reach,
    ) -> Option<(usize, Branch)> {
        let full = if self.is_cold(ask) {
            self.cold * 1.5 + 1.0
        } else {
            f64::INFINITY
        };
        let mut winner: Option<(usize, Rank)> = None;
        let mut ties = 0_usize;
        for (at, (entry, candidate)) in scores.iter().zip(candidates).enumerate() {
            let within = match candidate.signals.awaiting_first {
                0 => reach.empty,
                1 => reach.short,
                _ => reach.near,
            };
            if entry.cost > best + within {
                continue;
            }
            ties = ties.saturating_add(1);
            let has_room = sane(candidate.signals.cold_recent, f64::INFINITY) <= full;
            let is_own = candidate.unheard == 0.0;
            let rank = (is_own, has_room, rank(ask, candidate));
            if winner.is_none_or(|(_, highest)| rank > highest) {
                winner = Some((at, rank));
            }
        }
        let (at, _) = winner?;
        let matched = scores.get(at)?.matched_tokens;
        let branch = if at == self.home && matched > 0.0 && matched == self.credit_tokens {
            Branch::Home
        } else if matched > 0.0 {
            Branch::Prefix
        } else if ties > 1 {
            Branch::Tie
        } else {
            Branch::Load
        };
        Some((at, branch))
    }
}

/// How far from the cheapest a candidate is as good: by what waits there for a first token.
#[derive(Clone, Copy, Default)]
pub(super) struct Reach {
    /// More than one request.
    near: f64,
    /// One.
    short: f64,
    /// None.
    empty: f64,
}

/// No other replica's first, then room for cold prompts, then the rendezvous weight and the name.
type Rank = (bool, bool, (u64, u64));

/// The rendezvous rank; the name decides between equal weights.
pub(super) fn rank(ask: &Ask, candidate: &Candidate) -> (u64, u64) {
    (
        rendezvous::weight(ask.conversation, candidate.name_hash),
        candidate.name_hash,
    )
}
