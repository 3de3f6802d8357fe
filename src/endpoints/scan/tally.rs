//! Samples of one text added up.
//!
//! A data-parallel engine writes one sample a rank: counts add up, shares are averaged. Tensor- and
//! pipeline-parallel ranks repeat the figure of the engine they are part of: of samples that differ
//! in nothing but those ranks the first one counts. A sample with an empty or no `priority` is the
//! total of those that have one.

use super::sample;
use crate::endpoints::dialect::{Family, Signal};
use crate::endpoints::load::{Adapters, Engine, Load, MAX_ADAPTERS, adapter_hash, count, gauge};

/// Labels that tell copies of one engine's figures apart.
const COPY_RANKS: [&[u8]; 3] = [b"tp_rank", b"pp_rank", b"moe_ep_rank"];

/// Ranked samples remembered for telling copies; further ones are left out.
const MAX_RANKED: usize = 1024;

/// A sum that a total may replace.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    total: f64,
    totals: u32,
    parts: f64,
    part_count: u32,
}

impl Sum {
    fn add(&mut self, value: f64, is_part: bool) {
        if is_part {
            self.parts += value;
            self.part_count = self.part_count.saturating_add(1);
        } else {
            self.total += value;
            self.totals = self.totals.saturating_add(1);
        }
    }

    fn sum(&self) -> Option<f64> {
        let sum = match (self.totals, self.part_count) {
            (0, 0) => return None,
            (0, _) => self.parts,
            _ => self.total,
        };
        sum.is_finite().then_some(sum)
    }

    fn mean(&self) -> Option<f64> {
        let samples = if self.totals == 0 {
            self.part_count
        } else {
            self.totals
        };
        Some(self.sum()? / f64::from(samples))
    }

    fn share(&self) -> Option<f32> {
        self.mean().map(|mean| gauge(mean.min(1.0)))
    }
}

/// What the samples so far say.
#[derive(Debug, Default)]
pub struct Tally {
    waiting: Sum,
    running: Sum,
    kv_use: Sum,
    kv_use_old: Sum,
    capacity: Sum,
    config_capacity: Option<u64>,
    blocks: Sum,
    prefix_queries: Sum,
    prefix_hits: Sum,
    external_queries: Sum,
    external_hits: Sum,
    hit_rate: Sum,
    block_tokens: Option<u32>,
    adapters: Option<(f64, Adapters)>,
    /// Signal and labels of the samples with copy ranks, hashed.
    ranked: Vec<u64>,
}

/// A sample's labels, as far as they matter.
#[derive(Default)]
struct Seen<'t> {
    has_copy_rank: bool,
    is_part: bool,
    /// Values of the labels that the signal asks for.
    wanted: [Option<&'t [u8]>; 3],
}

/// What a sample counts as, by its name and labels.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub signal: Signal,
    /// Part of a total that has a sample of its own.
    is_part: bool,
    /// Tokens of a block and blocks, where labels tell them.
    cache: [Option<u64>; 2],
}

/// What became of a sample.
pub enum Added {
    /// It is not a valid sample of a wanted family.
    Invalid,
    /// It repeats one that counted.
    Copy,
    /// It counted, with this value; so many bytes stand behind its labels.
    Counted(Counted, f64, usize),
}

impl Tally {
    /// Adds the sample `text` (labels, value). `quote`: how the text spells one; `families`: the rows of its name.
    pub fn add<'f>(
        &mut self,
        text: &[u8],
        quote: &[u8],
        mut families: impl Iterator<Item = &'f Family>,
    ) -> Added {
        let Some(first) = families.next() else {
            return Added::Invalid;
        };
        let wanted = wanted_labels(first);
        let mut seen = Seen::default();
        let labels = sample::labels(text, quote, |name, value| {
            for (slot, wanted) in seen.wanted.iter_mut().zip(wanted) {
                if name == wanted.as_bytes() {
                    *slot = Some(value);
                }
            }
            seen.has_copy_rank |= COPY_RANKS.contains(&name);
            seen.is_part |= name == b"priority" && !value.is_empty();
        });
        let Some((behind, value)) = labels.and_then(|text| Some((text, sample::value(text)?)))
        else {
            return Added::Invalid;
        };
        let picked = match first.only {
            None => Some(first),
            Some(_) => core::iter::once(first).chain(families).find(|family| {
                let asked = family.only.map(|(_, value)| value.as_bytes());
                matches!(seen.wanted, [value, ..] if value == asked)
            }),
        };
        let Some(family) = picked else {
            return Added::Invalid;
        };
        if seen.has_copy_rank && self.is_copy(text, quote, family) {
            return Added::Copy;
        }
        let mut counted = Counted {
            signal: family.signal,
            is_part: seen.is_part,
            cache: [None; 2],
        };
        match family.signal {
            Signal::Adapters => self.record_adapters(value, &seen),
            Signal::CacheConfig { .. } => {
                let [block, blocks, _] = seen.wanted;
                counted.cache = [block, blocks].map(|value| value.and_then(sample::whole));
            }
            _ => {}
        }
        self.record(counted, value);
        Added::Counted(counted, value, behind.len())
    }

    /// Whether a sample that differs from this one in copy ranks only was here before.
    fn is_copy(&mut self, text: &[u8], quote: &[u8], family: &Family) -> bool {
        let mut hash = family.key ^ family.name.len() as u64;
        sample::labels(text, quote, |name, value| {
            if !COPY_RANKS.contains(&name) {
                hash = hash.rotate_left(21).wrapping_add(adapter_hash(name));
                hash = hash.rotate_left(21) ^ adapter_hash(value);
            }
        });
        if self.ranked.len() >= MAX_RANKED || self.ranked.contains(&hash) {
            return true;
        }
        self.ranked.push(hash);
        false
    }

    /// Adds a value of a sample whose labels are known. Adapters, which have no value, are not added here.
    pub fn record(&mut self, counted: Counted, value: f64) {
        let sum = match counted.signal {
            Signal::Waiting => &mut self.waiting,
            Signal::Running => &mut self.running,
            Signal::KvUse => &mut self.kv_use,
            Signal::KvUseOld => &mut self.kv_use_old,
            Signal::CapacityTokens => &mut self.capacity,
            Signal::Blocks => &mut self.blocks,
            Signal::PrefixQueries => &mut self.prefix_queries,
            Signal::PrefixHits => &mut self.prefix_hits,
            Signal::ExternalQueries => &mut self.external_queries,
            Signal::ExternalHits => &mut self.external_hits,
            Signal::HitRate => &mut self.hit_rate,
            Signal::BlockTokens => {
                self.block_tokens = tokens(count(value)).or(self.block_tokens);
                return;
            }
            Signal::CacheConfig { .. } => {
                self.record_config(counted.cache);
                return;
            }
            Signal::Adapters => return,
        };
        sum.add(value, counted.is_part);
    }

    fn record_config(&mut self, [block, blocks]: [Option<u64>; 2]) {
        self.block_tokens = tokens(block).or(self.block_tokens);
        if let Some(capacity) = block.zip(blocks).map(|(b, n)| b.saturating_mul(n)) {
            let so_far = self.config_capacity.unwrap_or_default();
            self.config_capacity = Some(so_far.saturating_add(capacity));
        }
    }

    fn record_adapters(&mut self, time: f64, seen: &Seen<'_>) {
        if self.adapters.as_ref().is_some_and(|(at, _)| *at > time) {
            return;
        }
        let [running, waiting, max] = seen.wanted;
        let adapters = Adapters {
            running: adapter_names(running.unwrap_or_default()),
            waiting: adapter_names(waiting.unwrap_or_default()),
            max: max
                .and_then(sample::whole)
                .and_then(|max| u32::try_from(max).ok()),
        };
        self.adapters = Some((time, adapters));
    }

    /// The text's load.
    pub fn load(self, engine: Option<Engine>) -> Load {
        let blocks = self.blocks.sum();
        let block_tokens = self.block_tokens.map(f64::from);
        let capacity = [
            self.capacity.sum().and_then(count),
            self.config_capacity,
            blocks
                .zip(block_tokens)
                .and_then(|(n, tokens)| count(n * tokens)),
        ];
        Load {
            engine,
            waiting: self.waiting.sum().map(gauge),
            running: self.running.sum().map(gauge),
            kv_use: self.kv_use.share().or_else(|| self.kv_use_old.share()),
            capacity_tokens: capacity.into_iter().flatten().find(|tokens| *tokens > 0),
            block_tokens: self.block_tokens,
            prefix_queries: self.prefix_queries.sum(),
            prefix_hits: self.prefix_hits.sum(),
            external_prefix_queries: self.external_queries.sum(),
            external_prefix_hits: self.external_hits.sum(),
            cache_hit_rate: self.hit_rate.share(),
            adapters: self.adapters.map(|(_, adapters)| adapters),
        }
    }
}

/// The labels whose values the family needs.
fn wanted_labels(family: &Family) -> [&'static str; 3] {
    match (family.signal, family.only) {
        (_, Some((label, _))) => [label, "", ""],
        (Signal::CacheConfig { block, blocks }, None) => [block, blocks, ""],
        (Signal::Adapters, None) => ["running_lora_adapters", "waiting_lora_adapters", "max_lora"],
        _ => [""; 3],
    }
}

/// Tokens of a block, when it has any.
fn tokens(count: Option<u64>) -> Option<u32> {
    u32::try_from(count?).ok().filter(|tokens| *tokens > 0)
}

/// The names of a comma-separated list, hashed.
fn adapter_names(list: &[u8]) -> Vec<u64> {
    sample::unescape_label(list)
        .split(|&b| b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty())
        .take(MAX_ADAPTERS)
        .map(adapter_hash)
        .collect()
}
