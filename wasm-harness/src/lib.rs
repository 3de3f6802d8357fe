//! A wasmtime host for the built plugin.

pub mod bench;
pub mod built;
pub mod host;
pub mod replay;
pub mod scenario;
