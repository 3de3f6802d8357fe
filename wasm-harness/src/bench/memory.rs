//! Linear memory under a stream of prompts that never repeat.

use anyhow::Result;
use serde::Serialize;

use super::body::{Text, body};
use super::case::{Case, Driver};
use crate::host::{Artifact, Profile};

/// Few enough that a second's pairs are a small part of all, and a listing is seldom due.
const REQUESTS_A_SECOND: usize = 32;

/// A run: so many requests, each with a prompt of its own.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Endpoints.
    pub hosts: usize,
    /// Of each body.
    pub bytes: usize,
    /// Requests before the index is full.
    pub filling: usize,
    /// Requests in all.
    pub requests: usize,
}

impl Run {
    /// Prompts of about 80 blocks on 8 endpoints, half of them before the second look.
    #[must_use]
    pub fn short_prompts(requests: usize) -> Self {
        Self {
            hosts: 8,
            bytes: 20 << 10,
            filling: requests / 2,
            requests,
        }
    }
}

/// Linear memory over a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Requests with a new prompt each.
    pub requests: usize,
    /// After the first request.
    pub first_bytes: usize,
    /// After the requests that fill the index.
    pub full_bytes: usize,
    /// At its end.
    pub last_bytes: usize,
    /// (block, endpoint) pairs at its end, as the plugin's gauge tells.
    pub pairs: u64,
    /// Pairs that had to go for others.
    pub evicted: u64,
}

/// Sends the run's prompts.
///
/// # Errors
/// The plugin does not come up, traps, or leaves a request to the gateway.
pub fn measure(artifact: &Artifact, run: Run) -> Result<Memory> {
    let case = Case {
        gateway: Profile::Higress,
        hosts: run.hosts,
        text: Text::Ascii,
        bytes: run.bytes,
    };
    let mut driver = Driver::new(artifact, &case)?;
    let mut memory = Memory {
        requests: run.requests,
        first_bytes: 0,
        full_bytes: 0,
        last_bytes: 0,
        pairs: 0,
        evicted: 0,
    };
    let rest = body(Text::Ascii, case.bytes, 1);
    for n in 0..run.requests {
        // What was used longest ago has to be known: some time goes by.
        if n % REQUESTS_A_SECOND == 0 {
            driver.advance(1_000);
        }
        // Another head is another chain of blocks.
        driver.body.clone_from(&rest);
        let head = format!("user {n:08}");
        if let Some(at) = find(&driver.body, b"You are a hel") {
            driver.body[at..at + head.len()].copy_from_slice(head.as_bytes());
        }
        driver.request()?;
        let bytes = driver.vm.memory_bytes();
        if n == 0 {
            memory.first_bytes = bytes;
        }
        if n <= run.filling {
            memory.full_bytes = bytes;
        }
        memory.last_bytes = bytes;
    }
    driver.vm.tick()?;
    memory.pairs = driver.metric("warmroute_index_pairs");
    memory.evicted = driver.metric("warmroute_index_evicted_pairs_total");
    Ok(memory)
}

fn find(body: &[u8], text: &[u8]) -> Option<usize> {
    body.windows(text.len()).position(|window| window == text)
}
