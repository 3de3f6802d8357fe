//! What a VM leaves to the one that comes after it, as one value: a head, and a log in a single segment.
//!
//! Invariants
//! - a value that is older than [`MAX_AGE_MS`], of another version or nonsense is as if nothing were there;
//! - it is folded in once, in order, at most [`FOLD_HANDOVER`] blocks at a time; what cannot be read is
//!   dropped with all that follows.
//!
//! Cost: 8 bytes a told pair; folding one index record a told block.

use super::{Entry, HEAD_BYTES, Member, Outbox, u64_at};
use crate::clock::Millis;

/// A handover that was written longer ago tells too little of what engines hold now.
pub const MAX_AGE_MS: u64 = 300_000;
/// Blocks folded in at a time: at the first decision of a cluster, then at each tick.
pub const FOLD_HANDOVER: usize = 8 * 1024;

/// A handover, as far as it was read.
#[derive(Debug)]
pub struct Handover {
    bytes: Vec<u8>,
    member: Member,
}

/// Whether something that was written `at` still tells of now. A clock that was set does not make it last.
#[must_use]
pub fn is_recent(at: Millis, now: Millis) -> bool {
    at.0.abs_diff(now.0) <= MAX_AGE_MS
}

impl Handover {
    /// The value that holds a log of one segment.
    #[must_use]
    pub fn write(mut log: Outbox, vm: u64, now: Millis) -> Vec<u8> {
        let mut bytes = log.head(vm, core::iter::empty(), now);
        bytes.extend(log.segment(vm).unwrap_or_default().1);
        bytes
    }

    /// What another VM left; `None` when that is nothing to go by.
    #[must_use]
    pub fn read(bytes: Vec<u8>, now: Millis) -> Option<Self> {
        let mut member = Member::new(u64_at(&bytes, 4));
        let is_head = member.read_head(bytes.get(..HEAD_BYTES)?);
        (is_head && is_recent(member.at, now)).then_some(Self { bytes, member })
    }

    /// Hands on its next entries; `false` when there are no more.
    pub fn fold(&mut self, fold: &mut dyn FnMut(Entry<'_>)) -> bool {
        let mut budget = FOLD_HANDOVER;
        let segment = self.bytes.get(HEAD_BYTES..).unwrap_or_default();
        let read = self.member.read_segment(segment, &mut budget, fold);
        read.is_some() && budget == 0
    }
}
