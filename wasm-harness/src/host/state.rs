//! A VM's state inside its wasmtime store: what host functions read and write.

use std::collections::{BTreeMap, VecDeque};

use wasmtime::StoreLimits;

use super::artifact::Abi;
use super::gateway::Gateway;
use super::pairs::HeaderMap;
use super::redis::RedisClient;
use super::status::Status;
use super::stream::{LocalReply, Stream, StreamId, Way};
use super::vm::VmOptions;

/// The root context's id; streams follow.
pub(super) const ROOT: u32 = 1;

/// One logged line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// 0 = trace .. 5 = critical.
    pub level: u32,
    /// The text; bytes that are no UTF-8 are replaced.
    pub message: String,
}

/// An HTTP call of the guest that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callout {
    /// Its token.
    pub id: u32,
    /// The context that gets the answer.
    pub context: u32,
    /// Where it goes.
    pub cluster: String,
    /// Request headers.
    pub headers: HeaderMap,
    /// Request body.
    pub body: Vec<u8>,
    /// Request trailers.
    pub trailers: HeaderMap,
    /// The guest's timeout.
    pub timeout_ms: u32,
    /// When it was sent.
    pub sent_at_ms: u64,
}

/// A Redis call of the guest (Higress) that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisCall {
    /// Its id.
    pub id: u32,
    /// The context that gets the answer.
    pub context: u32,
    /// Where it goes.
    pub cluster: String,
    /// The query in RESP.
    pub query: Vec<u8>,
}

/// Which calls of a host function are hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nth {
    /// All.
    Every,
    /// The nth call since the fault was set, from 1.
    Only(u64),
}

/// A host function that answers a status instead of working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The function's name.
    pub function: String,
    /// Which calls.
    pub nth: Nth,
    /// What they answer; any number.
    pub status: u32,
}

/// Fuel that one callback (by export name) burned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuelUse {
    /// How often it ran.
    pub calls: u64,
    /// Of all runs.
    pub total: u64,
    /// Of the most expensive run.
    pub max: u64,
    /// Of the last run.
    pub last: u64,
}

/// An answer that is being delivered: what the map and buffer calls show.
#[derive(Default)]
pub(super) struct Delivery {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) trailers: HeaderMap,
    pub(super) redis: Option<Vec<u8>>,
}

/// What a host call set off, done after the guest has returned.
pub(super) enum Deferred {
    Resume(StreamId, Way),
    Reset(StreamId),
    Reply(StreamId, LocalReply),
    NoHost(u32),
    Redis(u32),
}

/// The callback that runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) context: u32,
    pub(super) export: &'static str,
}

pub(super) struct VmState {
    pub(super) gateway: Gateway,
    pub(super) abi: Abi,
    pub(super) options: VmOptions,
    pub(super) limits: StoreLimits,
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) effective_context: u32,
    pub(super) running: Option<Running>,
    pub(super) deferred: VecDeque<Deferred>,
    pub(super) plugin_config: Vec<u8>,
    pub(super) tick_period_ms: u32,
    pub(super) logs: Vec<LogLine>,
    pub(super) calls: BTreeMap<&'static str, u64>,
    pub(super) faults: Vec<(Fault, u64)>,
    pub(super) callouts: Vec<Callout>,
    pub(super) redis_clients: Vec<RedisClient>,
    pub(super) redis_calls: Vec<RedisCall>,
    pub(super) last_token: u32,
    pub(super) delivery: Option<Delivery>,
    pub(super) done_contexts: Vec<u32>,
    pub(super) rebuild_requested: bool,
    pub(super) violations: Vec<String>,
    pub(super) memory_bytes: usize,
}

impl VmState {
    /// The stream of the effective context; none in the root context.
    pub(super) fn stream(&self) -> Option<&Stream> {
        self.streams.get(&self.effective_context)
    }

    pub(super) fn stream_mut(&mut self) -> Option<&mut Stream> {
        self.streams.get_mut(&self.effective_context)
    }

    pub(super) fn next_token(&mut self) -> u32 {
        self.last_token = self.last_token.wrapping_add(1).max(1);
        self.last_token
    }

    /// Counts a call; the status of the fault that hits it, if any.
    pub(super) fn count_call(&mut self, function: &'static str) -> Option<Status> {
        *self.calls.entry(function).or_default() += 1;
        let mut status = None;
        for (fault, seen) in self
            .faults
            .iter_mut()
            .filter(|(fault, _)| fault.function == function)
        {
            *seen += 1;
            if fault.nth == Nth::Every || fault.nth == Nth::Only(*seen) {
                status = Some(Status(fault.status));
            }
        }
        status
    }
}
