//! A refusal: where, what, why, and what to write instead, in one line.

use core::fmt::Write as _;

use super::place::{Place, place};
use super::value::Given;

/// Why a configuration was refused. Nothing of a refused configuration takes effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct ConfigError {
    /// Key, such as `_rules_[2].weights.queue`; empty = the text as a whole.
    pub path: String,
    /// The value as the text spells it, cut when long; empty where there is none to show.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
    /// What to write instead.
    pub remedy: String,
}

/// Characters of a path, and of a value, that a message shows.
const SHOWN_PATH: usize = 160;
const SHOWN_VALUE: usize = 60;

impl ConfigError {
    pub(super) fn new(
        path: impl Into<String>,
        value: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            path: clip(&path.into(), SHOWN_PATH),
            value: clip(&value.into(), SHOWN_VALUE),
            reason: clip(&reason.into(), SHOWN_PATH),
            remedy: remedy.into(),
        }
    }

    fn line(&self) -> String {
        let mut line = if self.path.is_empty() {
            "configuration".to_owned()
        } else {
            self.path.clone()
        };
        if !self.value.is_empty() {
            let _ = write!(line, " = {}", self.value);
        }
        let _ = write!(line, ": {}; {}", self.reason, self.remedy);
        line
    }

    /// A refusal by the reader, with its place looked up in the text.
    pub(super) fn from_reader(error: &serde_json::Error, text: &[u8]) -> Self {
        let message = error.to_string();
        if !error.is_data() {
            return Self::new("", "", message, "write one JSON object");
        }
        // The path says better where it is than a line and a column.
        let message = message
            .rsplit_once(" at line ")
            .map_or(message.as_str(), |(head, _)| head);
        let (reason, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
        let Place { mut path, value } = place(
            text,
            error.line(),
            error.column(),
            reason.ends_with(" entries"),
        );
        let value = if path.ends_with("replicas.password") || path.ends_with("debug.secret") {
            // Never shown.
            Default::default()
        } else {
            String::from_utf8_lossy(value)
        };
        let quoted = reason.split('`').nth(1).unwrap_or_default();
        if reason.starts_with("unknown field") {
            // Its value stays out of the message: it may be a secret of a later version's key.
            return Self::new(path, "", "unknown key", known_keys(quoted, expected));
        }
        if reason.starts_with("duplicate field") {
            return Self::new(path, "", "given twice", "keep one");
        }
        if reason.starts_with("missing field") {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(quoted);
            return Self::new(path, "", "missing", "add it");
        }
        let expected = if expected == "a boolean" {
            "true or false"
        } else {
            expected
        };
        let reason = if reason.starts_with("invalid type") {
            "wrong type"
        } else if reason.starts_with("unknown variant") {
            "not allowed"
        } else {
            reason
        };
        Self::new(
            path,
            value,
            reason,
            format!("use {}", expected.replace(", ``", "").replace(" or ``", "")),
        )
    }
}

/// Refuses a key of one configuration.
#[derive(Clone, Copy)]
pub(super) struct Refuse<'a> {
    /// What its keys' paths begin with.
    pub(super) at: &'a str,
}

impl Refuse<'_> {
    pub(super) fn key(
        self,
        key: &str,
        value: impl Into<String>,
        reason: &str,
        remedy: &str,
    ) -> ConfigError {
        ConfigError::new(format!("{}{key}", self.at), value, reason, remedy)
    }

    /// `key` says again what `other` says.
    pub(super) fn twice<T>(
        self,
        key: &str,
        given: bool,
        other: &str,
        also: &Given<T>,
    ) -> Result<(), ConfigError> {
        if given && also.0.is_some() {
            let reason = format!("says the same as {other}");
            return Err(self.key(key, "", &reason, "keep one of the two"));
        }
        Ok(())
    }
}

/// The nearest key that is known here, else all of them.
fn known_keys(unknown: &str, expected: &str) -> String {
    let known = || expected.split('`').skip(1).step_by(2);
    let nearest = known().map(|key| (distance(unknown, key), key)).min();
    match nearest {
        Some((steps, key)) if steps <= 1 + key.len() / 4 => format!("did you mean {key}?"),
        Some(_) => {
            let keys: Vec<&str> = known().filter(|key| !key.starts_with('_')).collect();
            format!("known here: {}", keys.join(", "))
        }
        None => "remove it".to_owned(),
    }
}

/// Levenshtein distance in bytes, upper and lower case alike. Names longer than 64 are far from all.
fn distance(left: &str, right: &str) -> usize {
    if left.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, from) in left.bytes().enumerate() {
        let mut diagonal = above;
        let mut last = above + 1;
        if let Some(first) = row.first_mut() {
            *first = last;
        }
        for (cell, to) in row.iter_mut().skip(1).zip(right.bytes()) {
            let replaced = diagonal + usize::from(!from.eq_ignore_ascii_case(&to));
            diagonal = *cell;
            last = replaced.min(diagonal + 1).min(last + 1);
            *cell = last;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// At most `most` characters on one line.
fn clip(text: &str, most: usize) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(most).map(printable).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}
