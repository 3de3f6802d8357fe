//! From tokens to the prompt: gives each value its meaning and puts it where it belongs.

use std::rc::Rc;

use xxhash_rust::xxh3::xxh3_64;

use super::frame::Mark;
use super::hash::Digest;
use super::ignore::{Filter, Piece, PromptPlan};
use super::json::{Container, Events, Halt, Literal};
use super::message::{Conversation, Field, Message, remove_field, set_field, write_fields};
use super::output::{Output, Target};
use super::slot::{Section, SeedField, Slot};
use super::{Api, Cut};

/// Longest name (model, role, type) that is kept as it is.
const MAX_NAME: usize = 512;
/// Longest key that is looked up.
const MAX_KEY: usize = 64;

/// What becomes of the text of the key or string that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
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
struct Level {
    slot: Slot,
    /// Meaning of the elements, when it is an array.
    element: Slot,
    is_object: bool,
    /// A text or nested content of this part was written.
    streamed: bool,
    /// Where its values begin in `fields`.
    base: usize,
}

/// What of the body has been seen; each at most once, the last wins.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) model: Option<Vec<u8>>,
    /// A bit a seed field whose key was seen.
    pub(super) seeds_seen: u8,
    pub(super) seeds: [Option<u64>; SeedField::COUNT],
    pub(super) tools_seen: bool,
    pub(super) system_seen: bool,
    /// A message, or a prompt as text or ids.
    pub(super) prompt_seen: bool,
    /// A prompt as ids beside one as text.
    pub(super) ids_seen: bool,
    pub(super) session: Option<u64>,
    pub(super) stream: bool,
}

impl Facts {
    pub(super) fn seed(&self, field: SeedField) -> Option<u64> {
        self.seeds.get(field as usize).copied().flatten()
    }
}

/// The state of reading one body.
#[derive(Debug)]
pub(super) struct Walk {
    api: Api,
    plan: Rc<PromptPlan>,
    pub(super) out: Output,
    pub(super) facts: Facts,
    pub(super) conversation: Conversation,
    /// The section whose value is open.
    pub(super) open: Option<Section>,
    message: Message,
    fields: Vec<Field>,
    levels: Vec<Level>,
    /// Meaning of the value of the key just read, and that key's hash.
    next: Slot,
    next_key: u64,
    /// Meaning of the string that is read.
    current: Slot,
    field_key: u64,
    mode: Mode,
    /// The generic value that is written counts as prompt.
    counts: bool,
    /// Where a part's or message's text goes.
    base_target: Target,
    name: Vec<u8>,
    long_name: Option<Digest>,
    filter: Filter,
    /// Prompts of the batch so far.
    prompts: u32,
    in_tokens: bool,
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
            name: Vec::with_capacity(MAX_KEY),
            long_name: None,
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
    fn slot(&self) -> Slot {
        match self.levels.last() {
            None => Slot::Root,
            Some(level) if level.is_object => self.next,
            Some(level) => level.element,
        }
    }

    fn base(&self) -> usize {
        self.levels.last().map_or(0, |level| level.base)
    }

    fn open_section(&mut self, section: Section) {
        self.out.section = section;
        self.out.target = Target::Section;
        self.base_target = Target::Section;
        self.out.current().reset();
        self.open = Some(section);
        self.fields.clear();
        self.counts = true;
        self.in_tokens = false;
        self.prompts = 0;
        match section {
            Section::Messages => {
                self.conversation = Conversation::default();
                self.facts.prompt_seen = false;
            }
            Section::System => self.facts.ids_seen = false,
            Section::Tools => {}
        }
    }

    fn name_section(&mut self, name: &[u8]) {
        self.out.mark(Mark::Section);
        self.out.put(name, false);
    }

    /// A value begins.
    fn enter(&mut self, slot: Slot) -> Result<(), Halt> {
        match slot {
            Slot::Tools | Slot::ToolsCounted | Slot::ToolSet => {
                self.open_section(Section::Tools);
                if slot != Slot::ToolsCounted {
                    self.name_section(b"tools");
                }
            }
            Slot::System => {
                self.open_section(Section::System);
                self.name_section(b"system");
            }
            Slot::Messages => {
                self.open_section(Section::Messages);
                self.name_section(b"messages");
            }
            Slot::Prompt => {
                self.open_section(Section::Messages);
                self.name_section(b"prompt");
            }
            Slot::PromptIds => {
                self.open_section(Section::System);
                self.name_section(b"ids");
            }
            Slot::PromptItem => self.prompts = self.prompts.saturating_add(1),
            Slot::Content | Slot::Output => {
                self.message
                    .begin_content(slot == Slot::Content, &mut self.out);
                self.base_target = self.out.target;
            }
            Slot::PartText | Slot::Nested => self.begin_streamed(slot)?,
            Slot::Field | Slot::Media | Slot::Seed(_) | Slot::Session => {
                self.field_key = self.next_key;
                self.counts = slot == Slot::Field;
                self.out.begin_digest();
            }
            _ => {}
        }
        Ok(())
    }

    fn begin_streamed(&mut self, slot: Slot) -> Result<(), Halt> {
        if let Some(part) = self.levels.last_mut() {
            if part.streamed {
                return Err(Halt::Cut(Cut::Irregular));
            }
            part.streamed = true;
        }
        if slot == Slot::Nested {
            self.out.mark(Mark::Nest);
        }
        Ok(())
    }

    /// A value has ended.
    fn leave(&mut self, slot: Slot) {
        match slot {
            Slot::Tools | Slot::ToolsCounted | Slot::ToolSet | Slot::System | Slot::Messages => {
                self.open = None
            }
            Slot::Prompt => {
                self.open = None;
                self.facts.prompt_seen |= self.prompts > 0;
            }
            Slot::PromptIds => {
                self.open = None;
                self.facts.ids_seen = self.prompts > 0;
            }
            Slot::Content | Slot::Output => {
                self.out.target = Target::Section;
                self.base_target = Target::Section;
            }
            Slot::Nested => self.out.mark(Mark::NestEnd),
            Slot::Field | Slot::Media => {
                self.out.target = self.base_target;
                let base = self.base();
                let (value, bytes) = (self.out.digest.value(), self.out.digest.counted);
                set_field(&mut self.fields, base, self.field_key, value, bytes);
            }
            Slot::Seed(field) => {
                self.out.target = Target::Section;
                if let Some(place) = self.facts.seeds.get_mut(field as usize) {
                    *place = Some(self.out.digest.value());
                }
            }
            Slot::Session => {
                self.out.target = Target::Section;
                self.facts.session = Some(self.out.digest.value());
            }
            _ => {}
        }
    }

    /// A message, part or tool is complete.
    fn end_object(&mut self, level: Level) {
        let fields = self.fields.get_mut(level.base..).unwrap_or_default();
        match level.slot {
            Slot::Message => {
                self.message
                    .end(fields, &mut self.out, &mut self.conversation);
                self.facts.prompt_seen = true;
            }
            Slot::Part if !fields.is_empty() => {
                write_fields(fields, &mut self.out);
                self.out.mark(Mark::PartEnd);
                self.out.put(&[u8::from(level.streamed)], false);
            }
            Slot::Tool => {
                self.out.mark(Mark::Tool);
                write_fields(fields, &mut self.out);
                self.out.mark(Mark::ToolEnd);
            }
            _ => return,
        }
        self.fields.truncate(level.base);
    }

    fn begin_text(&mut self) -> Mode {
        self.out.mark(Mark::Text);
        self.filter.reset(&self.plan.patterns);
        Mode::Text
    }

    fn begin_name(&mut self) -> Mode {
        self.name.clear();
        self.long_name = None;
        Mode::Name
    }

    fn add_name(&mut self, run: &[u8]) {
        if let Some(digest) = &mut self.long_name {
            digest.write(run);
            return;
        }
        self.name.extend_from_slice(run);
        if self.name.len() > MAX_NAME {
            let mut digest = Digest::default();
            digest.write(&self.name);
            self.long_name = Some(digest);
        }
    }

    /// The name that was read; a long one is its hash.
    fn end_name(&mut self) {
        if let Some(digest) = self.long_name.take() {
            self.name.clear();
            self.name
                .extend_from_slice(format!("xxh3:{:016x}", digest.value()).as_bytes());
        }
    }

    fn end_kind(&mut self) {
        let base = self.base();
        let key = self.next_key;
        if self
            .levels
            .last()
            .is_some_and(|level| level.slot == Slot::Message)
        {
            self.message.set_kind(&self.name);
        }
        if matches!(
            self.name.as_slice(),
            b"text" | b"input_text" | b"output_text" | b"message"
        ) {
            remove_field(&mut self.fields, base, key);
        } else {
            set_field(&mut self.fields, base, key, xxh3_64(&self.name), 0);
        }
    }

    /// A string stands where a message list may: it is a user's message.
    fn begin_input(&mut self) -> Result<Mode, Halt> {
        if self.api != Api::Responses {
            return Err(Halt::Malformed);
        }
        self.message.begin(&mut self.out);
        self.message.set_role(b"user")?;
        self.message.begin_content(true, &mut self.out);
        Ok(self.begin_text())
    }

    fn add_text(&mut self, mut run: &[u8]) {
        if self.plan.patterns.is_empty() {
            self.out.put(run, true);
            return;
        }
        while let Some(piece) = self.filter.next(&self.plan.patterns, &mut run) {
            match piece {
                Piece::Keep(kept) => self.out.put(kept, true),
                Piece::Drop(bytes) => self.out.count(u64::try_from(bytes).unwrap_or(u64::MAX)),
            }
        }
    }

    /// Four bytes that stand for a token id; a number that is none is spelled out.
    fn add_token(&mut self, text: &[u8]) {
        let digit = |value: Option<u32>, &b: &u8| {
            let digit = u32::from(b.wrapping_sub(b'0'));
            value
                .filter(|_| digit < 10)?
                .checked_mul(10)?
                .checked_add(digit)
        };
        if !self.in_tokens {
            self.out.mark(Mark::Tokens);
            self.in_tokens = true;
        }
        match text.iter().fold(Some(0), digit) {
            Some(id) if id < 0xF800_0000 => self.out.put(&id.to_be_bytes(), true),
            _ => {
                self.out.mark(Mark::Number);
                self.out.put(text, false);
                self.out.count(4);
                self.in_tokens = false;
            }
        }
    }

    /// `null` is as good as absent.
    fn forget(&mut self, slot: Slot) -> Result<(), Halt> {
        match slot {
            Slot::Field | Slot::Media | Slot::Kind => {
                let base = self.base();
                remove_field(&mut self.fields, base, self.next_key);
            }
            Slot::Seed(field) => {
                if let Some(place) = self.facts.seeds.get_mut(field as usize) {
                    *place = None;
                }
            }
            Slot::Session => self.facts.session = None,
            Slot::Model => self.facts.model = Some(Vec::new()),
            Slot::Tools | Slot::ToolsCounted | Slot::ToolSet => self.reset_section(Section::Tools),
            Slot::System | Slot::PromptIds => self.reset_section(Section::System),
            Slot::Messages | Slot::Prompt => self.reset_section(Section::Messages),
            Slot::Content | Slot::Output => {
                self.enter(slot)?;
                self.leave(slot);
            }
            Slot::Message => return Err(Halt::Malformed),
            _ => {}
        }
        Ok(())
    }

    fn reset_section(&mut self, section: Section) {
        self.open_section(section);
        self.open = None;
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
                    .mark(if is_object { Mark::Object } else { Mark::Array })
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
        let key = self.name.as_slice();
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
            Slot::Model | Slot::Role | Slot::Kind => self.begin_name(),
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
                self.end_name();
                self.facts.model = Some(self.name.clone());
            }
            Slot::Role => {
                self.end_name();
                self.message.set_role(&self.name)?;
            }
            Slot::Kind => {
                self.end_name();
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
            Mode::Name => self.add_name(run),
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
                if self.prompts == 1 {
                    self.add_token(text)
                } else {
                    self.out.count(4)
                }
                return Ok(());
            }
            Slot::Token => {
                let first = self
                    .levels
                    .last()
                    .is_some_and(|level| level.slot == Slot::Tokens);
                if first {
                    self.add_token(text)
                } else {
                    self.out.count(4)
                }
                return Ok(());
            }
            _ => {}
        }
        self.scalar(slot, Mark::Number, text)
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

impl Walk {
    /// A number or literal.
    fn scalar(&mut self, slot: Slot, mark: Mark, text: &[u8]) -> Result<(), Halt> {
        match slot {
            Slot::Counted | Slot::ToolsCounted => self
                .out
                .count(u64::try_from(text.len()).unwrap_or(u64::MAX)),
            _ if slot.is_generic() => {
                self.enter(slot)?;
                self.out.mark(mark);
                self.out.put(text, self.counts);
                self.leave(slot);
            }
            Slot::Skip | Slot::Stream | Slot::SessionObject | Slot::Kind => {}
            Slot::ToolSet | Slot::Tool | Slot::ToolFunction | Slot::Token => {}
            _ => return Err(Halt::Malformed),
        }
        Ok(())
    }

    /// A key longer than any that is known is told by its first bytes, or written on as it comes.
    fn add_key(&mut self, run: &[u8]) {
        let room = MAX_KEY.saturating_add(1).saturating_sub(self.name.len());
        let (head, tail) = run.split_at_checked(room).unwrap_or((run, &[]));
        self.name.extend_from_slice(head);
        if self.name.len() > MAX_KEY
            && self
                .levels
                .last()
                .is_some_and(|level| level.slot.is_generic())
        {
            self.out.mark(Mark::Key);
            self.out.put(&self.name, self.counts);
            self.mode = Mode::LongKey;
            self.out.put(tail, self.counts);
        }
    }
}
