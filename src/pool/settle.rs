//! How requests fared: records confirmed, withdrawn or corrected, counts given back, rates learned.
//!
//! Cost: O(blocks) where a record changes, else O(1).

use super::{Pool, Sent};
use crate::clock::Millis;
use crate::config::{Config, Profile};
use crate::endpoints::load::Load;
use crate::endpoints::own::Ending;
use crate::exchange::What;
use crate::learn::Verdict;
use crate::number::to_u32;
use crate::prefix::RecordState;
use crate::telemetry::{Counter, Histogram, Telemetry};

/// How a request fared, from its response headers.
pub struct Served<'a> {
    /// HTTP status.
    pub status: u16,
    /// Who answered, where the gateway tells.
    pub by: Option<&'a str>,
    /// How many endpoints the gateway tried.
    pub attempts: Option<u32>,
}

impl Pool {
    /// Settles the record of a request by its response headers.
    pub fn served(
        &mut self,
        sent: &mut Sent,
        served: &Served<'_>,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        self.prefill_served(sent, served.status, config, telemetry, now);
        let picked = self.table.get(sent.slot).map(|endpoint| &*endpoint.address);
        let elsewhere = match served.by {
            Some(by) => picked.is_some_and(|picked| picked != by),
            None => false,
        };
        let is_answer = (200..300).contains(&served.status);
        if elsewhere {
            telemetry.add(Counter::ServedElsewhere, 1);
            let tried_first = served.attempts.is_some_and(|attempts| attempts > 1);
            let ending = if tried_first {
                Ending::Failed
            } else {
                Ending::Unknown
            };
            self.withdraw(sent, telemetry);
            self.release(sent, ending, config, now);
            if let Some(slot) = served.by.and_then(|by| self.table.slot_of(by)) {
                sent.matched_tokens = 0.0;
                sent.ttft_ms = None;
                let state = if is_answer {
                    RecordState::Confirmed
                } else {
                    RecordState::Tentative
                };
                self.send(sent, slot, state, config, telemetry, now);
            }
        }
        if !is_answer {
            self.withdraw(sent, telemetry);
        } else if sent.tentative {
            sent.tentative = false;
            self.index.confirm(&sent.blocks, sent.slot, now);
        }
    }

    /// An engine told its load in a response.
    pub fn told_load(&mut self, sent: &Sent, told: &Load, now: Millis) {
        if let Some(endpoint) = self.table.get_mut(sent.slot) {
            endpoint.told(told, now);
        }
    }

    /// The first chunk of an answer.
    pub fn first_token(
        &mut self,
        sent: &mut Sent,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        self.prefill_done(sent, config, telemetry, now);
        if self.learn_rate(sent, now).is_none() {
            return;
        }
        let ttft_ms = now.since(sent.at);
        telemetry.observe(Histogram::TtftMs, ttft_ms);
        if let (Some(computing_ms), Some(endpoint)) =
            (sent.computing_ms, self.table.get_mut(sent.slot))
        {
            endpoint.queueing.observe(ttft_ms, computing_ms);
        }
        if let Some(predicted) = sent.ttft_ms {
            telemetry.observe(Histogram::PredictedTtftMs, u64::from(to_u32(predicted)));
        }
    }

    /// A stream's first token came: what it tells of the prefill rate. `None` = it is none, or no news.
    pub(super) fn learn_rate(&mut self, sent: &mut Sent, now: Millis) -> Option<()> {
        let endpoint = self.table.get_mut(sent.slot)?;
        let prefilled = endpoint.own.first_token(sent.ticket.as_mut()?, now)?;
        self.exchange.touch();
        let was_alone = sent.is_alone && endpoint.others.ahead.first_token_at <= sent.at;
        if was_alone && endpoint.prefill_tokens(now) == 0.0 && endpoint.is_ours_alone(now) {
            endpoint.rate.observe(prefilled.tokens, prefilled.took_ms);
        }
        Some(())
    }

    /// An engine told the prompt's tokens, and how many of them it had cached.
    pub fn usage(
        &mut self,
        sent: &Sent,
        prompt_tokens: Option<u32>,
        cached_tokens: Option<u32>,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let Some(prompt_tokens) = prompt_tokens else {
            return;
        };
        self.bytes_per_token
            .observe(sent.model, sent.prompt_bytes, prompt_tokens);
        // A prompt that was computed elsewhere is all cached: that says nothing of what was there before.
        let Some(cached_tokens) = cached_tokens.filter(|_| !sent.is_prefilled) else {
            return;
        };
        telemetry.add(Counter::ReportedPromptTokens, u64::from(prompt_tokens));
        telemetry.add(
            Counter::DeliveredHitTokens,
            u64::from(cached_tokens.min(prompt_tokens)),
        );
        if let Some(head_share) = sent.guessed {
            let head_tokens = head_share * f64::from(prompt_tokens);
            self.traffic
                .found_at_home(f64::from(cached_tokens) * 2.0 >= head_tokens);
        }
        let Some(endpoint) = self.table.get_mut(sent.slot) else {
            return;
        };
        let share = |tokens: f64, of: f64| if of > 0.0 { tokens / of } else { 0.0 };
        let predicted = share(sent.matched_tokens, sent.prompt_tokens) * f64::from(prompt_tokens);
        let block_tokens = endpoint.load.block_tokens.map_or(64.0, f64::from);
        match endpoint
            .trust
            .compare(predicted, f64::from(cached_tokens), block_tokens)
        {
            Verdict::Fits => {}
            Verdict::Short => telemetry.add(Counter::Shortfalls, 1),
            Verdict::Emptied => {
                // This answer's own prefix is there again: its record is made anew after the others went.
                telemetry.add(Counter::EmptiedCaches, 1);
                self.exchange
                    .tell(What::Emptied, endpoint.name_hash, 0, &[]);
                self.index.clear(sent.slot);
                self.fit(sent.slot, config);
                self.index
                    .record(&sent.blocks, sent.slot, RecordState::Confirmed, now);
                return;
            }
        }
        self.fit(sent.slot, config);
    }

    /// The request is over.
    pub fn finish(
        &mut self,
        mut sent: Sent,
        ending: Ending,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        if let Some(there) = sent.prefill.take() {
            // Whose fault it was is not known.
            let ending = match ending {
                Ending::Failed => Ending::Unknown,
                other => other,
            };
            self.finish(*there, ending, config, telemetry, now);
        }
        self.withdraw(&mut sent, telemetry);
        self.release(&mut sent, ending, config, now);
    }

    fn withdraw(&mut self, sent: &mut Sent, telemetry: &mut Telemetry) {
        if core::mem::take(&mut sent.tentative) {
            self.index.withdraw(&sent.blocks, sent.slot);
            telemetry.add(Counter::Withdrawn, 1);
            if let (Some(endpoint), Some(told)) =
                (self.table.get(sent.slot), sent.blocks.get(sent.told_from..))
            {
                self.exchange
                    .tell(What::Withdrawn, endpoint.name_hash, 0, told);
            }
        }
    }

    fn release(&mut self, sent: &mut Sent, ending: Ending, config: &Config, now: Millis) {
        const FAILURE_ALPHA: f64 = 0.3;
        let Some(ticket) = sent.ticket.take() else {
            return;
        };
        let Some(endpoint) = self.table.get_mut(sent.slot) else {
            return;
        };
        let rate = endpoint.prefill_rate();
        let alpha = match &config.pick.profile {
            Profile::Weighted(weights) => weights.failure_ewma_alpha,
            Profile::Cost => FAILURE_ALPHA,
        };
        if !endpoint.own.release(&ticket, ending, alpha, rate, now) {
            return;
        }
        self.exchange.touch();
        match ending {
            Ending::Served => endpoint.cooldown.succeeded(),
            Ending::Failed => {
                endpoint.tally.failures += 1;
                endpoint.cooldown.failed(now, &config.pick);
            }
            Ending::Unknown => {}
        }
    }
}
