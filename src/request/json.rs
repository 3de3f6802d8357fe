//! A strict JSON reader that is fed: text in pieces of any size in, events out.
//!
//! It holds no text but a number cut in two; strings leave in runs as they come. Everything that
//! RFC 8259 forbids ends the reading, with one liberty that engines' parsers take as well: a lone
//! surrogate in a `\u` escape is a character like any other (written as WTF-8 does).
//!
//! Cost: a run of a string costs what [`super::scan`] costs; a token some tens of instructions.

mod ids;
mod string;

use super::Cut;
use super::escape::Run;
use super::number::Number;
use super::utf8::Utf8;

/// Deepest nesting that is followed.
const MAX_DEPTH: u32 = 64;
/// Most values that are looked at.
const MAX_NODES: u32 = 1 << 20;

/// Why reading ended before the text did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// Not JSON, or not of the call's shape.
    Malformed,
    /// A budget.
    Cut(Cut),
}

/// What kind of value encloses others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Object,
    Array,
}

/// A value without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    True,
    False,
    Null,
}

/// Who is told. A string is `begin_*`, any number of `text`, `end_*`.
pub(super) trait Events {
    fn begin(&mut self, container: Container) -> Result<(), Halt>;
    fn end(&mut self, container: Container) -> Result<(), Halt>;
    fn begin_key(&mut self);
    fn end_key(&mut self) -> Result<(), Halt>;
    fn begin_string(&mut self) -> Result<(), Halt>;
    fn end_string(&mut self) -> Result<(), Halt>;
    /// Decoded bytes of the key or string begun.
    fn text(&mut self, run: &[u8]);
    fn number(&mut self, text: &[u8]) -> Result<(), Halt>;
    /// Whether the numbers of the innermost array are token ids, which may come many at a time.
    fn wants_ids(&self) -> bool;
    /// Token ids, four bytes each, big-endian.
    fn ids(&mut self, ids: &[u8]);
    fn literal(&mut self, literal: Literal) -> Result<(), Halt>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the one object.
    Root,
    Value,
    /// After `[`: a value or `]`.
    FirstValue,
    /// After `{`: a key or `}`.
    FirstKey,
    Key,
    Colon,
    AfterValue,
    Done,
    String,
    Escape,
    Unicode,
    Number,
    Literal(Literal),
}

/// Where in the text the reader is.
#[derive(Debug)]
pub(super) struct Json {
    state: State,
    depth: u32,
    /// One bit a level, the innermost lowest: 1 = object.
    objects: u64,
    nodes: u32,
    in_key: bool,
    utf8: Utf8,
    /// Digits of a `\u` escape: how many came, and their value.
    hex: (u8, u16),
    /// A high surrogate that waits for its low one.
    high: Option<u16>,
    /// Decoded text that has not left yet.
    run: Run,
    number: Number,
    /// What of a literal is still to come.
    literal: &'static [u8],
}

impl Json {
    pub(super) fn new() -> Self {
        Self {
            state: State::Root,
            depth: 0,
            objects: 0,
            nodes: 0,
            in_key: false,
            utf8: Utf8::default(),
            hex: (0, 0),
            high: None,
            run: Run::default(),
            number: Number::default(),
            literal: &[],
        }
    }

    /// The object is closed.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads one more piece of text.
    pub(super) fn feed<E: Events>(&mut self, piece: &[u8], events: &mut E) -> Result<(), Halt> {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match self.state {
                State::String => self.string(rest, events)?,
                State::Escape => self.escape(rest, events)?,
                State::Unicode => self.unicode(rest, events)?,
                State::Number => self.number(rest, events)?,
                State::Literal(literal) => self.literal(literal, rest, events)?,
                _ => self.structure(rest, events)?,
            };
        }
        Ok(())
    }

    fn structure<'a, E: Events>(
        &mut self,
        piece: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        let Some((&b, rest)) = piece.split_first() else {
            return Ok(piece);
        };
        if matches!(b, b' ' | b'\n' | b'\r' | b'\t') {
            let blank = |&b: &u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t');
            let skip = rest.iter().position(|b| !blank(b)).unwrap_or(rest.len());
            return Ok(rest.get(skip..).unwrap_or_default());
        }
        match (self.state, b) {
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterValue, b',') => {
                self.state = if self.objects & 1 == 1 {
                    State::Key
                } else {
                    State::Value
                };
            }
            (State::Key | State::FirstKey, b'"') => {
                events.begin_key();
                self.in_key = true;
                self.state = State::String;
            }
            (State::AfterValue | State::FirstKey, b'}') if self.objects & 1 == 1 => {
                self.close();
                events.end(Container::Object)?;
            }
            (State::AfterValue | State::FirstValue, b']')
                if self.objects & 1 == 0 && self.depth > 0 =>
            {
                self.close();
                events.end(Container::Array)?;
            }
            (State::Value | State::FirstValue, _) | (State::Root, b'{') => {
                return self.value(b, piece, rest, events);
            }
            _ => return Err(Halt::Malformed),
        }
        Ok(rest)
    }

    fn close(&mut self) {
        self.objects >>= 1;
        self.depth = self.depth.saturating_sub(1);
        self.state = if self.depth == 0 {
            State::Done
        } else {
            State::AfterValue
        };
    }

    fn open<E: Events>(&mut self, container: Container, events: &mut E) -> Result<(), Halt> {
        if self.depth >= MAX_DEPTH {
            return Err(Halt::Cut(Cut::Depth));
        }
        self.depth = self.depth.saturating_add(1);
        let is_object = container == Container::Object;
        self.objects = (self.objects << 1) | u64::from(is_object);
        self.state = if is_object {
            State::FirstKey
        } else {
            State::FirstValue
        };
        events.begin(container)
    }

    /// A value begins with `b`; `piece` has it, `rest` is after it.
    fn value<'a, E: Events>(
        &mut self,
        b: u8,
        piece: &'a [u8],
        rest: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            return Err(Halt::Cut(Cut::Nodes));
        }
        match b {
            b'"' => {
                events.begin_string()?;
                self.in_key = false;
                self.state = State::String;
            }
            b'{' => self.open(Container::Object, events)?,
            b'[' => self.open(Container::Array, events)?,
            b'-' | b'0'..=b'9' => {
                if self.objects & 1 == 0 && events.wants_ids() {
                    let used = self.ids(piece, events);
                    if used > 0 {
                        return Ok(piece.get(used..).unwrap_or_default());
                    }
                }
                self.number.reset();
                self.state = State::Number;
                return Ok(piece);
            }
            b't' => (self.state, self.literal) = (State::Literal(Literal::True), b"rue"),
            b'f' => (self.state, self.literal) = (State::Literal(Literal::False), b"alse"),
            b'n' => (self.state, self.literal) = (State::Literal(Literal::Null), b"ull"),
            _ => return Err(Halt::Malformed),
        }
        Ok(rest)
    }

    fn number<'a, E: Events>(&mut self, piece: &'a [u8], events: &mut E) -> Result<&'a [u8], Halt> {
        let len = self.number.advance(piece).ok_or(Halt::Malformed)?;
        let Some((text, rest)) = piece.split_at_checked(len) else {
            return Err(Halt::Malformed);
        };
        if rest.is_empty() {
            self.number.keep(text);
            return Ok(rest);
        }
        if !self.number.may_end() {
            return Err(Halt::Malformed);
        }
        self.state = State::AfterValue;
        match self.number.kept(text) {
            None => events.number(text)?,
            Some(kept) => events.number(kept)?,
        }
        Ok(rest)
    }

    fn literal<'a, E: Events>(
        &mut self,
        literal: Literal,
        piece: &'a [u8],
        events: &mut E,
    ) -> Result<&'a [u8], Halt> {
        let mut rest = piece;
        while let Some((&want, left)) = self.literal.split_first() {
            let Some((&b, after)) = rest.split_first() else {
                return Ok(rest);
            };
            if b != want {
                return Err(Halt::Malformed);
            }
            (self.literal, rest) = (left, after);
        }
        self.state = State::AfterValue;
        events.literal(literal)?;
        Ok(rest)
    }
}
