//! Linear memory under a stream of prompts that never repeat.

use anyhow::Result;
use serde::Serialize;

use super::body::{Text, body};
use super::case::{Case, Driver};
use crate::host::{Artifact, Profile};

/// Linear memory over a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Requests with a new prompt each.
    pub requests: usize,
    /// After the first request.
    pub first_bytes: usize,
    /// At half of the run.
    pub half_bytes: usize,
    /// At its end.
    pub last_bytes: usize,
    /// (block, endpoint) pairs at its end, as the plugin's gauge tells.
    pub pairs: u64,
}

/// Sends `requests` prompts of about 20 blocks each.
///
/// # Errors
/// The plugin does not come up, traps, or leaves a request to the gateway.
pub fn measure(artifact: &Artifact, requests: usize) -> Result<Memory> {
    let case = Case {
        gateway: Profile::Higress,
        hosts: 8,
        text: Text::Ascii,
        bytes: 20 << 10,
    };
    let mut driver = Driver::new(artifact, &case)?;
    let mut memory = Memory {
        requests,
        first_bytes: 0,
        half_bytes: 0,
        last_bytes: 0,
        pairs: 0,
    };
    let rest = body(Text::Ascii, case.bytes, 1);
    for n in 0..requests {
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
        if n == requests / 2 {
            memory.half_bytes = bytes;
        }
        memory.last_bytes = bytes;
    }
    driver.vm.tick()?;
    memory.pairs = driver.metric("warmroute_index_pairs");
    Ok(memory)
}

fn find(body: &[u8], text: &[u8]) -> Option<usize> {
    body.windows(text.len()).position(|window| window == text)
}
