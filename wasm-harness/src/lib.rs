//! A wasmtime host for the built plugin.
