//! The metric families of a vLLM 0.32 process, in its order: names, labels, buckets.
//! Source: `/metrics` of that version; the help texts are our own.

use super::histogram::Histo;
use super::metrics::{Stats, View};

/// Labels that a family's series have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// None: the process.
    Process,
    /// `model_name`.
    Model,
    /// `engine` and `model_name`.
    Engine,
    /// `handler` and `method`.
    Handler,
    /// `handler`.
    HandlerOnly,
}

/// A label of one series beside its scope's; an empty key for none.
type Extra = (&'static str, &'static str);
type Value = fn(&View<'_>) -> f64;

/// What a family holds.
pub(crate) enum Shape {
    Gauge(&'static [(Extra, Value)]),
    Counter(&'static [(Extra, Value)]),
    Histogram(Histo),
    /// Count and sum.
    Summary(Value, Value),
    /// `vllm:cache_config_info`, whose value is in its labels.
    CacheConfig,
}

/// One family.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) scope: Scope,
    pub(crate) shape: Shape,
}

const fn family(name: &'static str, scope: Scope, shape: Shape, help: &'static str) -> Family {
    Family {
        name,
        help,
        scope,
        shape,
    }
}

const NONE: Extra = ("", "");
const ZERO: Value = |_| 0.0;

/// Every family, in the order of the text. A table, so its rows are not wrapped.
#[rustfmt::skip]
pub(crate) const FAMILIES: &[Family] = {
    use Scope::{Engine, Handler, HandlerOnly, Model, Process};
    use Shape::{CacheConfig, Counter, Gauge, Histogram, Summary};
    &[
        family("python_gc_objects_collected", Process, Counter(&[(("generation", "0"), |_| 14_211.0), (("generation", "1"), |_| 2_610.0), (("generation", "2"), |_| 744.0)]),
            "Objects freed by the garbage collector, by generation"),
        family("python_gc_objects_uncollectable", Process, Counter(&[(("generation", "0"), ZERO), (("generation", "1"), ZERO), (("generation", "2"), ZERO)]),
            "Objects the garbage collector could not free, by generation"),
        family("python_gc_collections", Process, Counter(&[(("generation", "0"), |_| 1_698.0), (("generation", "1"), |_| 154.0), (("generation", "2"), |_| 11.0)]),
            "Runs of the garbage collector, by generation"),
        family("python_info", Process, Gauge(&[(("implementation", "Simulator"), |_| 1.0)]),
            "The interpreter"),
        family("process_virtual_memory_bytes", Process, Gauge(&[(NONE, |_| 4_812_963_840.0)]),
            "Virtual memory of the process, bytes"),
        family("process_resident_memory_bytes", Process, Gauge(&[(NONE, |_| 1_104_281_600.0)]),
            "Resident memory of the process, bytes"),
        family("process_start_time_seconds", Process, Gauge(&[(NONE, |v| v.created)]),
            "Start of the process, seconds since the epoch"),
        family("process_cpu_seconds", Process, Counter(&[(NONE, |v| v.stats.counts.finished as f64 * 0.01)]),
            "Processor time of the process, seconds"),
        family("process_open_fds", Process, Gauge(&[(NONE, |v| 64.0 + v.stats.counts.running as f64)]),
            "File descriptors in use"),
        family("process_max_fds", Process, Gauge(&[(NONE, |_| 20_000.0)]),
            "File descriptors allowed"),
        family("vllm:estimated_flops_per_gpu", Engine, Counter(&[(NONE, ZERO)]),
            "Floating point operations for each GPU, estimated, to tell how well the model uses it"),
        family("vllm:estimated_read_bytes_per_gpu", Engine, Counter(&[(NONE, ZERO)]),
            "Bytes read from memory for each GPU, estimated, to tell how well the model uses it"),
        family("vllm:estimated_write_bytes_per_gpu", Engine, Counter(&[(NONE, ZERO)]),
            "Bytes written to memory for each GPU, estimated, to tell how well the model uses it"),
        family("vllm:num_requests_running", Engine, Gauge(&[(NONE, |v| v.stats.counts.running as f64)]),
            "Requests in an execution batch: their prompt is being computed or their answer generated"),
        family("vllm:num_requests_waiting", Engine, Gauge(&[(NONE, |v| v.stats.counts.waiting as f64)]),
            "Requests that wait for the scheduler to take them into a batch"),
        family("vllm:num_requests_waiting_by_reason", Engine, Gauge(&[(("reason", "capacity"), |v| v.stats.counts.waiting as f64), (("reason", "deferred"), ZERO)]),
            "Requests that wait, by what they wait for: capacity of the scheduler, or a passing constraint (adapters, transfers). The sum over the reasons is the number of waiting requests"),
        family("vllm:engine_sleep_state", Engine, Gauge(&[(("sleep_state", "awake"), |_| 1.0), (("sleep_state", "weights_offloaded"), ZERO), (("sleep_state", "discard_all"), ZERO)]),
            "Whether the engine is awake, has moved its weights away (level 1), or has dropped everything (level 2)"),
        family("vllm:kv_cache_usage_perc", Engine, Gauge(&[(NONE, |v| v.kv_usage)]),
            "Share of the KV cache in use by running requests, 0 to 1"),
        family("vllm:prefix_cache_queries", Engine, Counter(&[(NONE, |v| v.stats.counts.query_tokens as f64)]),
            "Prompt tokens looked up in the prefix cache"),
        family("vllm:prefix_cache_hits", Engine, Counter(&[(NONE, |v| v.stats.counts.hit_tokens as f64)]),
            "Prompt tokens found in the prefix cache"),
        family("vllm:external_prefix_cache_queries", Engine, Counter(&[(NONE, ZERO)]),
            "Prompt tokens looked up in a cache outside this engine, through a KV connector"),
        family("vllm:external_prefix_cache_hits", Engine, Counter(&[(NONE, ZERO)]),
            "Prompt tokens found in a cache outside this engine, through a KV connector"),
        family("vllm:mm_cache_queries", Engine, Counter(&[(NONE, ZERO)]),
            "Images and other items looked up in the multi-modal cache"),
        family("vllm:mm_cache_hits", Engine, Counter(&[(NONE, ZERO)]),
            "Images and other items found in the multi-modal cache"),
        family("vllm:num_preemptions", Engine, Counter(&[(NONE, ZERO)]),
            "Requests pushed out of the batch to make room"),
        family("vllm:prompt_tokens", Engine, Counter(&[(NONE, |v| v.stats.counts.query_tokens as f64)]),
            "Prompt tokens processed"),
        family("vllm:prompt_tokens_by_source", Engine, Counter(&[(("source", "local_compute"), |v| v.computed()), (("source", "local_cache_hit"), |v| { v.stats.counts.hit_tokens as f64 }), (("source", "external_kv_transfer"), ZERO)]),
            "Prompt tokens by where their KV came from"),
        family("vllm:prompt_tokens_cached", Engine, Counter(&[(NONE, |v| v.stats.counts.hit_tokens as f64)]),
            "Prompt tokens found in any cache"),
        family("vllm:prompt_tokens_cached_by_source", Engine, Counter(&[(("source", "device"), |v| v.stats.counts.hit_tokens as f64),
            (("source", "host"), ZERO),
            (("source", "p2p"), ZERO),
            (("source", "disk"), ZERO),
            (("source", "external_unspecified"), ZERO)]),
            "Prompt tokens found in a cache, by the tier that had them: the device's own memory, the host's, a disk, another instance, or an outer store that does not say. Counted when the request enters the batch"),
        family("vllm:generation_tokens", Engine, Counter(&[(NONE, |v| v.stats.generated as f64)]),
            "Tokens generated"),
        family("vllm:request_success", Engine, Counter(&[(("finished_reason", "stop"), ZERO),
            (("finished_reason", "length"), |v| { v.stats.counts.finished as f64 }),
            (("finished_reason", "abort"), |v| { v.stats.counts.aborted as f64 }),
            (("finished_reason", "error"), ZERO),
            (("finished_reason", "repetition"), ZERO)]),
            "Requests that ended, by how"),
        family("vllm:admission_rejections", Model, Counter(&[(("reason", "max_num_queued_reqs"), ZERO), (("reason", "max_num_queued_tokens"), ZERO)]),
            "Requests turned away by a limit of the queue, by limit"),
        family("vllm:request_prompt_tokens", Engine, Histogram(Histo::PromptTokens),
            "Prompt tokens of a request"),
        family("vllm:request_generation_tokens", Engine, Histogram(Histo::GenerationTokens),
            "Generated tokens of a request"),
        family("vllm:iteration_tokens_total", Engine, Histogram(Histo::StepTokens),
            "Tokens in one step of the engine"),
        family("vllm:request_max_num_generation_tokens", Engine, Histogram(Histo::MaxGeneration),
            "Tokens a request could generate at most"),
        family("vllm:request_params_n", Engine, Histogram(Histo::ParamN),
            "Parameter n of a request"),
        family("vllm:request_params_max_tokens", Engine, Histogram(Histo::ParamMaxTokens),
            "Parameter max_tokens of a request"),
        family("vllm:time_to_first_token_seconds", Engine, Histogram(Histo::FirstToken),
            "Arrival to first token, seconds"),
        family("vllm:inter_token_latency_seconds", Engine, Histogram(Histo::InterToken),
            "One token to the next, seconds"),
        family("vllm:request_time_per_output_token_seconds", Engine, Histogram(Histo::PerOutputToken),
            "Mean time between the tokens of a request, seconds"),
        family("vllm:e2e_request_latency_seconds", Engine, Histogram(Histo::EndToEnd),
            "Arrival to last token, seconds"),
        family("vllm:request_queue_time_seconds", Engine, Histogram(Histo::Queue),
            "Time that a request waited, seconds"),
        family("vllm:request_inference_time_seconds", Engine, Histogram(Histo::Inference),
            "Time that a request ran, seconds"),
        family("vllm:request_prefill_time_seconds", Engine, Histogram(Histo::Prefill),
            "Time that a request's prompt took, seconds"),
        family("vllm:request_decode_time_seconds", Engine, Histogram(Histo::Decode),
            "Time that a request's answer took, seconds"),
        family("vllm:request_num_preemptions", Engine, Histogram(Histo::Preemptions),
            "How often a request was pushed out of the batch"),
        family("vllm:request_prefill_kv_computed_tokens", Engine, Histogram(Histo::Computed),
            "Prompt tokens of a request that were computed, those found in a cache left out"),
        family("vllm:cache_config_info", Engine, CacheConfig,
            "The configuration of the KV cache"),
        family("http_requests", Handler, Counter(&[(("status", "2xx"), |v| v.stats.counts.finished as f64)]),
            "Requests by method, status and handler"),
        family("http_request_size_bytes", HandlerOnly, Summary(|v| v.stats.counts.finished as f64, |v| v.stats.body_bytes as f64),
            "Content length of requests, by handler"),
        family("http_response_size_bytes", HandlerOnly, Summary(|v| v.stats.counts.finished as f64, |v| v.stats.generated as f64 * 180.0),
            "Content length of answers, by handler"),
        family("http_request_duration_highr_seconds", Process, Histogram(Histo::HttpFine),
            "Duration of all requests in many buckets, for close percentiles, seconds"),
        family("http_request_duration_seconds", Handler, Histogram(Histo::HttpCoarse),
            "Duration of requests in few buckets, by handler, seconds"),
    ]
};

/// The labels of `vllm:cache_config_info` that no option sets.
pub(crate) const CACHE_CONFIG: &[(&str, &str)] = &[
    ("_block_size_resolved", "True"),
    ("cache_dtype", "auto"),
    ("cache_hit_alignment_tokens", "None"),
    ("enable_mamba_shared_prefix_checkpoint", "False"),
    ("enable_prefix_caching", "True"),
    ("engine", "0"),
    ("gpu_memory_utilization", "0.92"),
    ("hash_block_size", "None"),
    ("is_attention_free", "False"),
    ("kv_cache_dtype_skip_layers", "[]"),
    ("kv_cache_layout", "None"),
    ("kv_cache_memory_bytes", "None"),
    ("kv_offloading_backend", "native"),
    ("kv_offloading_size", "None"),
    ("kv_sharing_fast_prefill", "False"),
    ("mamba_block_size", "None"),
    ("mamba_cache_dtype", "auto"),
    ("mamba_cache_mode", "none"),
    ("mamba_page_size_padded", "None"),
    ("mamba_ssm_cache_dtype", "float32"),
    ("num_cpu_blocks", "None"),
    ("num_gpu_blocks_override", "None"),
    ("prefix_cache_retention_interval", "0"),
    ("prefix_caching_hash_algo", "sha256"),
    ("prefix_match_unit", "None"),
    ("replayssm_buffer_len", "16"),
    ("skip_page_size_padded", "None"),
    ("sliding_window", "None"),
    ("swa_bounded_replay", "True"),
    ("use_kda_recoverssm", "False"),
    ("use_replayssm", "False"),
    ("user_specified_block_size", "False"),
];

impl View<'_> {
    fn computed(&self) -> f64 {
        let Stats { counts, .. } = self.stats;
        counts.query_tokens.saturating_sub(counts.hit_tokens) as f64
    }
}
