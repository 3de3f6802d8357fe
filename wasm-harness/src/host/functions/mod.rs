//! The host functions, one file a group; [`super::table`] lists them with their arguments.

pub(super) mod buffers;
pub(super) mod callouts;
pub(super) mod data;
pub(super) mod headers;
pub(super) mod higress;
pub(super) mod metrics;
pub(super) mod properties;
pub(super) mod streams;
pub(super) mod system;
