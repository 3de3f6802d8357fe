//! A short string that is wanted as a whole: a key, a role, a model.

use super::hash::Digest;

/// Longest one that is kept as it is.
const MAX_BYTES: usize = 512;

/// A string that is read in pieces.
#[derive(Debug, Default)]
pub(super) struct Name {
    pub(super) bytes: Vec<u8>,
    /// Set when it is too long: stands for all of it.
    long: Option<Digest>,
}

impl Name {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.long = None;
    }

    pub(super) fn add(&mut self, run: &[u8]) {
        if let Some(digest) = &mut self.long {
            digest.write(run);
        } else if self.bytes.len().saturating_add(run.len()) <= MAX_BYTES {
            self.bytes.extend_from_slice(run);
        } else {
            let mut digest = Digest::default();
            digest.write(&self.bytes);
            digest.write(run);
            self.long = Some(digest);
        }
    }

    /// It is complete; a long one becomes its hash.
    pub(super) fn end(&mut self) {
        if let Some(digest) = self.long.take() {
            self.bytes.clear();
            self.bytes
                .extend_from_slice(format!("xxh3:{:016x}", digest.value()).as_bytes());
        }
    }
}
