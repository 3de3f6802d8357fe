//! What this worker tells the others about a cluster, and hears from them.
//!
//! Cost: a head O(endpoints in use); a segment one index record a told block, inside a budget.

use super::Pool;
use crate::clock::Millis;
use crate::endpoints::Slot;
use crate::endpoints::own::Ahead;
use crate::endpoints::table::Table;
use crate::exchange::handover::is_recent;
use crate::exchange::members::stands_for_replicas;
use crate::exchange::{Count, Exchange, Member, ReplicaPlace, Sought, Told, What};
use crate::number::to_u32;
use crate::prefix::{Index, RecordState};
use crate::telemetry::{Counter, Telemetry};

impl Pool {
    /// This worker's side of the exchange.
    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// This worker's head for the others.
    #[must_use]
    pub fn head(&self, vm: u64, now: Millis) -> Vec<u8> {
        /// Fewer cold prompts than this are not worth telling.
        const COLD_MILLI: u32 = 100;
        let counts = self.table.iter().filter_map(|(_, endpoint)| {
            let ahead = endpoint.own.ahead(endpoint.prefill_rate(), now);
            let (oldest_at, oldest_tokens) = ahead.oldest.unwrap_or_default();
            let count = Count {
                name_hash: endpoint.name_hash,
                inflight: endpoint.own.inflight,
                awaiting_first: endpoint.own.awaiting_first,
                prefill_tokens: to_u32(ahead.tokens),
                oldest_tokens,
                oldest_at,
                first_token_at: ahead.first_token_at,
                cold_milli: to_u32(endpoint.own.cold_recent(now) * 1000.0),
            };
            (count.inflight > 0 || count.cold_milli > COLD_MILLI).then_some(count)
        });
        self.exchange.outbox.head(vm, counts, now)
    }

    /// Takes in another worker's head, unless it is the one seen last; `false` when it says nothing, or is so old that
    /// neither does its log.
    pub fn hear_head(&mut self, vm: u64, version: u32, bytes: &[u8], now: Millis) -> bool {
        let Some(member) = self.exchange.member(vm) else {
            return false;
        };
        let is_new = member.version.replace(version) != Some(version);
        (!is_new || member.read_head(bytes)) && is_recent(member.at, now)
    }

    /// Folds in a segment of another worker's log, up to `budget` blocks. `false` when there is no more to
    /// read for now.
    pub fn hear_segment(
        &mut self,
        vm: u64,
        bytes: &[u8],
        budget: &mut usize,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> bool {
        let (table, index) = (&mut self.table, &mut self.index);
        let Some(member) = self.exchange.member(vm) else {
            return false;
        };
        let heard = member.read_segment(bytes, budget, &mut |entry| {
            let told = entry.told();
            let slot = fold(&told, table, index, telemetry, now);
            if let Some(endpoint) = slot.and_then(|slot| table.get_mut(slot)) {
                // Counted here only: what was picked out for a decision comes by once more.
                endpoint.sent_more(f64::from(told.uncached_tokens));
            }
        });
        telemetry.add(Counter::ExchangeGaps, u64::from(heard.unwrap_or(0)));
        heard.is_some() && *budget > 0 && member.wanted().is_some()
    }

    /// Folds in what a segment of another worker's log says of a prompt's blocks and was not heard yet.
    pub fn hear_of(
        &mut self,
        vm: u64,
        bytes: &[u8],
        sought: &Sought,
        budget: &mut usize,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        let (table, index) = (&self.table, &mut self.index);
        if let Some(member) = self.exchange.member(vm) {
            member.look_through(bytes, sought, budget, &mut |told| {
                fold(&told, table, index, telemetry, now);
            });
        }
    }

    /// Sums up what the workers that are not silent have in flight.
    pub fn sum_others(&mut self, now: Millis) {
        self.table.clear_others();
        for member in self
            .exchange
            .members
            .iter()
            .filter(|member| member.is_alive(now))
        {
            add(&mut self.table, member);
        }
        self.look_at_replicas(now);
    }

    fn look_at_replicas(&mut self, now: Millis) {
        let others = self.exchange.members.iter();
        // One for each VM that led lately.
        let place = others
            .filter(|member| stands_for_replicas(member.vm) && member.is_alive(now))
            .max_by_key(|member| member.at)
            .map_or_else(ReplicaPlace::default, |member| member.replica_place);
        let (workers, told) = self.exchange.told_by_workers();
        self.split.look(place, workers, told, now);
    }
}

/// Folds what another VM told into the index. Returns whom it was about, where that is known.
#[inline(never)]
pub(super) fn fold(
    told: &Told,
    table: &Table,
    index: &mut Index,
    telemetry: &mut Telemetry,
    now: Millis,
) -> Option<Slot> {
    let slot = table.slot_of_name(told.name_hash)?;
    match told.what {
        What::Recorded => {
            let recorded = index.record(&told.blocks, slot, RecordState::Confirmed, now);
            telemetry.add(Counter::Evictions, u64::from(recorded.evicted));
        }
        What::Withdrawn => index.trim(&told.blocks, slot, 0),
        What::Emptied => index.clear(slot),
    }
    Some(slot)
}

/// Adds what another worker has in flight to the endpoints'.
fn add(table: &mut Table, member: &Member) {
    for count in &member.counts {
        let Some(slot) = table.slot_of_name(count.name_hash) else {
            continue;
        };
        let Some(endpoint) = table.get_mut(slot) else {
            continue;
        };
        let others = &mut endpoint.others;
        others.inflight = others.inflight.saturating_add(count.inflight);
        others.awaiting_first = others.awaiting_first.saturating_add(count.awaiting_first);
        others.cold_recent += f64::from(count.cold_milli) / 1000.0;
        others.ahead = others.ahead.and(Ahead {
            tokens: f64::from(count.prefill_tokens),
            oldest: (count.oldest_at != Millis(0))
                .then_some((count.oldest_at, count.oldest_tokens)),
            first_token_at: count.first_token_at,
        });
        endpoint.sent_more(0.0);
    }
}

#[cfg(test)]
mod tests;
