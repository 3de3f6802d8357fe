//! Who may be picked at all.
//!
//! A mark never lasts by itself: health and draining come from the gateway, a cooldown ends at its
//! time, and what is unknown excludes nobody.

use crate::clock::Millis;

/// What decides whether an endpoint may be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The gateway holds it healthy.
    pub healthy: bool,
    /// It is about to leave.
    pub draining: bool,
    /// It is in the request's subset, or there is none.
    pub in_subset: bool,
    /// Whether it serves the request's model or adapter; `None` = not known.
    pub serves_model: Option<bool>,
    /// When it may be tried again after consecutive failures.
    pub cooling_until: Option<Millis>,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            healthy: true,
            draining: false,
            in_subset: true,
            serves_model: None,
            cooling_until: None,
        }
    }
}

/// Why an endpoint is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Excluded {
    /// The gateway holds it unhealthy.
    Unhealthy,
    /// It is about to leave.
    Draining,
    /// Outside the request's subset.
    NotInSubset,
    /// It serves other models.
    WrongModel,
    /// It failed too often just now.
    CoolingDown,
}

/// Whether an endpoint is a candidate at `now`.
///
/// # Errors
/// The first reason against it.
pub fn eligible(standing: &Standing, now: Millis) -> Result<(), Excluded> {
    if !standing.healthy {
        Err(Excluded::Unhealthy)
    } else if standing.draining {
        Err(Excluded::Draining)
    } else if !standing.in_subset {
        Err(Excluded::NotInSubset)
    } else if standing.serves_model == Some(false) {
        Err(Excluded::WrongModel)
    } else if standing.cooling_until.is_some_and(|until| now < until) {
        Err(Excluded::CoolingDown)
    } else {
        Ok(())
    }
}
