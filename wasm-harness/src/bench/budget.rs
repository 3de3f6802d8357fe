//! The committed budget: what each case may cost, and what it cost when that was written down.
//!
//! `allowed` is a promise and set by hand; `measured` follows the code. A figure over `allowed` is a
//! regression that users would feel. One that left [`DRIFT`] around `measured` asks for a look, and for
//! `make bench UPDATE=1`. Another compiler, or a plugin that wasm-opt has not been over, gives other figures:
//! `allowed` holds for them too, `measured` does not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::case::{Case, Cost};
use super::parts::{PartCost, PartsModule};
use crate::built::{artifact, tree};
use crate::host::Profile;

/// How far a figure may leave the one written down.
const DRIFT: f64 = 0.05;
/// What a new row is allowed, as a multiple of what it costs.
const ROOM: f64 = 1.25;

/// A figure and its bound, wasm instructions.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// At most.
    pub allowed: u64,
    /// Lately.
    pub measured: u64,
}

/// The budget file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Budget {
    /// How the plugin was built that `measured` is about.
    pub built_with: String,
    /// By case and figure.
    pub rows: BTreeMap<String, Row>,
}

/// A case and what it costs.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Of the plugin.
    pub cost: Cost,
    /// Of the core's parts, each by itself.
    pub parts: PartCost,
}

/// Every case with what it costs.
///
/// # Errors
/// As [`Case::measure`] and [`PartsModule::measure`].
pub fn measure_all() -> Result<Vec<Measured>> {
    let (envoy, higress) = (artifact(Profile::Envoy)?, artifact(Profile::Higress)?);
    let parts = PartsModule::load()?;
    let measure = |case: Case| -> Result<Measured> {
        let artifact = match case.gateway {
            Profile::Envoy => &envoy,
            Profile::Higress => &higress,
        };
        Ok(Measured {
            case,
            cost: case.measure(artifact)?,
            parts: parts.measure(&case)?,
        })
    };
    Case::all()
        .into_iter()
        .map(|case| measure(case).with_context(|| case.name()))
        .collect()
}

/// The figures that the budget is about, with their rows' names. A part's row is named by what it depends on.
#[must_use]
pub fn figures(all: &[Measured]) -> Vec<(String, u64)> {
    let mut figures = BTreeMap::new();
    for Measured { case, cost, parts } in all {
        let (name, body) = (case.name(), case.body_name());
        let held = format!("{} hosts, {body}", case.hosts);
        for (of, part, figure) in [
            (&body, "parse", Some(parts.parse)),
            (&body, "hash", Some(parts.hash)),
            (&held, "match", Some(parts.find)),
            (&held, "record", Some(parts.record)),
            (&name, "whole", Some(cost.whole)),
            (&name, "response", Some(cost.response)),
            (&name, "refresh", cost.refresh),
            (&name, "first listing", cost.first),
            (&name, "worst listing", cost.worst),
        ] {
            figures.extend(figure.map(|figure| (format!("{of}: {part}"), figure)));
        }
    }
    figures.into_iter().collect()
}

impl Budget {
    fn path() -> PathBuf {
        tree().join("benches/budget.json")
    }

    /// Reads the committed file.
    ///
    /// # Errors
    /// It is not there, or not a budget.
    pub fn load() -> Result<Self> {
        let text = std::fs::read_to_string(Self::path()).context("benches/budget.json")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes down what things cost now; bounds stay, but for rows that are new.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn update(&mut self, figures: &[(String, u64)], built_with: &str) -> Result<()> {
        let before = std::mem::take(&mut self.rows);
        built_with.clone_into(&mut self.built_with);
        for (name, measured) in figures {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss
            )]
            let room = (*measured as f64 * ROOM / 1000.0).ceil() as u64 * 1000;
            let allowed = before.get(name).map_or(room, |row| row.allowed);
            self.rows.insert(
                name.clone(),
                Row {
                    allowed,
                    measured: *measured,
                },
            );
        }
        std::fs::write(Self::path(), serde_json::to_string_pretty(self)? + "\n")
            .context("benches/budget.json")
    }

    /// What is wrong with the figures; `exact` when the plugin was built as the budget says.
    #[must_use]
    pub fn faults(&self, figures: &[(String, u64)], exact: bool) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, figure) in figures {
            let Some(row) = self.rows.get(name) else {
                faults.push(format!(
                    "{name}: not in benches/budget.json; `make bench UPDATE=1` adds it"
                ));
                continue;
            };
            #[allow(clippy::cast_precision_loss)]
            let drift = (*figure as f64 - row.measured as f64).abs() / row.measured as f64;
            if *figure > row.allowed {
                faults.push(format!(
                    "{name}: {figure} instructions, over the budget of {}",
                    row.allowed
                ));
            } else if exact && drift > DRIFT {
                faults.push(format!(
                    "{name}: {figure} instructions, {} are written down; `make bench UPDATE=1` if that is meant",
                    row.measured
                ));
            }
        }
        let gone = self
            .rows
            .keys()
            .filter(|name| !figures.iter().any(|(figure, _)| figure == *name));
        faults
            .extend(gone.map(|name| format!("{name}: in benches/budget.json, but no case has it")));
        faults
    }
}
