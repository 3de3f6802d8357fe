//! This VM among those that share data with it.

use xxhash_rust::xxh3::xxh3_64;

use super::abi;

/// Who this VM is, and where its configuration's keys begin.
pub struct Identity {
    /// Its number: no other VM of the process has it.
    pub vm: u64,
    keys: String,
}

impl Identity {
    /// For the configuration `text` of a root context.
    pub fn new(root: u32, text: &[u8]) -> Self {
        Self {
            vm: number(),
            keys: format!("warmroute/1/{root}/{:016x}", xxh3_64(text)),
        }
    }

    /// A key under this configuration.
    #[cfg(feature = "envoy")]
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.keys)
    }

    /// A key under one of its rules.
    pub fn rule_key(&self, engine: usize, name: &str, cluster: &str) -> String {
        format!("{}/{engine}/{name}/{cluster}", self.keys)
    }

    /// A seed that differs between VMs.
    pub fn seed(&self) -> u64 {
        abi::now_ns() ^ self.vm.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Changes a shared value by compare-and-swap: `change` sees what stands there and says what should.
/// `false` when the host has no shared data, or others were faster again and again.
pub fn update(key: &str, mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> bool {
    const TRIES: u32 = 32;
    for _ in 0..TRIES {
        let (current, cas) = abi::shared(key).unwrap_or_default();
        let Some(wanted) = change(&current) else {
            return true;
        };
        match abi::set_shared(key, &wanted, cas) {
            Ok(()) => return true,
            Err(abi::CAS_MISMATCH) => {}
            Err(_) => return false,
        }
    }
    false
}

/// The next number of this process; from the clock where there is no shared data.
fn number() -> u64 {
    let mut mine = 0;
    let is_shared = update("warmroute/1/vms", |taken| {
        let taken = taken
            .first_chunk::<8>()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        mine = taken.wrapping_add(1);
        Some(mine.to_le_bytes().to_vec())
    });
    if is_shared { mine } else { abi::now_ns() }
}
