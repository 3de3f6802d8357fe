//! From a text whose values are each in range to a configuration: defaults by profile, and what the
//! keys mean together.
//!
//! Keys of Higress's ai-endpoint-picker become: `prefix.blockSizeTokens` times 4 the bytes of a block;
//! `prefix.maxBlocks` the blocks of a prompt; `prefix.maxCacheBlocksPerEndpoint` times 16 the assumed
//! cache in tokens, and as it is the bound on the blocks that an engine tells. With the weighted sum
//! the defaults are that plugin's; with `cost` they are ours.

use core::time::Duration;

use super::error::{ConfigError, Refuse};
use super::opt_in;
use super::text::{
    BlockText, ConfigText, CooldownText, EndpointsText, IndexText, MetricsText, PickerText,
    PrefixText, ProfileText, PromptText, SessionModeText, SessionText, ToolModeText, WeightsText,
};
use super::value::{Address, Given, HeaderName, Object, Share, UrlPath, Weight, Whole, Word};
use super::{
    Config, DebugOptions, EndpointSource, IgnorePattern, IndexOptions, MetricsOptions, PickOptions,
    Profile, PromptOptions, SessionMode, SessionOptions, StaticEndpoint, ToolMode, Weights,
    pattern,
};

/// Bytes that a token is taken for where a key counts tokens.
const BYTES_PER_TOKEN: u32 = 4;
/// Tokens in an engine's block where a key counts those.
const TOKENS_PER_ENGINE_BLOCK: u64 = 16;
/// `prefix.blockSizeTokens` where it is meant and not given.
const BLOCK_SIZE_TOKENS: u32 = 1024;
/// Defaults of Higress's ai-endpoint-picker, used with the weighted sum.
const WEIGHTED_MAX_BLOCKS: u32 = 32;
const WEIGHTED_MAX_CACHE_BLOCKS: u64 = 31_250;

/// One configuration; `at` is what its keys' paths begin with.
pub(super) fn config(text: &ConfigText, at: &str) -> Result<Config, ConfigError> {
    let refuse = Refuse { at };
    let profile = profile(text, refuse)?;
    let weighted = matches!(profile, Profile::Weighted(_));
    let debug = text.debug.fields();
    let limits = text.limits.fields();
    let defaults = Config::default();
    let pick = pick(text, profile, refuse)?;
    let endpoints = endpoints(text.endpoints.fields(), refuse)?;
    Ok(Config {
        overload: opt_in::overload(text.overload.fields()),
        profiles: opt_in::profiles(&text.profiles, &pick, refuse)?,
        disaggregation: opt_in::disaggregation(&text.disaggregation, &endpoints, refuse)?,
        access_log: text.access_log.0.unwrap_or(defaults.access_log),
        pick,
        prompt: prompt(text, weighted, refuse)?,
        index: index(text, weighted, refuse)?,
        metrics: metrics(&text.metrics.fields(), refuse)?,
        endpoints,
        session: session(text.session.fields()),
        debug: DebugOptions {
            header: debug.header.0.unwrap_or(false),
            sample_rate: debug.sample_rate.0.map_or(0.0, |Share(share)| share),
            page: opt_in::page(debug.path, debug.secret, refuse)?,
        },
        fallback_endpoints: text
            .fallback_endpoints
            .0
            .and_then(|count| u8::try_from(count.get()).ok())
            .unwrap_or(defaults.fallback_endpoints),
        exchange: text.exchange.0.map_or(defaults.exchange, |switch| switch.0),
        replicas: text
            .replicas
            .0
            .as_ref()
            .map(|Object(given)| opt_in::replicas(text, given, refuse))
            .transpose()?,
        orca: text.orca.0.unwrap_or(defaults.orca),
        vm_rebuild_threshold_bytes: limits
            .vm_rebuild_threshold_bytes
            .0
            .map_or(defaults.vm_rebuild_threshold_bytes, Whole::get),
    })
}

fn profile(text: &ConfigText, refuse: Refuse) -> Result<Profile, ConfigError> {
    let named = match text.profile.0 {
        Some(Some(Word(ProfileText::NotGiven))) | Some(None) | None => None,
        Some(Some(Word(profile))) => Some(profile),
    };
    match (named, &text.weights.0) {
        (Some(ProfileText::Cost), Some(_)) => Err(refuse.key(
            "weights",
            "",
            "no weights in profile cost",
            "remove weights, or use profile default",
        )),
        (Some(ProfileText::Cost) | None, None) => Ok(Profile::Cost),
        _ => weights(text, refuse).map(Profile::Weighted),
    }
}

fn weights(text: &ConfigText, refuse: Refuse) -> Result<Weights, ConfigError> {
    let WeightsText {
        queue,
        kv_cache,
        prefix_cache,
        lora_affinity,
        inflight,
        failure,
    } = text.weights.fields();
    let or = |given: Given<Weight>, default: f64| given.0.map_or(default, |weight| weight.0);
    let default = Weights::default();
    let weights = Weights {
        queue: or(queue, default.queue),
        kv_cache: or(kv_cache, default.kv_cache),
        prefix_cache: or(prefix_cache, default.prefix_cache),
        lora_affinity: or(lora_affinity, default.lora_affinity),
        inflight: or(inflight, default.inflight),
        failure: or(failure, default.failure),
        failure_ewma_alpha: text
            .feedback
            .fields()
            .ewma_alpha
            .0
            .map_or(default.failure_ewma_alpha, |alpha| alpha.0),
    };
    let sum = weights.queue
        + weights.kv_cache
        + weights.prefix_cache
        + weights.lora_affinity
        + weights.inflight
        + weights.failure;
    if sum > 0.0 {
        Ok(weights)
    } else {
        Err(refuse.key(
            "weights",
            "",
            "all weights are 0",
            "give at least one weight over 0",
        ))
    }
}

fn pick(text: &ConfigText, profile: Profile, refuse: Refuse) -> Result<PickOptions, ConfigError> {
    let PickerText {
        mode: _,
        prior,
        tie_ratio,
        tie_tokens,
        min_match_tokens,
    } = text.picker.fields();
    let ttft_ms = text.slo.fields().ttft_ms;
    if matches!(profile, Profile::Weighted(_)) {
        let cost_only = [
            ("picker.prior", prior.0.is_some()),
            ("picker.tieRatio", tie_ratio.0.is_some()),
            ("picker.tieTokens", tie_tokens.0.is_some()),
            ("picker.minMatchTokens", min_match_tokens.0.is_some()),
            ("slo.ttftMs", ttft_ms.0.is_some()),
        ];
        if let Some((key, _)) = cost_only.iter().find(|(_, given)| *given) {
            return Err(refuse.key(
                key,
                "",
                "no effect with the weighted sum",
                "remove it, or use profile cost without weights",
            ));
        }
    }
    let CooldownText { failures, ms } = text.cooldown.fields();
    let default = PickOptions::default();
    Ok(PickOptions {
        profile,
        prior: prior.0.map_or(default.prior, |share| share.0),
        tie_ratio: tie_ratio.0.map_or(default.tie_ratio, |share| share.0),
        tie_tokens: tie_tokens.0.map_or(default.tie_tokens, Whole::get_u32),
        min_match_tokens: min_match_tokens
            .0
            .map_or(default.min_match_tokens, Whole::get_u32),
        cooldown_failures: failures.0.map_or(default.cooldown_failures, Whole::get_u32),
        cooldown: millis(&ms, default.cooldown),
        slo_ttft: ttft_ms.0.map(|ms| Duration::from_millis(ms.get())),
    })
}

pub(super) fn millis<const MIN: u64, const MAX: u64>(
    given: &Given<Whole<MIN, MAX>>,
    default: Duration,
) -> Duration {
    given
        .0
        .map_or(default, |ms| Duration::from_millis(ms.get()))
}

fn prompt(text: &ConfigText, weighted: bool, refuse: Refuse) -> Result<PromptOptions, ConfigError> {
    let prefix = text.prefix.fields();
    let (block_bytes, max_blocks) = blocks(&prefix, &text.block.fields(), weighted, refuse)?;
    let PromptText {
        ignore,
        isolation_header,
    } = text.prompt.fields();
    let default = PromptOptions::default();
    let tool_mode = match prefix.tool_mode.0 {
        Some(Word(ToolModeText::Identity)) => ToolMode::Identity,
        Some(Word(ToolModeText::None)) => ToolMode::None,
        Some(Word(ToolModeText::Full)) => ToolMode::Full,
        None if weighted => ToolMode::Identity,
        None => default.tool_mode,
    };
    let ignore = ignore
        .0
        .iter()
        .flat_map(|entries| &entries.0)
        .filter_map(|entry| {
            Some(IgnorePattern {
                prefix: entry.0.prefix.0.clone(),
                class: pattern::char_class(&entry.0.class.0)?,
                max_chars: entry
                    .0
                    .max
                    .0
                    .and_then(|max| u16::try_from(max.get()).ok())
                    .unwrap_or(64),
            })
        })
        .collect();
    Ok(PromptOptions {
        block_bytes,
        max_blocks,
        max_body_bytes: text
            .limits
            .fields()
            .max_request_body_bytes
            .0
            .map_or(default.max_body_bytes, Whole::get_u32),
        tool_mode,
        ignore,
        isolation_header: isolation_header.0.map(|HeaderName(header)| header),
    })
}

/// Bytes of a block, and blocks of a prompt.
fn blocks(
    prefix: &PrefixText,
    block: &BlockText,
    weighted: bool,
    refuse: Refuse,
) -> Result<(u32, u32), ConfigError> {
    let size_tokens = &prefix.block_size_tokens;
    refuse.twice(
        "block.bytes",
        block.bytes.0.is_some(),
        "prefix.blockSizeTokens",
        size_tokens,
    )?;
    refuse.twice(
        "block.max",
        block.max.0.is_some(),
        "prefix.maxBlocks",
        &prefix.max_blocks,
    )?;
    let default = PromptOptions::default();
    let meant_bytes = BLOCK_SIZE_TOKENS * BYTES_PER_TOKEN;
    let given_bytes = block
        .bytes
        .0
        .map(Whole::get_u32)
        .or(size_tokens.0.map(|size| size.get_u32() * BYTES_PER_TOKEN));
    let bytes = given_bytes.unwrap_or(if weighted {
        meant_bytes
    } else {
        default.block_bytes
    });
    // Without a block size, `prefix.maxBlocks` counts blocks of 1024 tokens: the same length of prompt.
    let finer = if given_bytes.is_some() {
        1
    } else {
        meant_bytes / bytes.max(1)
    };
    let max = match (block.max.0, prefix.max_blocks.0) {
        (Some(max), _) => max.get_u32(),
        (None, Some(max)) => max.get_u32() * finer,
        (None, None) if weighted => WEIGHTED_MAX_BLOCKS,
        (None, None) => default.max_blocks,
    };
    Ok((bytes, max))
}

fn index(text: &ConfigText, weighted: bool, refuse: Refuse) -> Result<IndexOptions, ConfigError> {
    let IndexText {
        capacity_tokens,
        max_pairs,
        ttl_seconds,
    } = text.index.fields();
    let cache_blocks = text.prefix.fields().max_cache_blocks_per_endpoint;
    let given = capacity_tokens.0.is_some();
    refuse.twice(
        "index.capacityTokens",
        given,
        "prefix.maxCacheBlocksPerEndpoint",
        &cache_blocks,
    )?;
    let default = IndexOptions::default();
    let cache_blocks = match cache_blocks.0 {
        Some(blocks) => Some(blocks.get()),
        None if weighted && !given => Some(WEIGHTED_MAX_CACHE_BLOCKS),
        None => None,
    };
    let default_capacity_tokens = match (capacity_tokens.0, cache_blocks) {
        (Some(tokens), _) => tokens.get(),
        (None, Some(blocks)) => blocks * TOKENS_PER_ENGINE_BLOCK,
        (None, None) => default.default_capacity_tokens,
    };
    Ok(IndexOptions {
        default_capacity_tokens,
        max_engine_blocks: cache_blocks.unwrap_or(default.max_engine_blocks),
        max_pairs: max_pairs.0.map_or(default.max_pairs, Whole::get_u32),
        ttl: ttl_seconds
            .0
            .map_or(default.ttl, |seconds| Duration::from_secs(seconds.get())),
    })
}

fn metrics(text: &MetricsText, refuse: Refuse) -> Result<MetricsOptions, ConfigError> {
    let default = MetricsOptions::default();
    let options = MetricsOptions {
        refresh: millis(&text.refresh_ms, default.refresh),
        stale_after: millis(&text.stale_after_ms, default.stale_after),
        path: text
            .path
            .0
            .clone()
            .map_or(default.path, |UrlPath(path)| path),
        timeout: millis(&text.timeout_ms, default.timeout),
    };
    if options.stale_after < options.refresh {
        return Err(refuse.key(
            "metrics.staleAfterMs",
            options.stale_after.as_millis().to_string(),
            "below metrics.refreshMs",
            "use at least metrics.refreshMs",
        ));
    }
    Ok(options)
}

fn endpoints(text: EndpointsText, refuse: Refuse) -> Result<EndpointSource, ConfigError> {
    match (text.admin.0, text.fixed.0, text.header.0) {
        (None, None, None) => Ok(EndpointSource::Gateway),
        (Some(admin), None, None) => Ok(EndpointSource::Admin {
            cluster: admin.0.cluster.0,
            of: admin.0.of.0.map(|names| names.0).unwrap_or_default(),
        }),
        (None, Some(list), None) => fixed(list.0, refuse).map(EndpointSource::Static),
        (None, None, Some(HeaderName(header))) => {
            if header == "x-gateway-destination-endpoint" {
                let reason = "the header of the pick itself, removed from every request";
                return Err(refuse.key("endpoints.header", header, reason, "use another header"));
            }
            Ok(EndpointSource::Header(header))
        }
        _ => Err(refuse.key(
            "endpoints",
            "",
            "more than one source",
            "keep one of admin, static, header",
        )),
    }
}

fn fixed(addresses: Vec<Address>, refuse: Refuse) -> Result<Vec<StaticEndpoint>, ConfigError> {
    let mut seen = hashbrown::HashSet::new();
    for (place, Address(address)) in addresses.iter().enumerate() {
        if !seen.insert(address.as_str()) {
            let key = format!("endpoints.static[{place}]");
            return Err(refuse.key(&key, address.as_str(), "listed twice", "remove one"));
        }
    }
    drop(seen);
    Ok(addresses
        .into_iter()
        .map(|Address(address)| StaticEndpoint { address })
        .collect())
}

fn session(text: SessionText) -> SessionOptions {
    let default = SessionOptions::default();
    SessionOptions {
        header: text
            .header
            .0
            .map_or(default.header, |HeaderName(header)| header),
        mode: match text.mode.0 {
            Some(Word(SessionModeText::Soft)) => SessionMode::Soft,
            Some(Word(SessionModeText::Strict)) => SessionMode::Strict,
            None => default.mode,
        },
    }
}
