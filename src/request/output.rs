//! Where a prompt's bytes go: into a section, a digest, or the stash.

use super::frame::Mark;
use super::hash::Digest;
use super::slot::Section;
use super::stream::Stream;

/// Who gets what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The current section.
    Section,
    /// Kept until its message's role is known.
    Stash,
    /// One value by its hash.
    Digest,
}

/// The sections and what is written beside them.
#[derive(Debug)]
pub(super) struct Output {
    sections: [Stream; 3],
    /// The section that is written to.
    pub(super) section: Section,
    pub(super) target: Target,
    pub(super) digest: Digest,
    /// Content that came before its role; at most what the blocks can hold.
    stash: Vec<u8>,
    stash_counted: u64,
    stash_max: usize,
}

impl Output {
    pub(super) fn new(block_bytes: u32, max_blocks: u32) -> Self {
        let stream = || Stream::new(block_bytes, max_blocks);
        let most = block_bytes.saturating_mul(max_blocks.saturating_add(1));
        Self {
            sections: [stream(), stream(), stream()],
            section: Section::Messages,
            target: Target::Section,
            digest: Digest::default(),
            stash: Vec::new(),
            stash_counted: 0,
            stash_max: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn stream(&mut self, section: Section) -> &mut Stream {
        let [tools, system, messages] = &mut self.sections;
        match section {
            Section::Tools => tools,
            Section::System => system,
            Section::Messages => messages,
        }
    }

    pub(super) fn current(&mut self) -> &mut Stream {
        self.stream(self.section)
    }

    pub(super) fn into_sections(self) -> [Stream; 3] {
        self.sections
    }

    /// Writes text, which counts as prompt, or bytes that do not.
    #[inline]
    pub(super) fn put(&mut self, data: &[u8], counts: bool) {
        match self.target {
            Target::Section if counts => self.current().text(data),
            Target::Section => self.current().frame(data),
            Target::Digest => {
                self.digest.write(data);
                if counts {
                    self.digest.counted = self.digest.counted.saturating_add(len(data));
                }
            }
            Target::Stash => self.keep(data, counts),
        }
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        self.put(&mark.bytes(), false);
    }

    /// Counts text that is not written.
    pub(super) fn count(&mut self, bytes: u64) {
        match self.target {
            Target::Section => self.current().count(bytes),
            Target::Digest => self.digest.counted = self.digest.counted.saturating_add(bytes),
            Target::Stash => self.stash_counted = self.stash_counted.saturating_add(bytes),
        }
    }

    /// What is over `stash_max` is over the budget of blocks, too: it is counted only.
    fn keep(&mut self, data: &[u8], counts: bool) {
        let room = self.stash_max.saturating_sub(self.stash.len());
        self.stash
            .extend_from_slice(data.get(..room).unwrap_or(data));
        if counts {
            self.stash_counted = self.stash_counted.saturating_add(len(data));
        }
    }

    pub(super) fn clear_stash(&mut self) {
        self.stash.clear();
        self.stash_counted = 0;
    }

    /// Writes the stash to the section. Where its frames stand is not known any more: as many bytes as they
    /// have count for nothing at its start, which is exact for one text and never too much for several.
    pub(super) fn flush_stash(&mut self) {
        let stash = core::mem::take(&mut self.stash);
        let counted = core::mem::take(&mut self.stash_counted);
        let frames = stash
            .len()
            .saturating_sub(usize::try_from(counted).unwrap_or(usize::MAX));
        let (frames, text) = stash.split_at_checked(frames).unwrap_or((&stash, &[]));
        self.current().frame(frames);
        self.current().text(text);
        self.current().count(counted.saturating_sub(len(text)));
        self.stash = stash;
        self.stash.clear();
    }

    /// Counts what the stash holds: it will not be written.
    pub(super) fn count_stash(&mut self) {
        let counted = self.stash_counted;
        self.current().count(counted);
    }

    /// A value that enters by its hash begins.
    pub(super) fn begin_digest(&mut self) {
        self.digest.reset();
        self.target = Target::Digest;
    }
}

fn len(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}
