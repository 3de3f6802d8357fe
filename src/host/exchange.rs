//! The exchange between the workers of one process, over shared data.
//!
//! Publishing writes this VM's own keys; hearing reads those of the others. Neither waits for anybody, and
//! where the host has no shared data both do nothing.

use super::abi;
use super::shared::{self, Identity, Scope};
use crate::clock::Millis;
use crate::engine::Engine;
use crate::exchange::{FOLD_BLOCKS, FOLD_BLOCKS_A_TICK, RING, Sought, members};
use crate::pool::Pool;
use crate::request::BlockHash;
use crate::telemetry::Telemetry;

/// Shared value: who takes part.
pub const MEMBERS: &str = "members";

/// Tells the others what changed in a cluster since the last time.
pub fn publish(scope: Scope<'_>, engine: &mut Engine, now: Millis) {
    if let Some((pool, ..)) = engine.pool(scope.cluster)
        && pool.exchange().take_news()
    {
        write(scope, pool, now);
    }
}

fn write(scope: Scope<'_>, pool: &mut Pool, now: Millis) {
    let vm = scope.identity.vm;
    // The log before the head: who sees a new head finds what it speaks of.
    if let Some((place, bytes)) = pool.exchange().outbox.segment(vm) {
        let _ = abi::set_shared(&scope.segment_key(vm, place), &bytes, 0);
    }
    let head = pool.head(vm, now);
    let _ = abi::set_shared(&scope.head_key(vm), &head, 0);
}

/// Joins the workers of a cluster, and learns who they are.
pub fn join(scope: Scope<'_>, engine: &mut Engine, now: Millis) {
    let Some((pool, ..)) = engine.pool(scope.cluster) else {
        return;
    };
    if !pool.exchange().is_on() {
        return;
    }
    let me = scope.identity.vm;
    let known = &pool.exchange().members;
    let mut others = Vec::new();
    shared::update(&scope.key(MEMBERS), |current| {
        others = members::read(current).filter(|vm| *vm != me).collect();
        let gone = |vm| {
            known
                .iter()
                .find(|member| member.vm == vm)
                .is_some_and(|member| member.is_gone(now))
        };
        members::join(current, me, gone)
    });
    let exchange = pool.exchange();
    exchange
        .members
        .retain(|member| others.contains(&member.vm));
    exchange.listen(others.into_iter());
}

/// Hears what the others told about a cluster, before a decision: their counts, and of their logs what has to do
/// with a prompt's `blocks`.
pub fn hear(scope: Scope<'_>, engine: &mut Engine, blocks: &[BlockHash], now: Millis) {
    let Some((pool, _, telemetry, _)) = engine.pool(scope.cluster) else {
        return;
    };
    if pool.exchange().members.is_empty() {
        return;
    }
    let sought = Sought::of(blocks);
    let mut budget = FOLD_BLOCKS;
    for vm in members_with_a_head(scope, pool, now) {
        let unread = pool.exchange().member(vm).map(|member| member.unread());
        for place in unread.into_iter().flatten() {
            if let Some((bytes, _)) = abi::shared(&scope.segment_key(vm, place)) {
                pool.hear_of(vm, &bytes, &sought, &mut budget, telemetry, now);
            }
        }
    }
    pool.sum_others(now);
}

/// Reads the others' heads; those that say something.
fn members_with_a_head(scope: Scope<'_>, pool: &mut Pool, now: Millis) -> Vec<u64> {
    let members = &pool.exchange().members;
    let mut vms: Vec<u64> = members.iter().map(|member| member.vm).collect();
    vms.retain(|vm| {
        abi::shared(&scope.head_key(*vm))
            .is_some_and(|(head, version)| pool.hear_head(*vm, version, &head, now))
    });
    vms
}

/// Hears all that the others told about a cluster since the last time.
fn catch_up(scope: Scope<'_>, pool: &mut Pool, telemetry: &mut Telemetry, now: Millis) {
    let mut budget = FOLD_BLOCKS_A_TICK;
    for vm in members_with_a_head(scope, pool, now) {
        for _ in 0..=RING {
            let wanted = pool
                .exchange()
                .member(vm)
                .and_then(|member| member.wanted());
            let Some(place) = wanted else { break };
            let Some((bytes, _)) = abi::shared(&scope.segment_key(vm, place)) else {
                break;
            };
            if budget == 0 || !pool.hear_segment(vm, &bytes, &mut budget, telemetry, now) {
                break;
            }
        }
    }
    pool.sum_others(now);
}

/// Time passed: show that this VM lives, and catch up with the others.
pub fn tick(identity: &Identity, rule: usize, engine: &mut Engine, now: Millis) {
    for cluster in engine.clusters() {
        if let Some((pool, _, telemetry, _)) = engine.pool(&cluster)
            && pool.exchange().is_on()
        {
            let scope = identity.scope(rule, &cluster);
            write(scope, pool, now);
            catch_up(scope, pool, telemetry, now);
        }
    }
}
