//! Reads a body as it comes and chains what it held.
//!
//! Seed. The chain starts from model, cache salt, isolation value and whatever else makes equal texts
//! unequal to an engine (a chat template, documents, an adapter, `previous_response_id`): each entered
//! with its place and length, absent unlike empty. Blocks are hashed without the seed and chained only
//! at the end, so the model may follow the messages.
//!
//! Cut bodies. Reading that ends before the body (a budget of bytes, depth or values; an irregular
//! message; the host that holds no more) leaves keys unseen that might still have come. Such a prompt
//! is seeded apart, with a mask of what was not seen: it matches prompts that were cut alike, such as
//! the next turn of the same long conversation, and never one that was read to its end. The section
//! that was open ends where it was cut, and sections that would follow it only count in bytes. When only the
//! blocks ran out the rest is still skimmed, and nothing is unknown.
//!
//! Batches. Of several prompts in one call the first defines the blocks, since engines cache each
//! apart; all count in bytes.

use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;

use super::facts::Facts;
use super::hash::mix;
use super::ignore::PromptPlan;
use super::json::{Halt, Json};
use super::slot::{Section, SeedField};
use super::stream::Stream;
use super::walk::Walk;
use super::{Api, Cut, Prompt};

/// What a piece of body led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// More is wanted.
    More,
    /// Nothing further is wanted: a budget is reached, or the body is malformed.
    Stop,
}

/// How the body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it was fed, or the reader wanted no more.
    Complete,
    /// The rest is not held any more.
    Cut,
}

/// What keeps equal texts apart, beside the body's own words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seed<'a> {
    /// Value of the configured isolation header.
    pub isolation: Option<&'a [u8]>,
    /// The model after a rewrite; takes the place of the body's.
    pub model_override: Option<&'a str>,
}

/// Why a body gives no prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// No JSON object, or not of the call's shape.
    Malformed,
    /// A whole body without a prompt or with an empty list.
    NoPrompt,
}

/// Reads one body.
#[derive(Debug)]
pub struct PromptReader {
    json: Json,
    walk: Walk,
    halt: Option<Halt>,
    /// Bytes that may still be read.
    left: usize,
}

impl PromptReader {
    /// A reader for one body of `api`.
    #[must_use]
    pub fn new(api: Api, plan: Rc<PromptPlan>) -> Self {
        let left = usize::try_from(plan.max_body_bytes).unwrap_or(usize::MAX);
        Self {
            json: Json::new(),
            walk: Walk::new(api, plan),
            halt: None,
            left,
        }
    }

    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) -> Feed {
        if self.halt.is_some() {
            return Feed::Stop;
        }
        let (readable, over) = piece.split_at_checked(self.left).unwrap_or((piece, &[]));
        self.left = self.left.saturating_sub(readable.len());
        self.halt = self.json.feed(readable, &mut self.walk).err();
        if self.halt.is_none() && !over.is_empty() {
            self.halt = Some(Halt::Cut(Cut::BodyBytes));
        }
        if self.halt.is_some() {
            Feed::Stop
        } else {
            Feed::More
        }
    }

    /// The prompt that was read.
    ///
    /// # Errors
    /// The body is not JSON or not of the call's shape, or it is whole and has no prompt. A body that a
    /// budget or the host cut is neither.
    pub fn finish(mut self, seed: Seed<'_>, end: BodyEnd) -> Result<Prompt, Unreadable> {
        let cut = match (self.halt, self.json.is_done(), end) {
            (Some(Halt::Malformed), ..) | (None, false, BodyEnd::Complete) => {
                return Err(Unreadable::Malformed);
            }
            (Some(Halt::Cut(_)), true, _) | (None, true, _) => None,
            (Some(Halt::Cut(cut)), false, _) => Some(cut),
            (None, false, BodyEnd::Cut) => Some(Cut::BodyBytes),
        };
        let facts = &self.walk.facts;
        if cut.is_none() && !facts.prompt_seen && !facts.ids_seen {
            return Err(Unreadable::NoPrompt);
        }
        if cut == Some(Cut::Irregular) {
            self.walk.drop_irregular();
        }
        if cut.is_some() {
            self.walk.message.cut(&mut self.walk.out);
        }
        let start = start_of_chain(&self.walk.facts, seed, cut.is_some());
        Ok(chain(self.walk, start, cut))
    }
}

/// Chains the sections in the order in which engines read them.
fn chain(walk: Walk, start: u64, cut: Option<Cut>) -> Prompt {
    let Walk {
        mut out,
        facts,
        conversation: told,
        open,
        ..
    } = walk;
    let open = if cut.is_some() { open } else { None };
    for section in [Section::System, Section::Messages] {
        if open.is_some_and(|open| open < section) {
            out.stream(section).truncate(0);
        }
    }
    let max_blocks = out.current().max_blocks();
    let [mut tools, mut system, messages] = out.into_sections();
    if !(system.is_empty() && messages.is_empty()) {
        tools.pad();
    }
    if !messages.is_empty() {
        system.pad();
    }
    let has_messages = told.messages > 0;
    let over = tools.overflow || system.overflow || messages.overflow;
    let head = tools.contents.len().saturating_add(system.contents.len());
    let tail = last_tail(&tools, &system, &messages);
    let before = tools.bytes.saturating_add(system.bytes);
    let bytes = before.saturating_add(messages.bytes);
    let (mut blocks, mut ends) = join([tools, system, messages]);
    let over = over || blocks.len() > max_blocks;
    blocks.truncate(max_blocks);
    ends.truncate(max_blocks);
    let mut value = start;
    for block in &mut blocks {
        value = mix(value, *block);
        *block = value;
    }
    let conversation = match told.first_user {
        Some((at, tail)) => {
            let at = head.saturating_add(at).min(blocks.len());
            let value = at
                .checked_sub(1)
                .and_then(|last| blocks.get(last))
                .copied()
                .unwrap_or(start);
            mix(value, tail)
        }
        // How much of a text that was cut stands in its tail depends on the pieces it came in.
        None if cut.is_some() => value,
        None => mix(value, tail),
    };
    let previous = facts.seed(SeedField::Previous);
    Prompt {
        model: String::from_utf8_lossy(facts.model.as_deref().unwrap_or_default()).into_owned(),
        blocks,
        ends,
        bytes,
        head_bytes: if has_messages {
            before.saturating_add(told.head_bytes)
        } else {
            0
        },
        conversation,
        later_turn: told.later_turn || previous.is_some(),
        session: facts.session.or(previous),
        stream: facts.stream,
        cut: cut.or(over.then_some(Cut::Blocks)),
    }
}

/// Hash of what stands behind the last whole block.
fn last_tail(tools: &Stream, system: &Stream, messages: &Stream) -> u64 {
    if !messages.is_empty() {
        messages.tail()
    } else if !system.is_empty() {
        system.tail()
    } else {
        tools.tail()
    }
}

/// The blocks of all sections, and the bytes up to the end of each. The longest part is not moved.
fn join(sections: [Stream; 3]) -> (Vec<u64>, Vec<u32>) {
    let mut before = 0_u64;
    let mut blocks = Vec::new();
    let mut ends = Vec::new();
    for mut section in sections {
        if before > 0 {
            let offset = u32::try_from(before).unwrap_or(u32::MAX);
            section
                .ends
                .iter_mut()
                .for_each(|end| *end = end.saturating_add(offset));
        }
        before = before.saturating_add(section.bytes);
        if blocks.is_empty() {
            (blocks, ends) = (section.contents, section.ends);
        } else {
            blocks.append(&mut section.contents);
            ends.append(&mut section.ends);
        }
    }
    (blocks, ends)
}

fn start_of_chain(facts: &Facts, seed: Seed<'_>, is_cut: bool) -> u64 {
    let text = |bytes: Option<&[u8]>| bytes.map(xxh3_64);
    let model = match seed.model_override {
        Some(model) => Some(model.as_bytes()),
        None => facts.model.as_deref(),
    };
    let unseen = if is_cut {
        let flags = [
            facts.model.is_none() && seed.model_override.is_none(),
            !facts.tools_seen,
            !facts.system_seen,
        ];
        let flags = flags
            .iter()
            .fold(1, |bits, &flag| (bits << 1) | u64::from(flag));
        Some((flags << 8) | u64::from(!facts.seeds_seen))
    } else {
        None
    };
    let own = [
        text(model.filter(|model| !model.is_empty())),
        text(seed.isolation),
        unseen,
    ];
    own.into_iter()
        .chain(facts.seeds)
        .fold(1, |value, item| match item {
            Some(hash) => mix(mix(value, 1), hash),
            None => mix(value, 0),
        })
}
