//! The metric families of a vLLM 0.32 process, in its order: names, labels, buckets.
//! Source: `/metrics` of that version; the help texts are our own.

use super::metrics::{Stats, View};

/// Upper bounds of the buckets, `+Inf` apart.
pub(crate) type Bounds = &'static [f64];

const TOKENS: Bounds = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];
const STEP_TOKENS: Bounds = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const FIRST_TOKEN: Bounds = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: Bounds = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const PHASE: Bounds = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const HTTP_FINE: Bounds = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];

/// The histograms that are kept, by place in [`Stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Histo {
    PromptTokens,
    GenerationTokens,
    StepTokens,
    MaxGeneration,
    ParamN,
    ParamMaxTokens,
    FirstToken,
    InterToken,
    PerOutputToken,
    EndToEnd,
    Queue,
    Inference,
    Prefill,
    Decode,
    Preemptions,
    Computed,
    HttpFine,
    HttpCoarse,
}

impl Histo {
    /// All of them, in the order of the enum.
    pub(crate) const ALL: [(Self, Bounds); 18] = [
        (Self::PromptTokens, TOKENS),
        (Self::GenerationTokens, TOKENS),
        (Self::StepTokens, STEP_TOKENS),
        (Self::MaxGeneration, TOKENS),
        (Self::ParamN, &[1.0, 2.0, 5.0, 10.0, 20.0]),
        (Self::ParamMaxTokens, TOKENS),
        (Self::FirstToken, FIRST_TOKEN),
        (Self::InterToken, PER_TOKEN),
        (Self::PerOutputToken, PER_TOKEN),
        (Self::EndToEnd, PHASE),
        (Self::Queue, PHASE),
        (Self::Inference, PHASE),
        (Self::Prefill, PHASE),
        (Self::Decode, PHASE),
        (Self::Preemptions, &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
        (Self::Computed, TOKENS),
        (Self::HttpFine, HTTP_FINE),
        (Self::HttpCoarse, &[0.1, 0.5, 1.0]),
    ];
}

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

const fn family(name: &'static str, help: &'static str, scope: Scope, shape: Shape) -> Family {
    Family {
        name,
        help,
        scope,
        shape,
    }
}

const NONE: Extra = ("", "");
const ZERO: Value = |_| 0.0;

/// Every family, in the order of the text.
pub(crate) const FAMILIES: &[Family] = {
    use Scope::{Engine, Handler, HandlerOnly, Model, Process};
    use Shape::{CacheConfig, Counter, Gauge, Histogram, Summary};
    &[
        family(
            "python_gc_objects_collected",
            "Objects freed by the garbage collector, by generation",
            Process,
            Counter(&[
                (("generation", "0"), |_| 14_211.0),
                (("generation", "1"), |_| 2_610.0),
                (("generation", "2"), |_| 744.0),
            ]),
        ),
        family(
            "python_gc_objects_uncollectable",
            "Objects the garbage collector could not free, by generation",
            Process,
            Counter(&[
                (("generation", "0"), ZERO),
                (("generation", "1"), ZERO),
                (("generation", "2"), ZERO),
            ]),
        ),
        family(
            "python_gc_collections",
            "Runs of the garbage collector, by generation",
            Process,
            Counter(&[
                (("generation", "0"), |_| 1_698.0),
                (("generation", "1"), |_| 154.0),
                (("generation", "2"), |_| 11.0),
            ]),
        ),
        family(
            "python_info",
            "The interpreter",
            Process,
            Gauge(&[(("implementation", "Simulator"), |_| 1.0)]),
        ),
        family(
            "process_virtual_memory_bytes",
            "Virtual memory of the process, bytes",
            Process,
            Gauge(&[(NONE, |_| 4_812_963_840.0)]),
        ),
        family(
            "process_resident_memory_bytes",
            "Resident memory of the process, bytes",
            Process,
            Gauge(&[(NONE, |_| 1_104_281_600.0)]),
        ),
        family(
            "process_start_time_seconds",
            "Start of the process, seconds since the epoch",
            Process,
            Gauge(&[(NONE, |v| v.created)]),
        ),
        family(
            "process_cpu_seconds",
            "Processor time of the process, seconds",
            Process,
            Counter(&[(NONE, |v| v.stats.counts.finished as f64 * 0.01)]),
        ),
        family(
            "process_open_fds",
            "File descriptors in use",
            Process,
            Gauge(&[(NONE, |v| 64.0 + v.stats.counts.running as f64)]),
        ),
        family(
            "process_max_fds",
            "File descriptors allowed",
            Process,
            Gauge(&[(NONE, |_| 20_000.0)]),
        ),
        family(
            "vllm:estimated_flops_per_gpu",
            "Floating point operations for each GPU, estimated, to tell how well the model uses it",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:estimated_read_bytes_per_gpu",
            "Bytes read from memory for each GPU, estimated, to tell how well the model uses it",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:estimated_write_bytes_per_gpu",
            "Bytes written to memory for each GPU, estimated, to tell how well the model uses it",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:num_requests_running",
            "Requests in an execution batch: their prompt is being computed or their answer generated",
            Engine,
            Gauge(&[(NONE, |v| v.stats.counts.running as f64)]),
        ),
        family(
            "vllm:num_requests_waiting",
            "Requests that wait for the scheduler to take them into a batch",
            Engine,
            Gauge(&[(NONE, |v| v.stats.counts.waiting as f64)]),
        ),
        family(
            "vllm:num_requests_waiting_by_reason",
            "Requests that wait, by what they wait for: capacity of the scheduler, or a passing constraint (adapters, transfers). The sum over the reasons is the number of waiting requests",
            Engine,
            Gauge(&[
                (("reason", "capacity"), |v| v.stats.counts.waiting as f64),
                (("reason", "deferred"), ZERO),
            ]),
        ),
        family(
            "vllm:engine_sleep_state",
            "Whether the engine is awake, has moved its weights away (level 1), or has dropped everything (level 2)",
            Engine,
            Gauge(&[
                (("sleep_state", "awake"), |_| 1.0),
                (("sleep_state", "weights_offloaded"), ZERO),
                (("sleep_state", "discard_all"), ZERO),
            ]),
        ),
        family(
            "vllm:kv_cache_usage_perc",
            "Share of the KV cache in use by running requests, 0 to 1",
            Engine,
            Gauge(&[(NONE, |v| v.kv_usage)]),
        ),
        family(
            "vllm:prefix_cache_queries",
            "Prompt tokens looked up in the prefix cache",
            Engine,
            Counter(&[(NONE, |v| v.stats.counts.query_tokens as f64)]),
        ),
        family(
            "vllm:prefix_cache_hits",
            "Prompt tokens found in the prefix cache",
            Engine,
            Counter(&[(NONE, |v| v.stats.counts.hit_tokens as f64)]),
        ),
        family(
            "vllm:external_prefix_cache_queries",
            "Prompt tokens looked up in a cache outside this engine, through a KV connector",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:external_prefix_cache_hits",
            "Prompt tokens found in a cache outside this engine, through a KV connector",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:mm_cache_queries",
            "Images and other items looked up in the multi-modal cache",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:mm_cache_hits",
            "Images and other items found in the multi-modal cache",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:num_preemptions",
            "Requests pushed out of the batch to make room",
            Engine,
            Counter(&[(NONE, ZERO)]),
        ),
        family(
            "vllm:prompt_tokens",
            "Prompt tokens processed",
            Engine,
            Counter(&[(NONE, |v| v.stats.counts.query_tokens as f64)]),
        ),
        family(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by where their KV came from",
            Engine,
            Counter(&[
                (("source", "local_compute"), |v| v.computed()),
                (("source", "local_cache_hit"), |v| {
                    v.stats.counts.hit_tokens as f64
                }),
                (("source", "external_kv_transfer"), ZERO),
            ]),
        ),
        family(
            "vllm:prompt_tokens_cached",
            "Prompt tokens found in any cache",
            Engine,
            Counter(&[(NONE, |v| v.stats.counts.hit_tokens as f64)]),
        ),
        family(
            "vllm:prompt_tokens_cached_by_source",
            "Prompt tokens found in a cache, by the tier that had them: the device's own memory, the host's, a disk, another instance, or an outer store that does not say. Counted when the request enters the batch",
            Engine,
            Counter(&[
                (("source", "device"), |v| v.stats.counts.hit_tokens as f64),
                (("source", "host"), ZERO),
                (("source", "p2p"), ZERO),
                (("source", "disk"), ZERO),
                (("source", "external_unspecified"), ZERO),
            ]),
        ),
        family(
            "vllm:generation_tokens",
            "Tokens generated",
            Engine,
            Counter(&[(NONE, |v| v.stats.generated as f64)]),
        ),
        family(
            "vllm:request_success",
            "Requests that ended, by how",
            Engine,
            Counter(&[
                (("finished_reason", "stop"), ZERO),
                (("finished_reason", "length"), |v| {
                    v.stats.counts.finished as f64
                }),
                (("finished_reason", "abort"), |v| {
                    v.stats.counts.aborted as f64
                }),
                (("finished_reason", "error"), ZERO),
                (("finished_reason", "repetition"), ZERO),
            ]),
        ),
        family(
            "vllm:admission_rejections",
            "Requests turned away by a limit of the queue, by limit",
            Model,
            Counter(&[
                (("reason", "max_num_queued_reqs"), ZERO),
                (("reason", "max_num_queued_tokens"), ZERO),
            ]),
        ),
        family(
            "vllm:request_prompt_tokens",
            "Prompt tokens of a request",
            Engine,
            Histogram(Histo::PromptTokens),
        ),
        family(
            "vllm:request_generation_tokens",
            "Generated tokens of a request",
            Engine,
            Histogram(Histo::GenerationTokens),
        ),
        family(
            "vllm:iteration_tokens_total",
            "Tokens in one step of the engine",
            Engine,
            Histogram(Histo::StepTokens),
        ),
        family(
            "vllm:request_max_num_generation_tokens",
            "Tokens a request could generate at most",
            Engine,
            Histogram(Histo::MaxGeneration),
        ),
        family(
            "vllm:request_params_n",
            "Parameter n of a request",
            Engine,
            Histogram(Histo::ParamN),
        ),
        family(
            "vllm:request_params_max_tokens",
            "Parameter max_tokens of a request",
            Engine,
            Histogram(Histo::ParamMaxTokens),
        ),
        family(
            "vllm:time_to_first_token_seconds",
            "Arrival to first token, seconds",
            Engine,
            Histogram(Histo::FirstToken),
        ),
        family(
            "vllm:inter_token_latency_seconds",
            "One token to the next, seconds",
            Engine,
            Histogram(Histo::InterToken),
        ),
        family(
            "vllm:request_time_per_output_token_seconds",
            "Mean time between the tokens of a request, seconds",
            Engine,
            Histogram(Histo::PerOutputToken),
        ),
        family(
            "vllm:e2e_request_latency_seconds",
            "Arrival to last token, seconds",
            Engine,
            Histogram(Histo::EndToEnd),
        ),
        family(
            "vllm:request_queue_time_seconds",
            "Time that a request waited, seconds",
            Engine,
            Histogram(Histo::Queue),
        ),
        family(
            "vllm:request_inference_time_seconds",
            "Time that a request ran, seconds",
            Engine,
            Histogram(Histo::Inference),
        ),
        family(
            "vllm:request_prefill_time_seconds",
            "Time that a request's prompt took, seconds",
            Engine,
            Histogram(Histo::Prefill),
        ),
        family(
            "vllm:request_decode_time_seconds",
            "Time that a request's answer took, seconds",
            Engine,
            Histogram(Histo::Decode),
        ),
        family(
            "vllm:request_num_preemptions",
            "How often a request was pushed out of the batch",
            Engine,
            Histogram(Histo::Preemptions),
        ),
        family(
            "vllm:request_prefill_kv_computed_tokens",
            "Prompt tokens of a request that were computed, those found in a cache left out",
            Engine,
            Histogram(Histo::Computed),
        ),
        family(
            "vllm:cache_config_info",
            "The configuration of the KV cache",
            Engine,
            CacheConfig,
        ),
        family(
            "http_requests",
            "Requests by method, status and handler",
            Handler,
            Counter(&[(("status", "2xx"), |v| v.stats.counts.finished as f64)]),
        ),
        family(
            "http_request_size_bytes",
            "Content length of requests, by handler",
            HandlerOnly,
            Summary(
                |v| v.stats.counts.finished as f64,
                |v| v.stats.body_bytes as f64,
            ),
        ),
        family(
            "http_response_size_bytes",
            "Content length of answers, by handler",
            HandlerOnly,
            Summary(
                |v| v.stats.counts.finished as f64,
                |v| v.stats.generated as f64 * 180.0,
            ),
        ),
        family(
            "http_request_duration_highr_seconds",
            "Duration of all requests in many buckets, for close percentiles, seconds",
            Process,
            Histogram(Histo::HttpFine),
        ),
        family(
            "http_request_duration_seconds",
            "Duration of requests in few buckets, by handler, seconds",
            Handler,
            Histogram(Histo::HttpCoarse),
        ),
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
