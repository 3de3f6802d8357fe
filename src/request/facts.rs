//! What a body says beside its prompt.

use super::slot::SeedField;

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
