//! Reading a body in one line.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::rc::Rc;

use warmroute::config::PromptOptions;
use warmroute::request::{Api, BodyEnd, Feed, Prompt, PromptPlan, PromptReader, Seed, Unreadable};

/// A text of some blocks.
pub const LONG: &str =
    "A system text that is long enough to fill a good many blocks of sixteen bytes each.";

pub fn small_blocks() -> PromptOptions {
    PromptOptions {
        block_bytes: 16,
        ..PromptOptions::default()
    }
}

pub fn try_read(
    api: Api,
    options: &PromptOptions,
    pieces: &[&[u8]],
    end: BodyEnd,
) -> Result<Prompt, Unreadable> {
    let mut reader = PromptReader::new(api, Rc::new(PromptPlan::new(options)));
    for piece in pieces {
        if reader.feed(piece) == Feed::Stop {
            break;
        }
    }
    reader.finish(Seed::default(), end)
}

/// Reads a whole body in one piece, blocks of 16 bytes.
pub fn read(api: Api, body: &str) -> Prompt {
    try_read(api, &small_blocks(), &[body.as_bytes()], BodyEnd::Complete)
        .unwrap_or_else(|e| panic!("{e:?}: {body}"))
}

pub fn chat(body: &str) -> Prompt {
    read(Api::Chat, body)
}

/// Blocks that both begin with.
pub fn shared(a: &Prompt, b: &Prompt) -> usize {
    a.blocks
        .iter()
        .zip(&b.blocks)
        .take_while(|(a, b)| a == b)
        .count()
}

/// Prompt bytes that both begin with, as `a` counts them.
pub fn shared_bytes(a: &Prompt, b: &Prompt) -> u64 {
    a.matched_bytes(shared(a, b))
}

/// They mean the same.
#[track_caller]
pub fn same(a: &Prompt, b: &Prompt) {
    assert_eq!(a.blocks, b.blocks);
    assert_eq!(a.conversation, b.conversation);
    assert_eq!(
        (a.bytes, a.head_bytes, a.later_turn),
        (b.bytes, b.head_bytes, b.later_turn)
    );
}
