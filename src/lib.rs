//! warmroute: a KV-cache-aware endpoint picker for LLM serving, as one proxy-wasm HTTP filter.
//!
//! One request's way, one direction; no module reaches back:
//!
//! ```text
//! callback -> host -> session -> request    body -> prompt: framed, hashed in blocks
//!                        |    -> prefix     blocks -> how much of them each endpoint holds
//!                        |    -> endpoints  health, engine load, our own counts
//!                        |    -> pick       filter, cost, choice
//!                        v
//!                     Decision -> host applies it (override, headers, counters)
//! response -> host -> session -> response   first token, usage, load headers
//!                        |    -> learn      rates, trust
//!                        v
//!                     records confirmed, corrected, released
//! ```
//!
//! Everything outside [`host`] is plain Rust: no clock, no randomness, no logging, no globals.
//! Time comes in as [`clock::Millis`], randomness as a seeded [`fastrand::Rng`].

// Nothing in a gateway's worker may panic: a trap is an error page for that user and costs the
// worker everything it has learned.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )
)]

pub mod byte_mask;
pub mod clock;
pub mod config;
pub mod discovery;
pub mod endpoints;
pub mod engine;
pub mod exchange;
pub mod fallback;
pub mod learn;
mod number;
pub mod overload;
pub mod pick;
pub mod pool;
pub mod prefix;
pub mod raw_json;
pub mod replicas;
pub mod report;
pub mod request;
pub mod response;
pub mod session;
pub mod telemetry;

#[cfg(any(feature = "envoy", feature = "higress"))]
mod host;
