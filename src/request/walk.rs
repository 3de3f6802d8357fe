//! From tokens to the prompt: gives each value its meaning and puts it where it belongs.

use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;

use super::Api;
use super::facts::Facts;
use super::frame::Mark;
use super::ignore::{Filter, PromptPlan};
use super::json::{Container, Events, Halt, Literal};
use super::message::{Conversation, Field, Message};
use super::name::Name;
use super::output::{Output, Target};
use super::slot::{Section, Slot};

/// What becomes of the text of the key or string that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Skip,
    Count,
    Name,
    Key,
    /// A key longer than any that is known, of a generic object.
    LongKey,
    /// Written as it is; counted when the value counts.
    Generic,
    /// Prompt text.
    Text,
}

/// An open container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) slot: Slot,
    /// Meaning of the elements, when it is an array.
    pub(super) element: Slot,
    pub(super) is_object: bool,
    /// A text or nested content of this part was written.
    pub(super) streamed: bool,
    /// Where its values begin in `fields`.
    pub(super) base: usize,
}

/// The state of reading one body.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) api: Api,
    pub(super) plan: Rc<PromptPlan>,
    pub(super) out: Output,
    pub(super) facts: Facts,
    pub(super) conversation: Conversation,
    /// The section whose value is open.
    pub(super) open: Option<Section>,
    pub(super) message: Message,
    pub(super) fields: Vec<Field>,
    pub(super) levels: Vec<Level>,
    /// Meaning of the value of the key just read, and that key's hash.
    pub(super) next: Slot,
    pub(super) next_key: u64,
    /// Meaning of the string that is read.
    pub(super) current: Slot,
    pub(super) field_key: u64,
    pub(super) mode: Mode,
    /// The generic value that is written counts as prompt.
    pub(super) counts: bool,
    /// Where a part's or message's text goes.
    pub(super) base_target: Target,
    /// The key, or the string that is wanted as a whole.
    pub(super) name: Name,
    pub(super) filter: Filter,
    /// Prompts of the batch so far.
    pub(super) prompts: u32,
    pub(super) in_tokens: bool,
}

impl Walk {
    pub(super) fn new(api: Api, plan: Rc<PromptPlan>) -> Self {
        Self {
            api,
            out: Output::new(plan.block_bytes, plan.max_blocks),
            plan,
            facts: Facts::default(),
            conversation: Conversation::default(),
            open: None,
            message: Message::default(),
            fields: Vec::new(),
            levels: Vec::with_capacity(16),
            next: Slot::Skip,
            next_key: 0,
            current: Slot::Skip,
            field_key: 0,
            mode: Mode::Skip,
            counts: false,
            base_target: Target::Section,
            name: Name::default(),
            filter: Filter::default(),
            prompts: 0,
            in_tokens: false,
        }
    }

    /// Takes back what cannot be put in order: the message that is read, or the section.
    pub(super) fn drop_irregular(&mut self) {
        let blocks = if self.out.section == Section::Messages {
            self.message.start_blocks()
        } else {
            0
        };
        self.out.current().truncate(blocks);
    }

    /// Meaning of the value that begins now.
    pub(super) fn slot(&self) -> Slot {
        match self.levels.last() {
            None => Slot::Root,
            Some(level) if level.is_object => self.next,
            Some(level) => level.element,
        }
    }

    pub(super) fn base(&self) -> usize {
        self.levels.last().map_or(0, |level| level.base)
    }
}

impl Events for Walk {
    fn begin(&mut self, container: Container) -> Result<(), Halt> {
        let slot = self.slot();
        let (mut slot, mut element) = slot.opened(container).ok_or(Halt::Malformed)?;
        if matches!(slot, Slot::Tokens | Slot::Generic) && self.slot() == Slot::PromptItem {
            self.enter(Slot::PromptItem)?;
            if self.prompts > 1 {
                (slot, element) = (Slot::Counted, Slot::Token);
            }
        } else {
            self.enter(slot)?;
        }
        let base = if slot == Slot::ToolFunction {
            self.base()
        } else {
            self.fields.len()
        };
        let is_object = container == Container::Object;
        match slot {
            Slot::Message => self.message.begin(&mut self.out),
            _ if slot.is_generic() => {
                self.out
                    .mark(if is_object { Mark::Object } else { Mark::Array });
            }
            _ => {}
        }
        self.levels.push(Level {
            slot,
            element,
            is_object,
            streamed: false,
            base,
        });
        Ok(())
    }

    fn end(&mut self, container: Container) -> Result<(), Halt> {
        let level = self.levels.pop().ok_or(Halt::Malformed)?;
        if level.slot.is_generic() {
            self.out.mark(if container == Container::Object {
                Mark::ObjectEnd
            } else {
                Mark::ArrayEnd
            });
        }
        self.end_object(level);
        self.leave(level.slot);
        Ok(())
    }

    fn begin_key(&mut self) {
        self.name.clear();
        self.mode = Mode::Key;
    }

    fn end_key(&mut self) -> Result<(), Halt> {
        let parent = self.levels.last().map_or(Slot::Skip, |level| level.slot);
        if self.mode == Mode::LongKey {
            self.next = Slot::Generic;
            return Ok(());
        }
        let key = self.name.bytes.as_slice();
        self.next = match parent {
            Slot::Root => Slot::of_body(self.api, self.plan.tool_mode, key),
            Slot::Message => Slot::of_message(self.api, key),
            Slot::Part => Slot::of_part(key),
            Slot::Tool | Slot::ToolFunction => parent.of_tool(key),
            Slot::SessionObject if key == b"id" => Slot::Session,
            Slot::Counted | Slot::ToolsCounted => Slot::Counted,
            _ if parent.is_generic() && key == b"cache_control" => Slot::Skip,
            _ if parent.is_generic() => {
                self.out.mark(Mark::Key);
                self.out.put(key, self.counts);
                Slot::Generic
            }
            _ => Slot::Skip,
        };
        match self.next {
            Slot::Field | Slot::Media | Slot::Kind => self.next_key = xxh3_64(key),
            Slot::Seed(field) => self.facts.seeds_seen |= 1 << field as u8,
            Slot::Tools | Slot::ToolsCounted | Slot::ToolSet => self.facts.tools_seen = true,
            Slot::System | Slot::PromptIds => self.facts.system_seen = true,
            _ => {}
        }
        Ok(())
    }

    fn begin_string(&mut self) -> Result<(), Halt> {
        let slot = self.slot();
        self.current = slot;
        self.enter(slot)?;
        self.mode = match slot {
            Slot::Root | Slot::Message => return Err(Halt::Malformed),
            Slot::Model | Slot::Role | Slot::Kind => {
                self.name.clear();
                Mode::Name
            }
            Slot::System
            | Slot::Content
            | Slot::Output
            | Slot::Nested
            | Slot::PartText
            | Slot::Part => self.begin_text(),
            Slot::Messages => self.begin_input()?,
            Slot::Prompt | Slot::PromptIds => {
                self.prompts = 1;
                self.begin_text()
            }
            Slot::PromptItem if self.prompts == 1 => self.begin_text(),
            Slot::PromptItem | Slot::Counted | Slot::ToolsCounted | Slot::Token => Mode::Count,
            _ if slot.is_generic() => {
                self.out.mark(Mark::String);
                Mode::Generic
            }
            _ => Mode::Skip,
        };
        Ok(())
    }

    fn end_string(&mut self) -> Result<(), Halt> {
        let slot = self.current;
        match slot {
            Slot::Model => {
                self.name.end();
                self.facts.model = Some(self.name.bytes.clone());
            }
            Slot::Role => {
                self.name.end();
                self.message.set_role(&self.name.bytes)?;
            }
            Slot::Kind => {
                self.name.end();
                self.end_kind();
            }
            Slot::Messages => {
                self.message
                    .end(&mut [], &mut self.out, &mut self.conversation);
                self.facts.prompt_seen = true;
            }
            _ => {}
        }
        self.leave(slot);
        Ok(())
    }

    #[inline]
    fn text(&mut self, run: &[u8]) {
        match self.mode {
            Mode::Text => self.add_text(run),
            Mode::Generic | Mode::LongKey => self.out.put(run, self.counts),
            Mode::Key => self.add_key(run),
            Mode::Name => self.name.add(run),
            Mode::Count => self.out.count(u64::try_from(run.len()).unwrap_or(u64::MAX)),
            Mode::Skip => {}
        }
    }

    fn number(&mut self, text: &[u8]) -> Result<(), Halt> {
        let slot = self.slot();
        match slot {
            Slot::Root | Slot::Message | Slot::Messages | Slot::Role | Slot::PartText => {
                return Err(Halt::Malformed);
            }
            Slot::PromptItem => {
                self.prompts = self.prompts.max(1);
                self.add_token(text, self.prompts == 1);
                return Ok(());
            }
            Slot::Token => {
                let is_first = self.levels.last().is_some_and(|l| l.slot == Slot::Tokens);
                self.add_token(text, is_first);
                return Ok(());
            }
            _ => {}
        }
        self.scalar(slot, Mark::Number, text)
    }

    fn wants_ids(&self) -> bool {
        matches!(self.slot(), Slot::PromptItem | Slot::Token)
    }

    fn ids(&mut self, ids: &[u8]) {
        let is_first = if self.slot() == Slot::PromptItem {
            self.prompts = self.prompts.max(1);
            self.prompts == 1
        } else {
            self.levels.last().is_some_and(|l| l.slot == Slot::Tokens)
        };
        self.add_ids(ids, is_first);
    }

    fn literal(&mut self, literal: Literal) -> Result<(), Halt> {
        let slot = self.slot();
        if literal == Literal::Null && slot != Slot::Generic {
            return self.forget(slot);
        }
        let mark = match literal {
            Literal::True => Mark::True,
            Literal::False => Mark::False,
            Literal::Null => Mark::Null,
        };
        if slot == Slot::Stream {
            self.facts.stream = literal == Literal::True;
        }
        self.scalar(slot, mark, b"")
    }
}
