//! Endpoints: who they are, how they feel, what we sent them.

pub mod admin_clusters;
pub mod cooldown;
pub mod dialect;
pub mod endpoint;
pub mod gateway_hosts;
pub mod load;
pub mod own;
pub mod role;
pub mod scan;
pub mod snapshot;
pub mod table;

/// An endpoint's place in a pool's tables: stable while the endpoint is there, reused after it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// Endpoints that one pool may hold.
pub const MAX_ENDPOINTS: usize = 1024;
