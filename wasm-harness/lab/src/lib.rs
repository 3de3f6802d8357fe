//! Engine simulators, workloads and a real Envoy.

pub mod client;
pub mod engine_sim;
pub mod envoy;
pub mod gateway;
pub mod play;
pub mod report;
pub mod run;
pub mod serve;
pub mod stage;
pub mod workload;

use std::path::PathBuf;

/// A body's identity in logs and comparisons: xxh3-128 in hex.
pub fn digest(body: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(body))
}

/// The root of the source tree this was built from.
pub fn tree_root() -> PathBuf {
    let lab = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors().nth(2).map(PathBuf::from).unwrap_or(lab)
}
