//! The VMs that exchange about one cluster, as one shared value: their numbers.

use super::MAX_MEMBERS;

/// Marks the member that stands for the other replicas.
pub const REPLICAS_BIT: u64 = 1 << 63;

/// Whether a member stands for other replicas.
#[must_use]
pub fn stands_for_replicas(member: u64) -> bool {
    member & REPLICAS_BIT != 0
}

/// The numbers in a value.
pub fn read(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(8)
        .take(MAX_MEMBERS)
        .map(|vm| super::u64_at(vm, 0))
}

/// The value with `me` in it and without those that `is_gone` says are; `None` when that is what stands
/// there. The oldest goes when there are too many: a VM's number only grows.
#[must_use]
pub fn join(bytes: &[u8], me: u64, is_gone: impl Fn(u64) -> bool) -> Option<Vec<u8>> {
    let mut vms: Vec<u64> = read(bytes)
        .filter(|vm| *vm == me || !is_gone(*vm))
        .collect();
    let is_in = vms.contains(&me);
    if is_in && vms.len() * 8 == bytes.len() {
        return None;
    }
    if !is_in {
        vms.push(me);
    }
    let skip = vms.len().saturating_sub(MAX_MEMBERS);
    Some(
        vms.iter()
            .skip(skip)
            .flat_map(|vm| vm.to_le_bytes())
            .collect(),
    )
}
