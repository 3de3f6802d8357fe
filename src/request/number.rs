//! Numbers of a JSON text that arrives in pieces.

use super::hash::Digest;

/// Longest text that is kept as it is.
const MAX_KEPT: usize = 64;

/// Where in a number's grammar the reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

/// A number begun.
#[derive(Debug, Default)]
pub(super) struct Number {
    at: At,
    /// What earlier pieces had of it; empty as long as it lies in one piece.
    kept: Vec<u8>,
    /// Set when it is longer than is kept: stands for its whole text.
    long: Option<Digest>,
}

impl Number {
    /// Another number begins.
    pub(super) fn reset(&mut self) {
        self.at = At::Start;
        self.kept.clear();
        if self.long.is_some() {
            self.long = None;
        }
    }

    /// Bytes at the start of `piece` that belong to the number; `None` when it breaks the grammar.
    pub(super) fn advance(&mut self, piece: &[u8]) -> Option<usize> {
        let mut len: usize = 0;
        for &b in piece {
            self.at = match (self.at, b) {
                (At::Start, b'-') => At::Minus,
                (At::Start | At::Minus, b'0') => At::Zero,
                (At::Start | At::Minus | At::Integer, b'0'..=b'9') => At::Integer,
                (At::Zero | At::Integer, b'.') => At::Point,
                (At::Zero | At::Integer | At::Fraction, b'e' | b'E') => At::Exponent,
                (At::Point | At::Fraction, b'0'..=b'9') => At::Fraction,
                (At::Exponent, b'+' | b'-') => At::Sign,
                (At::Exponent | At::Sign | At::Power, b'0'..=b'9') => At::Power,
                (_, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => return None,
                _ => break,
            };
            len = len.saturating_add(1);
        }
        Some(len)
    }

    /// The grammar allows the number to end here.
    pub(super) fn may_end(&self) -> bool {
        matches!(self.at, At::Zero | At::Integer | At::Fraction | At::Power)
    }

    /// Keeps `text` until the next piece.
    pub(super) fn keep(&mut self, text: &[u8]) {
        if let Some(digest) = &mut self.long {
            digest.write(text);
            return;
        }
        self.kept.extend_from_slice(text);
        if self.kept.len() > MAX_KEPT {
            let mut digest = Digest::default();
            digest.write(&self.kept);
            self.long = Some(digest);
        }
    }

    /// The whole number, `text` being its last piece; `None` when `text` is all of it.
    pub(super) fn kept(&mut self, text: &[u8]) -> Option<&[u8]> {
        if self.kept.is_empty() && text.len() <= MAX_KEPT {
            return None;
        }
        self.keep(text);
        if let Some(digest) = &self.long {
            self.kept.clear();
            self.kept.push(b'#');
            self.kept.extend_from_slice(&digest.value().to_be_bytes());
        }
        Some(&self.kept)
    }
}
