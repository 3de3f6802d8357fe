//! Headers and properties that all gateways are asked for alike.

use super::abi::{self, Map};
use super::gateway;
use crate::endpoints::load::Load;
use crate::response::orca;

/// The header that says where a request goes (Endpoint Picker Protocol 1.0).
pub const PICK_HEADER: &str = "x-gateway-destination-endpoint";
/// The header that narrows the choice.
pub const SUBSET_HEADER: &str = "x-gateway-destination-endpoint-subset";
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

/// Takes away a pick that the client itself sent: nothing behind this gateway may take it for ours.
pub fn strip_client_pick() {
    if abi::header(Map::RequestHeaders, PICK_HEADER).is_some() {
        gateway::keep_route();
        let _ = abi::remove_header(Map::RequestHeaders, PICK_HEADER);
    }
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
