//! The whole of a plugin's configuration: rules, and which of them a request gets.
//!
//! The first rule that matches in the order of `_rules_` is used, else the global part, else the plugin
//! is off for the request. A rule inherits nothing. Of several kinds of matchers in one rule the first of
//! these counts, as in every Higress plugin: route (with service: both), domain, service, route prefix
//! (with consumer: both).
//!
//! Cost of `select`: one pass over the rules, a binary search in each list of routes.

use serde::Deserialize as _;

use super::Config;
use super::error::ConfigError;
use super::resolve;
use super::text::{ConfigText, MatchText};
use super::value::{Given, Object};

/// Longest configuration that is read, bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// Deepest nesting that is read. A rule's deepest key needs 6.
const MAX_DEPTH: usize = 16;

/// What a gateway hands to the plugin, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// In the order of the text.
    pub rules: Vec<Rule>,
    /// For requests that no rule matches; `None` = the plugin is off for them.
    pub global: Option<Config>,
}

/// A configuration for some of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    matcher: Matcher,
    /// What holds for them.
    pub config: Config,
}

/// Which configuration of a [`Plugin`]: a key for state that belongs to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigId(u32);

/// What a rule may ask about a request; empty = the gateway does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestPlace<'a> {
    /// The route's name.
    pub route: &'a [u8],
    /// The cluster's name: `outbound|port|subset|fqdn`, or a plain name.
    pub cluster: &'a [u8],
    /// `:authority`.
    pub authority: &'a [u8],
    /// Header `x-mse-consumer`, set by the gateway's authentication.
    pub consumer: &'a [u8],
}

#[derive(Clone, Debug, PartialEq)]
enum Matcher {
    /// Routes, sorted; services, empty = any.
    Route(Vec<String>, Vec<String>),
    Domain(Vec<Domain>),
    Service(Vec<String>),
    /// Beginnings of route names; consumers, sorted, empty = any.
    RoutePrefix(Vec<String>, Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
enum Domain {
    Exact(String),
    StartsWith(String),
    EndsWith(String),
}

impl Plugin {
    /// Reads a configuration: JSON, or nothing at all (on, with defaults).
    ///
    /// # Errors
    /// Anything unknown, out of range, contradictory, too long or too deep refuses the whole text.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(Self {
                rules: Vec::new(),
                global: Some(Config::default()),
            });
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(ConfigError::new(
                "",
                "",
                "too long",
                "use at most 1048576 bytes",
            ));
        }
        let Shape { keys, depth } = shape(text);
        if depth > MAX_DEPTH {
            return Err(ConfigError::new(
                "",
                "",
                "nested too deep",
                "nest at most 16 levels",
            ));
        }
        let (global, rules) = split(read(text)?)?;
        // The reader refuses a key that comes twice: a second one stands beside `_rules_`.
        let on = rules.is_none() || keys > 1;
        let global = if on {
            Some(resolve::config(&global, "")?)
        } else {
            None
        };
        let rules = rules.unwrap_or_default();
        if rules.is_empty() && !on {
            let remedy = "add a rule, or remove _rules_ to be on with defaults";
            return Err(ConfigError::new(
                "_rules_",
                "[]",
                "off for every request",
                remedy,
            ));
        }
        let rules = rules
            .iter()
            .enumerate()
            .map(|(place, rule)| Rule::new(&rule.0, place))
            .collect::<Result<_, _>>()?;
        Ok(Self { rules, global })
    }

    /// Which configuration a request gets; `None` = the plugin is off for it.
    #[must_use]
    pub fn select(&self, place: &RequestPlace) -> Option<ConfigId> {
        let rule = self
            .rules
            .iter()
            .position(|rule| rule.matcher.matches(place));
        match rule {
            Some(rule) => u32::try_from(rule)
                .ok()
                .map(|rule| ConfigId(rule.saturating_add(1))),
            None => self.global.as_ref().map(|_| ConfigId(0)),
        }
    }

    /// The configuration of an id that [`Self::select`] or [`Self::configs`] gave.
    #[must_use]
    pub fn get(&self, id: ConfigId) -> Option<&Config> {
        match usize::try_from(id.0).ok()?.checked_sub(1) {
            None => self.global.as_ref(),
            Some(rule) => self.rules.get(rule).map(|rule| &rule.config),
        }
    }

    /// All configurations: the global one first, when there is one, then each rule's.
    pub fn configs(&self) -> impl Iterator<Item = (ConfigId, &Config)> {
        let global = self.global.as_ref().map(|config| (ConfigId(0), config));
        let ids = (1..).map(ConfigId);
        global
            .into_iter()
            .chain(ids.zip(self.rules.iter().map(|rule| &rule.config)))
    }
}

type Rules = Option<Vec<Object<ConfigText>>>;

/// The global part and the rules apart; matchers belong into rules.
fn split(mut text: ConfigText) -> Result<(ConfigText, Rules), ConfigError> {
    let rules = text.rules.0.take().map(|list| list.0);
    let matchers = [
        ("_match_route_", &text.match_route),
        ("_match_service_", &text.match_service),
        ("_match_domain_", &text.match_domain),
        ("_match_route_prefix_", &text.match_route_prefix),
        ("_match_consumer_", &text.match_consumer),
    ];
    match matchers.iter().find(|(_, matcher)| matcher.0.is_some()) {
        Some((key, _)) => Err(ConfigError::new(
            *key,
            "",
            "stands outside a rule",
            "put it into an entry of _rules_",
        )),
        None => Ok((text, rules)),
    }
}

fn read(text: &[u8]) -> Result<ConfigText, ConfigError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let root = Object::<ConfigText>::deserialize(&mut reader)
        .map_err(|error| ConfigError::from_reader(&error, text))?;
    match reader.end() {
        Ok(()) => Ok(root.0),
        Err(error) => Err(ConfigError::new(
            "",
            "",
            error.to_string(),
            "write one JSON object",
        )),
    }
}

/// What a JSON text looks like from outside; what stands inside strings is left out.
struct Shape {
    /// Keys of the outermost object.
    keys: usize,
    /// Deepest nesting of objects and lists.
    depth: usize,
}

fn shape(text: &[u8]) -> Shape {
    let (mut depth, mut deepest, mut keys) = (0usize, 0, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 1 => keys = keys.saturating_add(1),
            _ => {}
        }
    }
    Shape {
        keys,
        depth: deepest,
    }
}

impl Rule {
    fn new(text: &ConfigText, place: usize) -> Result<Self, ConfigError> {
        let at = format!("_rules_[{place}].");
        if text.rules.0.is_some() {
            let path = format!("{at}_rules_");
            return Err(ConfigError::new(
                path,
                "",
                "a rule inside a rule",
                "put it beside the others",
            ));
        }
        Ok(Self {
            matcher: Matcher::new(text, &at)?,
            config: resolve::config(text, &at)?,
        })
    }
}

impl Matcher {
    fn new(text: &ConfigText, at: &str) -> Result<Self, ConfigError> {
        if text.match_route.0.is_some() {
            Ok(Self::Route(
                sorted(&text.match_route),
                names(&text.match_service),
            ))
        } else if text.match_domain.0.is_some() {
            Ok(Self::Domain(
                names(&text.match_domain)
                    .into_iter()
                    .map(Domain::new)
                    .collect(),
            ))
        } else if text.match_service.0.is_some() {
            Ok(Self::Service(names(&text.match_service)))
        } else if text.match_route_prefix.0.is_some() {
            Ok(Self::RoutePrefix(
                names(&text.match_route_prefix),
                sorted(&text.match_consumer),
            ))
        } else {
            let path = at.trim_end_matches('.');
            let remedy =
                "add _match_route_, _match_service_, _match_domain_ or _match_route_prefix_";
            Err(ConfigError::new(path, "", "matches nothing", remedy))
        }
    }

    fn matches(&self, place: &RequestPlace) -> bool {
        match self {
            Self::Route(routes, services) => {
                holds(routes, place.route)
                    && (services.is_empty() || service(services, place.cluster))
            }
            Self::Domain(domains) => {
                let host = without_port(place.authority);
                domains.iter().any(|domain| domain.matches(host))
            }
            Self::Service(services) => service(services, place.cluster),
            Self::RoutePrefix(prefixes, consumers) => {
                prefixes
                    .iter()
                    .any(|prefix| place.route.starts_with(prefix.as_bytes()))
                    && (consumers.is_empty() || holds(consumers, place.consumer))
            }
        }
    }
}

fn names(list: &Given<MatchText>) -> Vec<String> {
    list.0
        .iter()
        .flat_map(|list| &list.0)
        .map(|name| name.0.clone())
        .collect()
}

fn sorted(list: &Given<MatchText>) -> Vec<String> {
    let mut names = names(list);
    names.sort_unstable();
    names
}

fn holds(sorted: &[String], name: &[u8]) -> bool {
    sorted
        .binary_search_by(|entry| entry.as_bytes().cmp(name))
        .is_ok()
}

impl Domain {
    fn new(text: String) -> Self {
        if let Some(end) = text.strip_prefix('*') {
            Self::EndsWith(end.to_owned())
        } else if let Some(start) = text.strip_suffix('*') {
            Self::StartsWith(start.to_owned())
        } else {
            Self::Exact(text)
        }
    }

    fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(name) => host == name.as_bytes(),
            Self::StartsWith(start) => host.starts_with(start.as_bytes()),
            Self::EndsWith(end) => host.ends_with(end.as_bytes()),
        }
    }
}

/// The authority without its port; the colons inside `[...]` are an IPv6 address's own.
fn without_port(authority: &[u8]) -> &[u8] {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    let bracket = authority.iter().rposition(|byte| *byte == b']');
    match colon {
        Some(colon) if bracket.is_none_or(|bracket| bracket < colon) => {
            authority.get(..colon).unwrap_or(authority)
        }
        _ => authority,
    }
}

/// Whether a cluster is one of these services.
fn service(services: &[String], cluster: &[u8]) -> bool {
    let mut parts = cluster.split(|byte| *byte == b'|');
    match (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) {
        (Some(_), Some(port), Some(_), Some(fqdn), None) => services.iter().any(|service| {
            let with_port = service.rsplit_once(':');
            service.as_bytes() == fqdn
                || with_port
                    .is_some_and(|(name, of)| name.as_bytes() == fqdn && of.as_bytes() == port)
        }),
        (Some(plain), None, ..) => services.iter().any(|service| service.as_bytes() == plain),
        _ => false,
    }
}
