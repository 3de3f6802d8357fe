//! This VM among those that share data with it.

use xxhash_rust::xxh3::xxh3_64;

use super::abi;
use crate::clock::Millis;
use crate::discovery::Lease;

/// Shared value: which clusters requests go to.
pub const ANNOUNCED: &str = "clusters";
/// Names of clusters in one announcement at most, bytes.
const MAX_ANNOUNCED_BYTES: usize = 16 * 1024;

/// Who this VM is, and where its configuration's keys begin.
pub struct Identity {
    /// Its number: no other VM of the process has it.
    pub vm: u64,
    keys: String,
}

impl Identity {
    /// For the configuration `text`. The root context's number says nothing to others: each VM counts its own, streams
    /// among them.
    pub fn new(text: &[u8]) -> Self {
        Self {
            vm: number(),
            keys: format!("warmroute/1/{:016x}", xxh3_64(text)),
        }
    }

    /// A key under this configuration.
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.keys)
    }

    /// A key under one of its rules.
    #[inline(never)]
    pub fn rule_key(&self, engine: usize, name: &str, cluster: &str) -> String {
        format!("{}/{engine}/{name}/{cluster}", self.keys)
    }

    /// A cluster under one of its rules.
    pub fn scope<'a>(&'a self, rule: usize, cluster: &'a str) -> Scope<'a> {
        Scope {
            identity: self,
            rule,
            cluster,
        }
    }

    /// Holds or takes the lease: one VM of the process works for all.
    pub fn leads(&self, now: Millis) -> bool {
        let mut holds = false;
        let is_written = update(&self.key("lease"), |current| {
            let claim = Lease::claim(current, self.vm, now);
            holds = claim.is_some();
            claim
        });
        holds && is_written
    }

    /// A number for the whole process: whoever asks first makes it.
    pub fn process(&self) -> u64 {
        let mut process = self.seed();
        update(&self.key("process"), |current| {
            match current.first_chunk::<8>() {
                Some(known) => {
                    process = u64::from_le_bytes(*known);
                    None
                }
                None => Some(process.to_le_bytes().to_vec()),
            }
        });
        process
    }

    /// Adds a cluster to the list that the leading VM reads.
    pub fn announce(&self, engine: usize, cluster: &str) {
        update(&self.rule_key(engine, ANNOUNCED, ""), |names| {
            let is_there = names
                .split(|byte| *byte == b'\n')
                .any(|name| name == cluster.as_bytes());
            if is_there || names.len().saturating_add(cluster.len()) >= MAX_ANNOUNCED_BYTES {
                return None;
            }
            Some([names, cluster.as_bytes(), b"\n"].concat())
        });
    }

    /// A seed that differs between VMs.
    pub fn seed(&self) -> u64 {
        abi::now_ns() ^ self.vm.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// What shared values about one cluster under one rule stand under.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// This VM.
    pub identity: &'a Identity,
    /// The rule's place.
    pub rule: usize,
    /// The cluster.
    pub cluster: &'a str,
}

impl Scope<'_> {
    /// Key of a value.
    pub fn key(&self, name: &str) -> String {
        self.identity.rule_key(self.rule, name, self.cluster)
    }

    /// Key of the head of a VM that takes part in the exchange.
    #[inline(never)]
    pub fn head_key(&self, vm: u64) -> String {
        self.key(&format!("head/{vm}"))
    }

    /// Key of a segment of its log.
    #[inline(never)]
    pub fn segment_key(&self, vm: u64, place: u32) -> String {
        self.key(&format!("log/{vm}/{place}"))
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

/// The names of clusters in an announcement.
pub fn announced(names: &[u8]) -> impl Iterator<Item = &str> {
    names
        .split(|byte| *byte == b'\n')
        .filter_map(|name| core::str::from_utf8(name).ok())
        .filter(|name| !name.is_empty())
}
