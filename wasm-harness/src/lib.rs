//! A wasmtime host for the built plugin.

pub mod host;
pub mod scenario;
