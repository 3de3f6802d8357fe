//! Where in a JSON text the reader refused something: the path of the key, and its value as written.
//!
//! serde_json tells a line and a column; this walks the text up to there. A reader that carries the
//! path along (`serde_path_to_error`) makes every derived field's code twice as long, which is a tenth
//! of the whole plugin. Cost: one pass over the text, once, and only for a text that is refused.

use core::fmt::Write as _;
use core::ops::Range;

/// A key's path, such as `_rules_[2].weights.queue` (empty = the whole text), and its value's bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Place<'a> {
    pub path: String,
    pub value: &'a [u8],
}

/// An object or list that is still open.
struct Open {
    /// The key read last; `None` in a list.
    key: Option<Range<usize>>,
    is_list: bool,
    /// Entries of a list before this one.
    entry: usize,
    /// Where the value of the key or entry begins, white space included.
    value: usize,
    /// A string that follows is a key.
    wants_key: bool,
}

impl Open {
    fn new(is_list: bool, at: usize) -> Self {
        Self {
            key: None,
            is_list,
            entry: 0,
            value: at,
            wants_key: !is_list,
        }
    }

    /// Past a comma or a colon.
    fn step(&mut self, comma: bool, at: usize) {
        self.value = at;
        if comma {
            self.entry = self.entry.saturating_add(1);
            self.wants_key = !self.is_list;
        }
    }
}

/// The place that serde_json's 1-based line and its column (bytes read of that line) mean.
/// `of_list`: the list itself is meant, not the entry at which it ended.
pub(super) fn place(text: &[u8], line: usize, column: usize, of_list: bool) -> Place<'_> {
    let mut open = still_open(text, offset(text, line, column));
    if of_list && open.last().is_some_and(|last| last.is_list) {
        open.pop();
    }
    let mut path = String::new();
    for frame in &open {
        if frame.is_list {
            let _ = write!(path, "[{}]", frame.entry);
        } else if let Some(key) = frame.key.clone().and_then(|key| text.get(key)) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(key));
        }
    }
    let from = open.last().map_or(text.len(), |last| last.value);
    Place {
        path,
        value: value(text.get(from..).unwrap_or_default()),
    }
}

fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    before.saturating_add(column)
}

/// What is open after the text's first `end` bytes.
fn still_open(text: &[u8], end: usize) -> Vec<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut bytes = text.iter().enumerate().take(end);
    while let Some((at, byte)) = bytes.next() {
        let after = at.saturating_add(1);
        match byte {
            b'{' | b'[' => open.push(Open::new(*byte == b'[', after)),
            b'}' | b']' => drop(open.pop()),
            b'"' => {
                let close = string_end(text, after);
                if let Some(last) = open.last_mut().filter(|last| last.wants_key) {
                    last.key = Some(after..close);
                    last.wants_key = false;
                }
                if let Some(rest) = close.checked_sub(after) {
                    bytes.nth(rest);
                }
            }
            b':' | b',' => {
                if let Some(last) = open.last_mut() {
                    last.step(*byte == b',', after);
                }
            }
            _ => {}
        }
    }
    open
}

/// The place of the quote that ends the string which begins at `from`.
fn string_end(text: &[u8], from: usize) -> usize {
    let mut escaped = false;
    let inside = text.iter().skip(from).take_while(|byte| {
        let ends = **byte == b'"' && !escaped;
        escaped = **byte == b'\\' && !escaped;
        !ends
    });
    from.saturating_add(inside.count())
}

/// The value at the head of `text`, white space around it left out.
fn value(text: &[u8]) -> &[u8] {
    let (mut depth, mut at) = (0usize, 0usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = string_end(text, at.saturating_add(1)),
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' | b',' if depth == 0 => break,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at = at.saturating_add(1);
    }
    text.get(..at).unwrap_or(text).trim_ascii()
}
