//! The gateway's side: callbacks in, host calls out. The only place that names `proxy_wasm`.
//!
//! ```text
//! root        one plugin configuration in one VM: engines by rule, ticks
//! stream      one request: callbacks -> session, its steps -> the gateway
//! gateway     what Envoy and Higress do differently (one of two files, by feature)
//! abi         host calls, each total
//! calls       calls that are out, by the gateway's number for them
//! metrics     counts handed on
//! headers     what both are asked for alike
//! scraper     discovery's calls, where the gateway lists no endpoints (Envoy)
//! exchange    what workers tell each other
//! handover    what a VM leaves to the next
//! replicas    what the leading VM tells the other replicas, and hears from them
//! debug_page  what a worker knows, for people
//! shared      this VM among those of its process
//! ```
//!
//! Invariants: nothing here panics; a host call that fails is counted and the request goes on without us.

mod abi;
mod calls;
mod debug_page;
mod exchange;
mod handover;
mod headers;
mod metrics;
mod replicas;
mod root;
mod shared;
mod stream;

#[cfg(feature = "envoy")]
#[path = "gateway_envoy.rs"]
mod gateway;
#[cfg(feature = "higress")]
#[path = "gateway_higress.rs"]
mod gateway;
#[cfg(feature = "envoy")]
mod scraper;

use crate::clock::Millis;

#[cfg(all(feature = "envoy", feature = "higress"))]
compile_error!("one artifact, one gateway: build with the feature envoy or with higress");

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(root::Root::new(id)));
}}

fn now() -> Millis {
    Millis(abi::now_ns() / 1_000_000)
}
