//! Engine dialects as data: which metric family means what.
//!
//! Adding an engine is one row of [`DIALECTS`], one variant of `Engine`, and one sample in
//! `tests/fixtures/metrics`. Names are exact: families such as `.._by_reason`, `.._created` or
//! `.._bucket` stand beside the wanted ones and mean something else.
//!
//! Sources: the engines' own metric listings (vLLM 0.6 to 0.32, SGLang 0.4 to 0.5, TensorRT-LLM 1.0,
//! Triton's tensorrtllm_backend, TGI 3, LMDeploy 0.9, llama.cpp's server).

use crate::endpoints::load::Engine;

/// What a sample of a family tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Requests waiting; summed.
    Waiting,
    /// Requests running; summed.
    Running,
    /// KV use, 0 to 1; mean.
    KvUse,
    /// KV use under a name that newer versions replaced; counts where the new name is missing.
    KvUseOld,
    /// Labels of the sample: tokens of a block, number of blocks.
    CacheConfig {
        /// Label with the tokens of one block.
        block: &'static str,
        /// Label with the number of blocks.
        blocks: &'static str,
    },
    /// Tokens that the cache holds; summed.
    CapacityTokens,
    /// Tokens of one block.
    BlockTokens,
    /// Blocks of the cache; summed.
    Blocks,
    /// Counter of tokens looked up; summed.
    PrefixQueries,
    /// Counter of tokens found; summed.
    PrefixHits,
    /// The same for an outer store; summed.
    ExternalQueries,
    /// The same for an outer store; summed.
    ExternalHits,
    /// Recent hit share; mean.
    HitRate,
    /// Labels of the sample: adapter lists. The value is a time; the newest series counts.
    Adapters,
}

/// One metric family.
#[derive(Debug)]
pub struct Family {
    /// Its name behind the dialect's prefix, at least eight bytes.
    pub name: &'static str,
    /// A label and the value that picks the wanted samples of the family.
    pub only: Option<(&'static str, &'static str)>,
    /// What its samples tell.
    pub signal: Signal,
    /// The name's first eight bytes, to tell lines apart with one comparison.
    pub(crate) key: u64,
}

/// How one engine names things.
#[derive(Debug)]
pub struct Dialect {
    /// The engine.
    pub engine: Engine,
    /// What its names begin with; a second spelling where an exporter in between cannot write a colon.
    pub prefixes: &'static [Prefix],
    /// Its families.
    pub families: &'static [Family],
    /// First and fifth letters of the families' names, as [`letter_bit`]s: they tell most other names apart.
    pub(crate) letters: [u32; 2],
}

/// The beginning of a dialect's names.
#[derive(Debug)]
pub struct Prefix {
    /// The text itself.
    pub text: &'static str,
    /// Its first eight bytes (fewer where it is shorter) and the mask that selects them.
    pub(crate) key: u64,
    pub(crate) mask: u64,
}

/// Every engine that we understand.
pub static DIALECTS: [Dialect; 7] = [
    dialect(
        Engine::Vllm,
        const { &[prefix("vllm:")] },
        const {
            &[
                family("num_requests_waiting", Signal::Waiting),
                family("num_requests_running", Signal::Running),
                family("kv_cache_usage_perc", Signal::KvUse),
                family("gpu_cache_usage_perc", Signal::KvUseOld),
                family("cache_config_info", VLLM_CACHE),
                family("lora_requests_info", Signal::Adapters),
                family("prefix_cache_queries_total", Signal::PrefixQueries),
                family("prefix_cache_hits_total", Signal::PrefixHits),
                family(
                    "external_prefix_cache_queries_total",
                    Signal::ExternalQueries,
                ),
                family("external_prefix_cache_hits_total", Signal::ExternalHits),
            ]
        },
    ),
    dialect(
        Engine::Sglang,
        const { &[prefix("sglang:"), prefix("sglang_")] },
        const {
            &[
                family("num_queue_reqs", Signal::Waiting),
                family("num_running_reqs", Signal::Running),
                family("token_usage", Signal::KvUse),
                family("max_total_num_tokens", Signal::CapacityTokens),
                family("cache_config_info", SGLANG_CACHE),
                family("cache_hit_rate", Signal::HitRate),
            ]
        },
    ),
    dialect(
        Engine::TrtllmServe,
        const { &[prefix("trtllm_")] },
        const {
            &[
                family("num_requests_waiting", Signal::Waiting),
                family("num_requests_running", Signal::Running),
                family("kv_cache_utilization", Signal::KvUse),
                family("kv_cache_tokens_per_block", Signal::BlockTokens),
                family("kv_cache_max_blocks", Signal::Blocks),
                family("kv_cache_hit_rate", Signal::HitRate),
            ]
        },
    ),
    dialect(
        Engine::TritonTrtllm,
        const { &[prefix("nv_trt_llm_")] },
        const {
            &[
                TRITON_REQUESTS.only("waiting", Signal::Waiting),
                TRITON_REQUESTS.only("scheduled", Signal::Running),
                TRITON_BLOCKS.only("fraction", Signal::KvUse),
                TRITON_BLOCKS.only("tokens_per", Signal::BlockTokens),
                TRITON_BLOCKS.only("max", Signal::Blocks),
            ]
        },
    ),
    dialect(
        Engine::Tgi,
        const { &[prefix("tgi_")] },
        const {
            &[
                family("queue_size", Signal::Waiting),
                family("batch_current_size", Signal::Running),
            ]
        },
    ),
    dialect(
        Engine::Lmdeploy,
        const { &[prefix("lmdeploy:")] },
        const {
            &[
                family("num_requests_waiting", Signal::Waiting),
                family("num_requests_running", Signal::Running),
                family("gpu_cache_usage_perc", Signal::KvUse),
            ]
        },
    ),
    dialect(
        Engine::LlamaCpp,
        const { &[prefix("llamacpp:")] },
        const {
            &[
                family("requests_deferred", Signal::Waiting),
                family("requests_processing", Signal::Running),
                family("kv_cache_usage_ratio", Signal::KvUse),
            ]
        },
    ),
];

const VLLM_CACHE: Signal = Signal::CacheConfig {
    block: "block_size",
    blocks: "num_gpu_blocks",
};
const SGLANG_CACHE: Signal = Signal::CacheConfig {
    block: "page_size",
    blocks: "num_pages",
};
const TRITON_REQUESTS: Labelled = Labelled("request_metrics", "request_type");
const TRITON_BLOCKS: Labelled = Labelled("kv_cache_block_metrics", "kv_cache_block_type");

/// A family whose samples mean different things by one label's value.
struct Labelled(&'static str, &'static str);

impl Labelled {
    const fn only(&self, value: &'static str, signal: Signal) -> Family {
        Family {
            name: self.0,
            only: Some((self.1, value)),
            signal,
            key: key8(self.0.as_bytes(), self.0.len()),
        }
    }
}

const fn family(name: &'static str, signal: Signal) -> Family {
    Family {
        name,
        only: None,
        signal,
        key: key8(name.as_bytes(), name.len()),
    }
}

const fn prefix(text: &'static str) -> Prefix {
    let len = if text.len() < 8 { text.len() } else { 8 };
    Prefix {
        text,
        key: key8(text.as_bytes(), len),
        mask: u64::MAX >> (8 * (8 - len)),
    }
}

const fn dialect(
    engine: Engine,
    prefixes: &'static [Prefix],
    mut families: &'static [Family],
) -> Dialect {
    let all = families;
    let mut letters = [0, 0];
    while let Some((family, rest)) = families.split_first() {
        letters = [
            letters[0] | letter_bit(key_byte(family.key)),
            letters[1] | letter_bit(key_byte(family.key >> 32)),
        ];
        families = rest;
    }
    Dialect {
        engine,
        prefixes,
        families: all,
        letters,
    }
}

/// First letters of all prefixes, as [`letter_bit`]s.
pub(crate) const PREFIX_LETTERS: u32 =
    letter_bit(b'v') | letter_bit(b's') | letter_bit(b't') | letter_bit(b'n') | letter_bit(b'l');

/// A letter's bit in a set of letters; other bytes share bits with letters.
#[inline(always)]
pub(crate) const fn letter_bit(byte: u8) -> u32 {
    1 << (byte & 31)
}

/// The first byte of an eight-byte key.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lowest byte is meant")]
pub(crate) const fn key_byte(key: u64) -> u8 {
    key as u8
}

/// The first `len` (at most 8) bytes of `text` as a little-endian number.
const fn key8(mut text: &[u8], len: usize) -> u64 {
    let mut key = 0;
    let mut taken = 0;
    while taken < len && taken < 8 {
        let Some((&byte, rest)) = text.split_first() else {
            break;
        };
        key |= u64::from_le_bytes([byte, 0, 0, 0, 0, 0, 0, 0]) << (8 * taken);
        text = rest;
        taken += 1;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_what_the_scan_relies_on() {
        for dialect in &DIALECTS {
            for prefix in dialect.prefixes {
                let first = prefix.text.as_bytes()[0];
                assert_ne!(PREFIX_LETTERS & letter_bit(first), 0, "{}", prefix.text);
            }
            for family in dialect.families {
                assert!(family.name.len() >= 8, "{}", family.name);
                let head: [u8; 8] = family.name.as_bytes()[..8].try_into().unwrap();
                assert_eq!(family.key, u64::from_le_bytes(head));
                let [first, fifth] = dialect.letters;
                assert_ne!(first & letter_bit(head[0]), 0);
                assert_ne!(fifth & letter_bit(head[4]), 0);
            }
        }
    }

    #[test]
    fn engines_have_one_row_each() {
        for engine in Engine::ALL {
            let rows = DIALECTS.iter().filter(|d| d.engine == engine).count();
            assert_eq!(rows, 1, "{engine:?}");
        }
    }
}
