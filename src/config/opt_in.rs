//! What is off until it is configured: saying no under overload, profiles by request, disaggregated
//! prefill, the page of what a worker knows, one view over replicas. Its text, what it means, and what other modules read of it.

use core::time::Duration;

use serde::Deserialize;

use super::error::{ConfigError, Refuse};
use super::resolve::millis;
use super::text::{ConfigText, ProfileText};
use super::value::{
    Given, HeaderName, List, Literal, Member, Name, SecretText, Section, Share, UrlPath, Whole,
    Word,
};
use super::{EndpointSource, PickOptions, Profile, Weights};
use crate::endpoints::role::Role;

/// When requests are answered 429 or 503 instead of being sent on.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadOptions {
    /// Requests waiting in an engine; more are too many.
    pub queue_depth: u32,
    /// Share of the KV cache in use; more is too much (0..=1).
    pub kv_use: f64,
    /// Request header (lower case) that tells a request's priority.
    pub priority_header: String,
}

/// Profiles that a request may ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileChoice {
    /// Request header (lower case) that names one; taken away.
    pub header: String,
    /// By name, each with the options to pick by.
    pub allow: Vec<(&'static str, PickOptions)>,
}

/// Endpoints that compute prompts for others.
#[derive(Clone, Debug, PartialEq)]
pub struct Disaggregation {
    /// Addresses or names of these.
    pub prefill: Vec<String>,
    /// Those that answer; empty = all that are not in `prefill`.
    pub decode: Vec<String>,
    /// Shorter uncached parts are computed where the answer is.
    pub min_uncached_tokens: u32,
}

impl Disaggregation {
    /// What an endpoint that is known by these (its address, its name, its label; empty = none) is for.
    pub fn role(&self, known_by: &[&str]) -> Role {
        let is_in = |list: &[String]| list.iter().any(|one| known_by.contains(&one.as_str()));
        let prefills = is_in(&self.prefill);
        Role {
            decodes: if self.decode.is_empty() {
                !prefills
            } else {
                is_in(&self.decode)
            },
            prefills,
        }
    }
}

/// Where the plugin shows what it knows, and to whom.
#[derive(Clone, Debug, PartialEq)]
pub struct DebugPage {
    /// Path; a query may follow it.
    pub path: String,
    /// Who knows it may read; `None` = only who is on the same machine.
    pub secret: Option<Secret>,
}

/// A text that no message shows.
#[derive(Clone, Default, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// From its text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for whom it is meant.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether `given` is it. How long this takes tells its length at most.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        let bytes = self.0.bytes().zip(given);
        let differing = bytes.fold(0, |all, (one, other)| {
            core::hint::black_box(all | (one ^ other))
        });
        differing == 0 && given.len() == self.0.len()
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, out: &mut core::fmt::Formatter) -> core::fmt::Result {
        out.write_str("Secret")
    }
}

/// What to do when all endpoints are full.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OverloadText {
    /// `shed`: while every endpoint that can be picked is past a limit, by figures younger than a third of `metrics.staleAfterMs`, requests of negative priority are answered 429; where none can be picked, all are answered 503. `none`: the plugin never answers itself.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "none")))]
    pub mode: Given<Word<OverloadModeText>>,
    /// Requests waiting in an engine; with more it is past its limit.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 5)))]
    pub queue_depth: Given<Whole<0, 100_000>>,
    /// Share of the KV cache in use; with more it is past its limit.
    #[cfg_attr(feature = "schema", schemars(extend("default" = 0.8)))]
    pub kv_use: Given<Share>,
    /// Request header that tells the priority: a number below 0, or `sheddable`, can be turned away. Without it a request cannot.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "x-request-priority")))]
    pub priority_header: Given<HeaderName>,
}

/// Whether the plugin answers itself.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum OverloadModeText {
    None,
    Shed,
}

/// Profiles that a request may ask for.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfilesText {
    /// The profiles. `default` and `balanced` take the weights of the configuration where it is a weighted sum itself, else that plugin's; blocks of a prompt stay those of the configuration.
    pub allow: List<Word<ProfileText>, 1, 3>,
    /// Request header that names one; engines do not get it. Any other value is ignored and counted.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "x-warmroute-profile")))]
    pub header: Given<HeaderName>,
}

/// Endpoints that compute prompts for others.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DisaggregationText {
    /// Endpoints that compute prompts for others, by address; with `endpoints.admin` also by the `hostname` that Envoy's admin interface lists (the one in the endpoint's configuration, or the DNS name that it was resolved from), or by the `sub_zone` of its locality as a label of its role. `x-prefiller-host-port` tells the endpoint that answers which of them.
    pub prefill: List<Member, 1, 1024>,
    /// Endpoints that answer. Not given: all that are not in `prefill`.
    #[serde(default)]
    pub decode: Given<List<Member, 1, 1024>>,
    /// Prompts with fewer tokens that the answering endpoint lacks are computed there.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 1024)))]
    pub min_uncached_tokens: Given<Whole<0, 1_000_000>>,
}

pub(super) fn overload(text: OverloadText) -> Option<OverloadOptions> {
    matches!(text.mode.0, Some(Word(OverloadModeText::Shed))).then(|| OverloadOptions {
        queue_depth: text.queue_depth.0.map_or(5, Whole::get_u32),
        kv_use: text.kv_use.0.map_or(0.8, |share| share.0),
        priority_header: name(text.priority_header, "x-request-priority"),
    })
}

pub(super) fn profiles(
    text: &Section<ProfilesText>,
    pick: &PickOptions,
    refuse: Refuse,
) -> Result<Option<ProfileChoice>, ConfigError> {
    let Some(text) = &text.0 else {
        return Ok(None);
    };
    let weighted = match &pick.profile {
        Profile::Cost => Profile::Weighted(Weights::default()),
        weighted => weighted.clone(),
    };
    let mut allow = Vec::new();
    for Word(profile) in &text.0.allow.0 {
        let (name, profile) = match profile {
            ProfileText::Cost => ("cost", Profile::Cost),
            ProfileText::Default => ("default", weighted.clone()),
            ProfileText::Balanced => ("balanced", weighted.clone()),
            ProfileText::NotGiven => {
                let remedy = "name profiles: cost, default, balanced";
                return Err(refuse.key("profiles.allow", "", "an empty name", remedy));
            }
        };
        let options = PickOptions {
            profile,
            ..pick.clone()
        };
        allow.push((name, options));
    }
    Ok(Some(ProfileChoice {
        header: name(text.0.header.clone(), "x-warmroute-profile"),
        allow,
    }))
}

pub(super) fn disaggregation(
    text: &Section<DisaggregationText>,
    endpoints: &EndpointSource,
    refuse: Refuse,
) -> Result<Option<Disaggregation>, ConfigError> {
    let Some(text) = &text.0 else {
        return Ok(None);
    };
    let members = |list: &List<Member, 1, 1024>| {
        let members = list.0.iter();
        members.map(|Member(member)| member.clone()).collect()
    };
    let split = Disaggregation {
        prefill: members(&text.0.prefill),
        decode: text.0.decode.0.as_ref().map(members).unwrap_or_default(),
        min_uncached_tokens: text.0.min_uncached_tokens.0.map_or(1024, Whole::get_u32),
    };
    let mut all = split.prefill.iter().chain(&split.decode);
    match all.find(|member| !member.contains(':')) {
        Some(name) if !matches!(endpoints, EndpointSource::Admin { .. }) => {
            let reason = "names are known with endpoints.admin only";
            Err(refuse.key("disaggregation", name.as_str(), reason, "list addresses"))
        }
        _ => Ok(Some(split)),
    }
}

pub(super) fn page(
    path: Given<UrlPath>,
    secret: Given<SecretText>,
    refuse: Refuse,
) -> Result<Option<DebugPage>, ConfigError> {
    let secret = secret.0.map(|SecretText(text)| Secret(text));
    match path.0 {
        Some(UrlPath(path)) => Ok(Some(DebugPage { path, secret })),
        None if secret.is_some() => {
            let reason = "no effect without debug.path";
            Err(refuse.key("debug.secret", "", reason, "add debug.path, or remove it"))
        }
        None => Ok(None),
    }
}

fn name(given: Given<HeaderName>, default: &str) -> String {
    given
        .0
        .map_or_else(|| default.to_owned(), |HeaderName(name)| name)
}

/// The store over which replicas of a gateway share what they know.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaOptions {
    /// What it speaks.
    pub store: StoreKind,
    /// The gateway's cluster that it is.
    pub cluster: String,
    /// Time between two messages.
    pub interval: Duration,
    /// Replicas of the same group see each other (1..=512 characters).
    pub group: String,
    /// Who to be there; empty = its default user.
    pub user: String,
    /// That user's password; empty = none.
    pub password: Secret,
}

/// What a store speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Redis or Valkey.
    Redis,
    /// etcd, by its JSON gateway.
    Etcd,
}

/// A store over which the replicas of a gateway share what they know.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicasText {
    /// What the store speaks: `redis` (Redis 5 or later, Valkey) on Higress, `etcd` (3.4 or later) on stock Envoy.
    pub store: Word<StoreText>,
    /// The gateway's cluster that is the store.
    pub cluster: Name,
    /// Time between two messages of a replica, milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = 100)))]
    pub interval_ms: Given<Whole<50, 10_000>>,
    /// Replicas of the same group see each other.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "default")))]
    pub group: Given<Name>,
    /// User to be at the store. Not given: its default user.
    #[serde(default)]
    pub user: Given<Literal>,
    /// That user's password; never shown.
    #[serde(default)]
    pub password: Given<Literal>,
}

/// What a store speaks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum StoreText {
    Redis,
    Etcd,
}

pub(super) fn replicas(
    whole: &ConfigText,
    text: &ReplicasText,
    refuse: Refuse,
) -> Result<ReplicaOptions, ConfigError> {
    let Word(store) = text.store;
    let credential = |given: &Given<Literal>| given.0.clone().map(|Literal(text)| text);
    let (user, password) = (credential(&text.user), credential(&text.password));
    if whole.exchange.0.is_some_and(|switch| !switch.0) {
        return Err(refuse.key(
            "replicas",
            "",
            "needs exchange, which is off",
            "remove one of the two",
        ));
    }
    let is_given = user.is_some() || password.is_some();
    if is_given && matches!(store, StoreText::Etcd) {
        return Err(refuse.key(
            "replicas.user",
            "",
            "no users with etcd",
            "let the cluster's transport socket say who the gateway is",
        ));
    }
    Ok(ReplicaOptions {
        store: match store {
            StoreText::Redis => StoreKind::Redis,
            StoreText::Etcd => StoreKind::Etcd,
        },
        cluster: text.cluster.0.clone(),
        interval: millis(&text.interval_ms, Duration::from_millis(100)),
        group: text
            .group
            .0
            .as_ref()
            .map_or("default", |Name(group)| group)
            .to_owned(),
        user: user.unwrap_or_default(),
        password: Secret::new(password.unwrap_or_default()),
    })
}
