//! The parts of a decision, each by itself, for `make bench`.
//!
//! The core's own code runs here, on one body and one index: natively, and as a small wasm module that is
//! compiled as the plugin is. Parsing is reading with a budget of no blocks: the core then still takes every
//! byte apart and counts it, and hashes nothing. What reading with the default budget costs more is what
//! cutting into blocks, hashing and chaining cost.
//!
//! The prompt is one that every endpoint holds, which is the most that a match can find.

mod exports;

use std::rc::Rc;

use warmroute::clock::Millis;
use warmroute::config::{IndexOptions, PromptOptions};
use warmroute::endpoints::Slot;
use warmroute::prefix::{Depths, Index, RecordState};
use warmroute::request::{Api, BodyEnd, Prompt, PromptPlan, PromptReader, Seed};

/// A body is read in pieces of this size, as the plugin fetches it.
pub const PIECE_BYTES: usize = 64 << 10;
/// More than any body here has.
const CAPACITY_BLOCKS: u32 = 100_000;

/// One body, its prompt, and an index in which endpoints may hold that.
pub struct Parts {
    api: Api,
    body: Vec<u8>,
    reads: Rc<PromptPlan>,
    parses: Rc<PromptPlan>,
    prompt: Prompt,
    index: Index,
    depths: Depths,
}

impl Parts {
    /// Nobody holds the prompt yet. `None` when the body has none.
    #[must_use]
    pub fn new(api: Api, body: Vec<u8>) -> Option<Self> {
        let options = PromptOptions::default();
        let reads = Rc::new(PromptPlan::new(&options));
        let parses = Rc::new(PromptPlan::new(&PromptOptions {
            max_blocks: 0,
            ..options
        }));
        let prompt = read(api, &reads, &body)?;
        Some(Self {
            api,
            body,
            reads,
            parses,
            prompt,
            index: Index::new(&IndexOptions::default()),
            depths: Depths::new(),
        })
    }

    /// Lets so many endpoints hold the prompt.
    pub fn hold(&mut self, hosts: u16) {
        let blocks = &self.prompt.blocks;
        for slot in (0..hosts).map(Slot) {
            self.index.set_capacity_blocks(slot, CAPACITY_BLOCKS);
            self.index
                .record(blocks, slot, RecordState::Confirmed, Millis(0));
        }
    }

    /// Parses and hashes the body.
    #[must_use]
    pub fn read(&self) -> Option<Prompt> {
        read(self.api, &self.reads, &self.body)
    }

    /// Parses the body.
    #[must_use]
    pub fn parse(&self) -> Option<Prompt> {
        read(self.api, &self.parses, &self.body)
    }

    /// Matches the prompt for all endpoints; how many blocks the first of them holds.
    pub fn find(&mut self) -> u32 {
        let Self { prompt, depths, .. } = self;
        self.index.matches(&prompt.blocks, Millis(1), depths);
        depths.of(Slot(0))
    }

    /// Records the prompt at the first endpoint, as a decision does.
    pub fn record(&mut self) {
        let state = RecordState::Confirmed;
        self.index
            .record(&self.prompt.blocks, Slot(0), state, Millis(1));
    }
}

fn read(api: Api, plan: &Rc<PromptPlan>, body: &[u8]) -> Option<Prompt> {
    let mut reader = PromptReader::new(api, Rc::clone(plan));
    for piece in body.chunks(PIECE_BYTES) {
        reader.feed(piece);
    }
    reader.finish(Seed::default(), BodyEnd::Complete).ok()
}
