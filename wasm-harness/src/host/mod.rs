//! A proxy-wasm host on wasmtime: runs the built plugin as Envoy and Higress would.
//!
//! [`Artifact`] is a compiled module; a [`Gateway`] is one gateway process (clock, clusters, shared
//! data, metrics); a [`Vm`] is one worker's (or the main thread's) copy of the plugin in it, with its
//! streams. The test plays client, upstream and clock; the host plays the filter chain between them.
//!
//! Invariants
//! - strict: an import that the profile's gateway lacks is an error that names it;
//! - no globals: a VM's state lives in its wasmtime store, what VMs share in the gateway's lock;
//! - deterministic: time moves only when the test moves it.
//!
//! Cost: compiling dominates (once an artifact); a VM is an instantiation.

mod artifact;
mod call;
mod chain;
mod drive;
mod functions;
mod gateway;
mod observe;
mod pairs;
mod redis;
mod reply;
mod state;
mod status;
mod store;
mod stream;
mod table;
mod vm;

pub(crate) use functions::higress::host_list;

pub use artifact::{Abi, Artifact};
pub use gateway::{ClusterState, Gateway, Health, Options, Profile, UpstreamHost};
pub use pairs::{HeaderMap, header, header_map};
pub use state::{Callout, Fault, FuelUse, LogLine, Nth, RedisCall};
pub use status::Status;
pub use stream::{LocalReply, Passed, Seen, StreamId, StreamSpec};
pub use vm::{HostError, Thread, Trap, Vm, VmOptions};
