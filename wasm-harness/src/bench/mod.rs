//! What the shipped plugin costs, in wasm instructions (wasmtime's fuel), and how long that takes.
//!
//! Each case warms a VM up with its own request and then measures the same request once more: fuel does not
//! vary between runs. Where a host call hands bytes over, the guest's part of it is counted, the host's is not.
//!
//! A request's callbacks are measured on the plugins of `dist/`. One of them matches, picks and records, so these
//! parts are measured apart as well, by a module that has nothing else in it ([`parts`]).
//!
//! `bench` prints the cases and holds them against `benches/budget.json`; the test `budget` does the latter alone.

pub mod body;
pub mod budget;
pub mod case;
pub mod fleet;
pub mod memory;
pub mod native;
pub mod parts;
pub mod report;
