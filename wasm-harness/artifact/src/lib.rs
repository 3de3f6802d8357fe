//! Finishes a linked plugin so that its gateway can load it, and tells what a module asks and offers.
//!
//! The linker's output is one step short of a plugin:
//! - it exports the ABI version of the SDK, which is not the one that Higress needs;
//! - where a function of ours stands in for one of the SDK's, both are exported ([`TAKEOVER`]);
//! - it exports what no gateway reads, and callbacks that no HTTP filter gets;
//! - nothing has checked that the gateway has every function that the module imports. One that it
//!   lacks stops the gateway, even if it is never called.
//!
//! Sections other than exports and custom ones are copied byte for byte; functions keep their
//! indices. Cost: one pass over the module.

mod finish;
mod host;
mod module;

pub use finish::{TAKEOVER, finish};
pub use host::Host;
pub use module::Surface;
