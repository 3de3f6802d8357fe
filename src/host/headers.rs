//! Headers and properties that all gateways are asked for alike.

use super::abi::{self, Map};
use super::gateway;
use crate::config::{Config, EndpointSource};
use crate::endpoints::load::Load;
use crate::response::orca;
use crate::session::Head;

/// The header that says where a request goes (Endpoint Picker Protocol 1.0).
pub const PICK_HEADER: &str = "x-gateway-destination-endpoint";
/// The header that narrows the choice.
pub const SUBSET_HEADER: &str = "x-gateway-destination-endpoint-subset";
/// The header that says who computes the prompt (llm-d).
const PREFILL_HEADER: &str = "x-prefiller-host-port";
/// Asks an engine for its load, and its answer (ORCA).
const LOAD_FORMAT_HEADER: &str = "endpoint-load-metrics-format";
const LOAD_HEADER: &str = "endpoint-load-metrics";

/// Where a request is going, as the route says.
pub struct Position {
    pub route: Vec<u8>,
    pub cluster: String,
    pub authority: Vec<u8>,
    pub consumer: Vec<u8>,
}

impl Position {
    /// Reads it; route, authority and consumer only where rules ask for them.
    pub fn read(has_rules: bool) -> Self {
        let cluster = abi::property(gateway::CLUSTER_PROPERTY).unwrap_or_default();
        let for_rules = |value: fn() -> Option<Vec<u8>>| {
            if has_rules {
                value().unwrap_or_default()
            } else {
                Vec::new()
            }
        };
        Self {
            route: for_rules(|| abi::property(gateway::ROUTE_PROPERTY)),
            cluster: String::from_utf8_lossy(&cluster).into_owned(),
            authority: for_rules(|| abi::header(Map::RequestHeaders, ":authority")),
            consumer: for_rules(|| abi::header(Map::RequestHeaders, "x-mse-consumer")),
        }
    }
}

/// Request headers that a session reads.
pub struct Values {
    method: Vec<u8>,
    path: Vec<u8>,
    content_length: Option<u64>,
    encoded: bool,
    upgrade: bool,
    isolation: Option<Vec<u8>>,
    session: Option<Vec<u8>>,
    subset: Option<Vec<u8>>,
    candidates: Option<Vec<u8>>,
    priority: Option<Vec<u8>>,
    profile: Option<Vec<u8>>,
}

impl Values {
    /// Reads those that a configuration asks for; takes away the one that only we are to read.
    pub fn read(config: &Config) -> Self {
        let value = |name: &str| abi::header(Map::RequestHeaders, name);
        let named = |name: Option<&String>| value(name?);
        let candidates = match &config.endpoints {
            EndpointSource::Header(name) => value(name),
            _ => None,
        };
        let profile = config.profiles.as_ref().and_then(|it| take(&it.header));
        Self {
            method: value(":method").unwrap_or_default(),
            path: value(":path").unwrap_or_default(),
            content_length: value("content-length")
                .and_then(|text| core::str::from_utf8(&text).ok()?.parse().ok()),
            encoded: value("content-encoding")
                .is_some_and(|value| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")),
            upgrade: value("upgrade").is_some(),
            isolation: named(config.prompt.isolation_header.as_ref()),
            session: value(&config.session.header),
            subset: value(SUBSET_HEADER),
            candidates,
            priority: named(config.overload.as_ref().map(|it| &it.priority_header)),
            profile,
        }
    }

    /// The same as the session takes it.
    pub fn head(&self, end_of_stream: bool) -> Head<'_> {
        Head {
            method: &self.method,
            path: &self.path,
            content_length: self.content_length,
            encoded: self.encoded,
            upgrade: self.upgrade,
            end_of_stream,
            isolation: self.isolation.as_deref(),
            session: self.session.as_deref(),
            subset: self.subset.as_deref(),
            candidates: self.candidates.as_deref(),
            priority: self.priority.as_deref(),
            profile: self.profile.as_deref(),
        }
    }
}

/// Takes a request header away; its value, if it was there.
fn take(name: &str) -> Option<Vec<u8>> {
    let value = abi::header(Map::RequestHeaders, name)?;
    gateway::keep_route();
    let _ = abi::remove_header(Map::RequestHeaders, name);
    Some(value)
}

/// Takes away picks, such as those that a client sent: nothing behind this gateway may take them for ours.
pub fn strip_picks() {
    take(PICK_HEADER);
    take(PREFILL_HEADER);
}

/// Says who computes the prompt.
pub fn name_prefill(address: &str) -> Result<(), abi::Status> {
    gateway::keep_route();
    abi::set_header(Map::RequestHeaders, PREFILL_HEADER, address.as_bytes())
}

/// Asks the engine for its load; `true` when the client had not asked itself.
pub fn ask_for_load() -> bool {
    if abi::header(Map::RequestHeaders, LOAD_FORMAT_HEADER).is_some() {
        return false;
    }
    gateway::keep_route();
    abi::set_header(Map::RequestHeaders, LOAD_FORMAT_HEADER, b"JSON").is_ok()
}

/// What the engine said of its load; taken out of the answer when the client did not ask.
pub fn told_load(client_asked: bool) -> Option<Load> {
    let value = abi::header(Map::ResponseHeaders, LOAD_HEADER)?;
    if !client_asked {
        let _ = abi::remove_header(Map::ResponseHeaders, LOAD_HEADER);
    }
    orca::parse(&value)
}
