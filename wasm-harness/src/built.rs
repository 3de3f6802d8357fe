//! What `make build` leaves in the tree, and where reports go.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::host::{Artifact, Profile};

/// The tree's root.
#[must_use]
pub fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The built plugin of a gateway.
///
/// # Errors
/// It has not been built, or cannot be compiled.
pub fn artifact(gateway: Profile) -> Result<Artifact> {
    let name = match gateway {
        Profile::Envoy => "dist/warmroute-envoy.wasm",
        Profile::Higress => "dist/warmroute-higress.wasm",
    };
    let bytes = std::fs::read(tree().join(name))
        .with_context(|| format!("{name}: run `make build` first"))?;
    Ok(Artifact::load(&bytes)?)
}

/// The place of a report, in a folder that is there.
///
/// # Errors
/// The folder cannot be made.
pub fn report(name: &str) -> Result<PathBuf> {
    let folder = tree().join("target/report");
    std::fs::create_dir_all(&folder).context("target/report")?;
    Ok(folder.join(name))
}

/// How the plugins in `dist/` were built: the compiler, and whether wasm-opt was at work.
///
/// # Errors
/// They have not been built.
pub fn built_with() -> Result<String> {
    let path = tree().join("dist/BUILT_WITH");
    let text = std::fs::read_to_string(path).context("dist/BUILT_WITH: run `make build` first")?;
    Ok(text.trim().to_owned())
}
