//! What a test sees of a VM, and the faults that it sets.

use std::collections::BTreeMap;

use super::state::{Callout, Fault, FuelUse, LogLine, RedisCall};
use super::stream::{Seen, StreamId};
use super::vm::{Trap, Vm};

impl Vm {
    /// The trap that killed the VM.
    #[must_use]
    pub fn trap(&self) -> Option<&Trap> {
        self.dead.as_ref()
    }

    /// Sets a fault; its calls count from now.
    pub fn add_fault(&mut self, fault: Fault) {
        self.store.data_mut().faults.push((fault, 0));
    }

    /// Ends all faults.
    pub fn clear_faults(&mut self) {
        self.store.data_mut().faults.clear();
    }

    /// What both ends saw of a stream, also after it was closed.
    #[must_use]
    pub fn seen(&self, stream: StreamId) -> Option<&Seen> {
        self.store
            .data()
            .streams
            .get(&stream.0)
            .map(|stream| &stream.seen)
    }

    /// Whether the client has sent all of its request, and it is neither forwarded whole nor answered.
    #[must_use]
    pub fn hangs(&self, stream: StreamId) -> bool {
        self.store
            .data()
            .streams
            .get(&stream.0)
            .is_some_and(|stream| {
                let answered = stream.seen.local_reply.is_some() || stream.seen.reset;
                stream.request.ended && !stream.seen.upstream.ended && !answered
            })
    }

    /// All logged lines.
    #[must_use]
    pub fn logs(&self) -> &[LogLine] {
        &self.store.data().logs
    }

    /// How often each host function was called, faults included.
    #[must_use]
    pub fn host_calls(&self) -> &BTreeMap<&'static str, u64> {
        &self.store.data().calls
    }

    /// Fuel by callback.
    #[must_use]
    pub fn fuel(&self) -> &BTreeMap<&'static str, FuelUse> {
        &self.fuel
    }

    /// Linear memory after the last callback.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.store.data().memory_bytes
    }

    /// The tick period that the guest asked for; 0 = none.
    #[must_use]
    pub fn tick_period_ms(&self) -> u32 {
        self.store.data().tick_period_ms
    }

    /// Calls that wait for [`Vm::answer_callout`].
    #[must_use]
    pub fn callouts(&self) -> &[Callout] {
        &self.store.data().callouts
    }

    /// Calls that wait for [`Vm::answer_redis`].
    #[must_use]
    pub fn redis_calls(&self) -> &[RedisCall] {
        &self.store.data().redis_calls
    }

    /// Whether the guest asked for a fresh VM (Higress).
    #[must_use]
    pub fn rebuild_requested(&self) -> bool {
        self.store.data().rebuild_requested
    }

    /// What the guest did that gateways do not promise to bear.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.store.data().violations
    }
}
