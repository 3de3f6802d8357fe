//! Scenarios: one file says what happens and what must come of it, on every level.
//!
//! [`Scenario`] is the data; a runner plays it on its level (the core natively, the artifact in the
//! harness, a real Envoy) and gives an [`Outcome`]; [`check`] compares. Only a runner knows its level, so
//! the runners are elsewhere: this package needs neither wasm nor sockets.
//!
//! Invariants
//! - a level that a file does not run on has a reason;
//! - whatever a file expects, a trap, a changed body byte and a hanging request are differences unless
//!   the file names the hang.

mod body;
mod check;
mod model;
mod outcome;
mod request;

use std::path::Path;

use anyhow::Context;

pub use body::{Body, Message};
pub use check::{Difference, check};
pub use model::{
    Action, Callouts, Expect, GatewayKind, GatewaySetup, Health, Host, Levels, Run, Scenario, Step,
    Vllm,
};
pub use outcome::{Outcome, RequestOutcome, first_of};
pub use request::{Pick, Request, Response};

/// The files of `tests/scenarios` in the tree that this was built from: name without ending and text,
/// by name.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn files() -> anyhow::Result<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some(name) = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".yaml"))
        else {
            continue;
        };
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        files.push((name.to_owned(), text));
    }
    files.sort();
    Ok(files)
}
