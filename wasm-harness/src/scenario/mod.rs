//! Scenarios: one file says what happens and what must come of it, on every level.
//!
//! [`Scenario`] is the data; a runner plays it on its level (the core natively, the artifact in the
//! harness, a real Envoy) and gives an [`Outcome`]; [`check`] compares. Only the runner knows its level.
//!
//! Invariants
//! - a level that a file does not run on has a reason;
//! - whatever a file expects, a trap, a changed body byte and a hanging request are differences unless
//!   the file names the hang.

mod answers;
mod body;
mod check;
mod model;
mod native;
mod run;

pub use body::{Body, Message};
pub use check::{Difference, check};
pub use model::{
    Action, Callouts, Expect, GatewayKind, GatewaySetup, Health, Host, Levels, Pick, Request,
    Response, Run, Scenario, Step, Vllm,
};
pub use native::run_native;
pub use run::{Outcome, RequestOutcome, run_in_harness};
