//! Disaggregated serving: one endpoint computes a prompt, another one answers.
//!
//! The answering endpoint is picked as always. Where it lacks enough of the prompt, a second one is picked
//! among those that compute for others, by what they hold and have before them, and the request is
//! counted and recorded at both. The prompt is computed when the answer begins: then, or when the request
//! ends without one, the second endpoint is given back what was counted there, once.
//!
//! Source: llm-d; its sidecar before the answering engine reads `x-prefiller-host-port`, has the prompt
//! computed there and fetches the KV blocks.

use super::{Pool, Question, Sent, Served};
use crate::clock::Millis;
use crate::config::Config;
use crate::endpoints::own::Ending;
use crate::endpoints::role::Part;
use crate::pick::{self, Ask, Ranked};
use crate::prefix::RecordState;
use crate::telemetry::{Counter, Telemetry};

impl Pool {
    /// Picks who computes the prompt of `sent`, where anybody can.
    #[expect(clippy::too_many_arguments, reason = "what a decision has")]
    pub(super) fn pick_prefill(
        &mut self,
        sent: &mut Sent,
        question: &Question<'_>,
        ask: &Ask,
        config: &Config,
        rng: &mut fastrand::Rng,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let per_token = self.bytes_per_token.of(sent.model);
        self.gather(question, Part::Prefill, per_token, config, now);
        let ask = Ask {
            sticky: None,
            ..*ask
        };
        let mut ranked = Ranked::new(0);
        let picked = pick::pick(&ask, &self.candidates, question.pick, rng, &mut ranked);
        let (Some(branch), Some(winner)) = (picked, ranked.winner().copied()) else {
            return;
        };
        let blocks = sent.blocks.clone();
        let mut there = self.sent(&winner, branch, &ask, question.prompt, blocks, now);
        // How cold a prompt is counts where it is computed.
        let kept = core::mem::replace(&mut self.ranked, ranked);
        let tentative = RecordState::Tentative;
        self.send(&mut there, winner.slot, tentative, config, telemetry, now);
        self.ranked = kept;
        telemetry.add(Counter::Prefills, 1);
        sent.is_prefilled = true;
        sent.ttft_ms = None;
        sent.prefill = Some(Box::new(there));
    }

    /// Who computes the prompt of a request; `None` = the endpoint that it was sent to.
    #[must_use]
    pub fn prefill_address(&self, sent: &Sent) -> Option<&str> {
        let there = sent.prefill.as_ref()?;
        Some(&self.table.get(there.slot)?.address)
    }

    /// The answer's headers came: whoever answers, it got the prompt, or nobody did.
    pub(super) fn prefill_served(
        &mut self,
        sent: &mut Sent,
        status: u16,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        if let Some(mut there) = sent.prefill.take() {
            let served = Served {
                status,
                by: None,
                attempts: None,
            };
            self.served(&mut there, &served, config, telemetry, now);
            sent.prefill = Some(there);
        }
    }

    /// The answer's first chunk came: the prompt is computed.
    pub(super) fn prefill_done(
        &mut self,
        sent: &mut Sent,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let Some(mut there) = sent.prefill.take() else {
            return;
        };
        self.learn_rate(&mut there, now);
        self.finish(*there, Ending::Served, config, telemetry, now);
    }
}
