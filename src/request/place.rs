//! Where a value goes: what is set up when it begins and settled when it ends.

use super::Cut;
use super::frame::Mark;
use super::json::Halt;
use super::message::{Conversation, remove_field, set_field, write_fields};
use super::output::Target;
use super::slot::{Section, Slot};
use super::walk::{Level, Walk};

impl Walk {
    pub(super) fn open_section(&mut self, section: Section) {
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

    pub(super) fn name_section(&mut self, name: &[u8]) {
        self.out.mark(Mark::Section);
        self.out.put(name, false);
    }

    /// A value begins.
    pub(super) fn enter(&mut self, slot: Slot) -> Result<(), Halt> {
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

    pub(super) fn begin_streamed(&mut self, slot: Slot) -> Result<(), Halt> {
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
    pub(super) fn leave(&mut self, slot: Slot) {
        match slot {
            Slot::Tools | Slot::ToolsCounted | Slot::ToolSet | Slot::System | Slot::Messages => {
                self.open = None;
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
    pub(super) fn end_object(&mut self, level: Level) {
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

    /// `null` is as good as absent.
    pub(super) fn forget(&mut self, slot: Slot) -> Result<(), Halt> {
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

    pub(super) fn reset_section(&mut self, section: Section) {
        self.open_section(section);
        self.open = None;
    }
}
