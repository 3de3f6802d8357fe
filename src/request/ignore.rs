//! What of a configuration a reader needs, and the texts that are left out of the hash.
//!
//! A pattern is a literal and a class: wherever a text holds the literal, up to `max_chars` characters
//! of the class that follow are left out. All literals are followed at once with one failure table
//! each (Knuth, Morris, Pratt 1977): no byte is looked at twice, and a text may come in any pieces.
//! After a literal is complete all of them start anew.
//!
//! Cost: nothing without patterns; else some ten instructions a byte and pattern.

use crate::config::{CharClass, PromptOptions, ToolMode};

/// The prompt options, made ready; one for each configuration, shared by its requests.
#[derive(Clone, Debug)]
pub struct PromptPlan {
    pub(super) block_bytes: u32,
    pub(super) max_blocks: u32,
    pub(super) max_body_bytes: u32,
    pub(super) tool_mode: ToolMode,
    pub(super) patterns: Vec<Pattern>,
}

impl PromptPlan {
    /// Makes `options` ready.
    #[must_use]
    pub fn new(options: &PromptOptions) -> Self {
        let pattern = |p: &crate::config::IgnorePattern| Pattern {
            literal: p.prefix.as_bytes().to_vec(),
            failure: failure_table(p.prefix.as_bytes()),
            class: p.class,
            max_chars: p.max_chars,
        };
        Self {
            block_bytes: options.block_bytes,
            max_blocks: options.max_blocks,
            max_body_bytes: options.max_body_bytes,
            tool_mode: options.tool_mode,
            patterns: options
                .ignore
                .iter()
                .filter(|p| !p.prefix.is_empty())
                .map(pattern)
                .collect(),
        }
    }
}

/// One pattern with its failure table.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    literal: Vec<u8>,
    failure: Vec<usize>,
    class: CharClass,
    max_chars: u16,
}

/// For each length of a match: the longest shorter one that its end is, too.
fn failure_table(literal: &[u8]) -> Vec<usize> {
    let mut table: Vec<usize> = vec![0];
    for (i, &b) in literal.iter().enumerate().skip(1) {
        let mut len = table.get(i.saturating_sub(1)).copied().unwrap_or(0);
        while len > 0 && literal.get(len) != Some(&b) {
            len = table.get(len.saturating_sub(1)).copied().unwrap_or(0);
        }
        table.push(if literal.get(len) == Some(&b) {
            len.saturating_add(1)
        } else {
            0
        });
    }
    table
}

impl Pattern {
    /// Length of the match after `b`, which was `len` before.
    fn step(&self, mut len: usize, b: u8) -> usize {
        loop {
            if self.literal.get(len) == Some(&b) {
                return len.saturating_add(1);
            }
            if len == 0 {
                return 0;
            }
            len = self
                .failure
                .get(len.saturating_sub(1))
                .copied()
                .unwrap_or(0);
        }
    }
}

/// What to do with the next bytes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Keep(&'a [u8]),
    /// So many bytes are left out.
    Drop(usize),
}

/// Where a text is in each pattern.
#[derive(Debug, Default)]
pub(super) struct Filter {
    lens: Vec<usize>,
    /// Characters that may still be left out, and of which class.
    left: u16,
    class: u128,
}

impl Filter {
    /// A text begins.
    pub(super) fn reset(&mut self, patterns: &[Pattern]) {
        self.left = 0;
        self.lens.clear();
        self.lens.resize(patterns.len(), 0);
    }

    /// Takes the next piece off `text`; `None` at its end.
    pub(super) fn next<'a>(
        &mut self,
        patterns: &[Pattern],
        text: &mut &'a [u8],
    ) -> Option<Piece<'a>> {
        let whole = *text;
        if whole.is_empty() {
            return None;
        }
        if self.left > 0 {
            let most = usize::from(self.left);
            let dropped = whole
                .iter()
                .take(most)
                .take_while(|&&b| holds(self.class, b))
                .count();
            self.left = if dropped == whole.len() {
                self.left
                    .saturating_sub(u16::try_from(dropped).unwrap_or(u16::MAX))
            } else {
                0
            };
            *text = whole.get(dropped..).unwrap_or_default();
            if dropped > 0 {
                return Some(Piece::Drop(dropped));
            }
        }
        for (at, &b) in whole.iter().enumerate() {
            if self.completes(patterns, b) {
                let (kept, rest) = whole.split_at_checked(at.saturating_add(1))?;
                *text = rest;
                return Some(Piece::Keep(kept));
            }
        }
        *text = &[];
        Some(Piece::Keep(whole))
    }

    /// Follows one byte; `true` when it ends a literal.
    fn completes(&mut self, patterns: &[Pattern], b: u8) -> bool {
        for (pattern, len) in patterns.iter().zip(&mut self.lens) {
            *len = pattern.step(*len, b);
            if *len == pattern.literal.len() {
                self.left = pattern.max_chars;
                self.class = pattern.class.0;
                self.lens.fill(0);
                return true;
            }
        }
        false
    }
}

fn holds(class: u128, b: u8) -> bool {
    b < 128 && class >> b & 1 == 1
}
