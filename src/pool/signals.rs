//! An endpoint as the picker sees it.

use crate::clock::Millis;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::load::Load;
use crate::pick::{Adapter, Signals};

/// Where an adapter stands at an endpoint.
fn place(adapter: Option<u64>, load: &Load) -> Adapter {
    let (Some(hash), Some(adapters)) = (adapter, &load.adapters) else {
        return Adapter::Unknown;
    };
    if adapters.running.contains(&hash) {
        return Adapter::Active;
    }
    if adapters.waiting.contains(&hash) {
        return Adapter::Waiting;
    }
    match adapters.max.map(usize::try_from) {
        Some(Ok(max)) if adapters.running.len() >= max => Adapter::Full,
        Some(_) => Adapter::Room,
        None => Adapter::Unknown,
    }
}

/// What is known of an endpoint at `now`.
// Inlined, so that each figure goes to its place at once: copies of the struct cost more than the figures.
#[inline(always)]
pub(super) fn signals(
    endpoint: &Endpoint,
    adapter: Option<u64>,
    stale_after_ms: u64,
    now: Millis,
) -> Signals {
    let load = &endpoint.load;
    let own = &endpoint.own;
    let others = &endpoint.others;
    Signals {
        waiting: load.waiting.map(f64::from),
        running: load.running.map(f64::from),
        kv_use: load.kv_use.map(f64::from),
        freshness: endpoint.freshness(stale_after_ms, now),
        waiting_own: endpoint.ours.awaiting_first,
        inflight_own: endpoint.ours.inflight,
        inflight: own.inflight.saturating_add(others.inflight),
        prefill_tokens: endpoint.prefill_tokens(now),
        unseen_tokens: endpoint.unseen_tokens(now),
        usual_backlog_tokens: endpoint.usual_backlog.tokens(),
        awaiting_first: endpoint.awaiting_first(),
        streams: own
            .streams()
            .saturating_add(others.inflight.saturating_sub(others.awaiting_first)),
        failure: own.failure(now),
        adapter: place(adapter, load),
        outer_hit_share: endpoint.outer_hit_share,
        cold_recent: own.cold_recent(now) + others.cold_recent,
        prefill_tokens_per_ms: endpoint.rate.tokens_per_ms(),
        queue_ms: endpoint.queueing.ms(),
    }
}
