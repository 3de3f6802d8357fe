//! Runners of scenarios: on the core, natively, and on the artifact, in the harness. What a scenario is,
//! and how an outcome is compared with it, is in `warmroute-scenario`; the runner on a real Envoy is in the
//! lab.

mod answers;
mod harness;
mod native;

use std::collections::BTreeMap;

pub use warmroute_scenario::{
    Action, Body, Callouts, Difference, Expect, GatewayKind, GatewaySetup, Health, Host, Levels,
    Message, Outcome, Pick, Request, RequestOutcome, Response, Run, Scenario, Step, Vllm, check,
    files,
};

pub use harness::run_in_harness;
pub use native::run_native;

use crate::host::HeaderMap;

fn header_pairs(first: &[(&str, &str)], more: &BTreeMap<String, String>) -> HeaderMap {
    let mut map = crate::host::header_map(first);
    let more = more.iter().filter(|(name, _)| *name != ":authority");
    map.extend(more.map(|(name, value)| {
        (
            name.to_ascii_lowercase().into_bytes(),
            value.clone().into_bytes(),
        )
    }));
    map
}
