//! What a VM leaves to the one that comes after it, over shared data: what it learned, every so often; what
//! endpoints hold, when it asks to be rebuilt.
//!
//! A VM reads both once, when it first knows a cluster's endpoints. They are about endpoints, so it does not
//! matter which worker's VM left them.

use core::cell::Cell;

use super::root::Worker;
use super::shared::Scope;
use super::{abi, gateway};
use crate::clock::Millis;
use crate::engine::Engine;
#[cfg(feature = "higress")]
use crate::exchange::handover::MAX_AGE_MS;
use crate::pool::Pool;
use crate::pool::handover::learned_at;
use crate::telemetry::Telemetry;

/// Shared value: what was learned about a cluster.
const LEARNED: &str = "learned";
/// Shared value: what a cluster's endpoints hold.
const HANDOVER: &str = "handover";
/// How often a VM leaves what it learned.
const PERIOD_MS: u64 = 10_000;

/// What a VM left.
#[derive(Default)]
pub struct Left {
    learned_at: Cell<Millis>,
    #[cfg(feature = "higress")]
    all_at: Cell<Millis>,
}

/// A cluster's endpoints are known: take what a VM before this one left about them, the first time.
pub fn take(scope: Scope<'_>, engine: &mut Engine, now: Millis) {
    let Some((pool, config, telemetry, _)) = engine.pool(scope.cluster) else {
        return;
    };
    if !pool.begins() {
        return;
    }
    let left = |name| abi::shared(&scope.key(name));
    if let Some((bytes, _)) = left(LEARNED) {
        pool.take_learned(&bytes, config, now);
    }
    if gateway::REBUILDS
        && let Some((bytes, _)) = left(HANDOVER)
    {
        pool.take_pairs(bytes, telemetry, now);
    }
}

/// Time passed: fold in more of what was left, and leave what was learned.
pub fn tick(worker: &Worker, now: Millis) {
    let is_due = now.is_over(worker.left.learned_at.get(), PERIOD_MS);
    if is_due {
        worker.left.learned_at.set(now);
    }
    each_pool(worker, &mut |scope, pool, telemetry| {
        if gateway::REBUILDS {
            pool.fold_handover(telemetry, now);
        }
        if is_due && pool.has_begun {
            leave_learned(scope, pool, now);
        }
    });
}

/// This VM asks to be rebuilt: leave all. It is rebuilt when its next request comes: where that takes long, what
/// was left is left anew before it is too old.
#[cfg(feature = "higress")]
pub fn leave(worker: &Worker, now: Millis) {
    if !now.is_over(worker.left.all_at.get(), MAX_AGE_MS / 2) {
        return;
    }
    worker.left.all_at.set(now);
    each_pool(worker, &mut |scope, pool, _| {
        leave_learned(scope, pool, now);
        let pairs = pool.leave_pairs(scope.identity.vm, now);
        let _ = abi::set_shared(&scope.key(HANDOVER), &pairs, 0);
    });
}

/// Leaves what was learned, unless another VM left more of late.
fn leave_learned(scope: Scope<'_>, pool: &mut Pool, now: Millis) {
    let key = scope.key(LEARNED);
    let bytes = pool.leave_learned(now);
    let (there, _) = abi::shared(&key).unwrap_or_default();
    let stands = learned_at(&there).is_some_and(|at| at.0.abs_diff(now.0) < 3 * PERIOD_MS);
    if !stands || bytes.len() >= there.len() {
        let _ = abi::set_shared(&key, &bytes, 0);
    }
}

fn each_pool(worker: &Worker, act: &mut dyn FnMut(Scope<'_>, &mut Pool, &mut Telemetry)) {
    for (rule, engine) in worker.engines.iter().enumerate() {
        let Ok(mut engine) = engine.try_borrow_mut() else {
            continue;
        };
        for cluster in engine.clusters() {
            if let Some((pool, _, telemetry, _)) = engine.pool(&cluster) {
                act(worker.identity.scope(rule, &cluster), pool, telemetry);
            }
        }
    }
}
