//! What a request's headers say, and whether its body is worth holding.

use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Engine;
use crate::fallback::Fallback;
use crate::overload;
use crate::request::{Api, BodyEnd, Prompt, PromptReader, Seed, Unreadable};
use crate::telemetry::Counter;

/// A request's headers, as far as they matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`, with its query.
    pub path: &'a [u8],
    /// `content-length`, when it is a number.
    pub content_length: Option<u64>,
    /// `content-encoding` is set to something but `identity`.
    pub encoded: bool,
    /// `upgrade` is set.
    pub upgrade: bool,
    /// No body follows.
    pub end_of_stream: bool,
    /// Value of the configured isolation header.
    pub isolation: Option<&'a [u8]>,
    /// Value of the configured session header.
    pub session: Option<&'a [u8]>,
    /// Value of the subset header: a comma list of addresses.
    pub subset: Option<&'a [u8]>,
    /// Value of the header in which a control plane passes the endpoints: a comma list of addresses.
    pub candidates: Option<&'a [u8]>,
    /// Value of the priority header.
    pub priority: Option<&'a [u8]>,
    /// Value of the header that names a profile.
    pub profile: Option<&'a [u8]>,
}

/// Addresses that a subset may name at most.
const MAX_SUBSET: usize = 1024;
/// Of a longer list of addresses only the beginning counts.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// A request whose body is being read.
pub(super) struct Reading {
    pub(super) reader: PromptReader,
    pub(super) api: Api,
    pub(super) asked: Asked,
    isolation: Option<Vec<u8>>,
    content_length: Option<u64>,
    pub(super) received: u64,
}

/// What a request asks for beside its prompt.
pub(super) struct Asked {
    pub(super) session: Option<u64>,
    pub(super) subset: Option<String>,
    pub(super) candidates: Option<String>,
    pub(super) sheddable: bool,
    /// The place of its profile among those that it may choose.
    pub(super) profile: Option<usize>,
}

/// Whether a request's body is worth holding.
pub(super) fn start(engine: &mut Engine, head: &Head<'_>) -> Result<Reading, Fallback> {
    if head.upgrade {
        return Err(Fallback::Upgrade);
    }
    if head.end_of_stream || head.method != b"POST" || head.content_length == Some(0) {
        return Err(Fallback::NoBody);
    }
    let api = Api::of_path(head.path).ok_or(Fallback::UnsupportedCall)?;
    if head.encoded {
        return Err(Fallback::Encoded);
    }
    let limit = u64::from(engine.config.prompt.max_body_bytes);
    if head.content_length.is_some_and(|length| length > limit) {
        return Err(Fallback::TooLarge);
    }
    let list = |value: &[u8]| {
        let value = value.get(..MAX_HEADER_BYTES).unwrap_or(value);
        String::from_utf8_lossy(value).into_owned()
    };
    Ok(Reading {
        reader: PromptReader::new(api, Rc::clone(&engine.plan)),
        api,
        asked: Asked {
            session: head.session.filter(|value| !value.is_empty()).map(xxh3_64),
            subset: head.subset.map(list),
            candidates: head.candidates.map(list),
            sheddable: head.priority.is_some_and(overload::is_sheddable),
            profile: head.profile.and_then(|name| profile(engine, name)),
        },
        isolation: head.isolation.map(bounded),
        content_length: head.content_length,
        received: 0,
    })
}

/// The place of the profile of this name; one that may not be chosen is counted.
fn profile(engine: &mut Engine, name: &[u8]) -> Option<usize> {
    let choice = engine.config.profiles.as_ref()?;
    let place = choice
        .allow
        .iter()
        .position(|(allowed, _)| allowed.as_bytes() == name);
    if place.is_none() {
        engine.telemetry.add(Counter::IgnoredProfiles, 1);
    }
    place
}

impl Reading {
    /// The prompt of a body that is complete, or of which no more is wanted.
    pub(super) fn finish(self, end: BodyEnd) -> Result<(Prompt, Asked), Fallback> {
        let is_short = self
            .content_length
            .is_some_and(|length| self.received < length);
        if end == BodyEnd::Complete && is_short {
            return Err(Fallback::Truncated);
        }
        let seed = Seed {
            isolation: self.isolation.as_deref(),
            model_override: None,
        };
        match self.reader.finish(seed, end) {
            Ok(prompt) => Ok((prompt, self.asked)),
            Err(Unreadable::Malformed) => Err(Fallback::Malformed),
            Err(Unreadable::NoPrompt) => Err(Fallback::NoPrompt),
        }
    }
}

pub(super) fn addresses_in(list: &str) -> Vec<&str> {
    list.split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty())
        .take(MAX_SUBSET)
        .collect()
}

/// A value to tell prompts apart by: itself, or its hash where it is very long.
fn bounded(value: &[u8]) -> Vec<u8> {
    if value.len() <= 256 {
        value.to_vec()
    } else {
        xxhash_rust::xxh3::xxh3_128(value).to_le_bytes().to_vec()
    }
}
