//! The core alone, compiled for this machine: how long a prompt takes to read, match and record.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use warmroute::clock::Millis;
use warmroute::config::{IndexOptions, PromptOptions};
use warmroute::endpoints::Slot;
use warmroute::prefix::{Depths, Index, RecordState};
use warmroute::request::{Api, BodyEnd, Prompt, PromptPlan, PromptReader, Seed};

use super::body::{Text, body};

/// Runs of which the fastest counts.
const RUNS: usize = 50;
/// As a gateway hands a body over.
const PIECE_BYTES: usize = 64 << 10;

/// Nanoseconds of a prompt's parts; the prompt is one that every endpoint holds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Native {
    /// The body's size.
    pub bytes: usize,
    /// Endpoints that hold the prompt.
    pub hosts: u16,
    /// Reading and hashing the body.
    pub read_ns: u64,
    /// Its blocks.
    pub blocks: usize,
    /// Matching them for all endpoints.
    pub match_ns: u64,
    /// Recording them at one endpoint, which knows them.
    pub record_ns: u64,
}

/// Measures an ASCII chat of `bytes` on `hosts` endpoints.
///
/// # Errors
/// The body cannot be read.
pub fn measure(bytes: usize, hosts: u16) -> Result<Native> {
    let body = body(Text::Ascii, bytes, 1);
    let prompt = read(&body).context("a prompt")?;
    let mut index = Index::new(&IndexOptions::default());
    for slot in (0..hosts).map(Slot) {
        index.set_capacity_blocks(slot, 100_000);
        index.record(&prompt.blocks, slot, RecordState::Confirmed, Millis(0));
    }
    let mut depths = Depths::new();
    Ok(Native {
        bytes,
        hosts,
        blocks: prompt.blocks.len(),
        read_ns: fastest(|| drop(black_box(read(&body)))),
        match_ns: fastest(|| index.matches(black_box(&prompt.blocks), Millis(1), &mut depths)),
        record_ns: fastest(|| {
            black_box(index.record(&prompt.blocks, Slot(0), RecordState::Confirmed, Millis(1)));
        }),
    })
}

fn read(body: &[u8]) -> Option<Prompt> {
    let mut reader = PromptReader::new(
        Api::Chat,
        Rc::new(PromptPlan::new(&PromptOptions::default())),
    );
    for piece in body.chunks(PIECE_BYTES) {
        reader.feed(piece);
    }
    reader.finish(Seed::default(), BodyEnd::Complete).ok()
}

fn fastest(mut run: impl FnMut()) -> u64 {
    let time = |run: &mut dyn FnMut()| {
        let started = Instant::now();
        run();
        u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    (0..RUNS).map(|_| time(&mut run)).min().unwrap_or(0)
}
