//! Redis 5 or later, or Valkey: one stream for all replicas of a group, in RESP.
//!
//! `XADD` appends a message and drops the oldest past [`MAX_LENGTH`]; `XREAD` gives what came after a place,
//! everybody's at once. So a replica makes two calls an interval, however many replicas there are, and a third one
//! now and then: `PEXPIRE`, so that the stream goes when nobody writes any more. A key a replica would take one call
//! more (who is there?) and give everybody's whole value each time.
//!
//! One command a call: the gateway pairs each call with one answer, and other plugins use the same connection.
//!
//! Cost: O(bytes).

use super::store::{Query, Store, Trouble, What};
use crate::clock::Millis;

/// Messages in the stream, about.
const MAX_LENGTH: &str = "1024";
/// Messages read by one call at most.
const MAX_READ: &str = "128";
/// The stream goes when nothing kept it for so long.
const EXPIRY: &str = "60000";
const KEEP_PERIOD_MS: u64 = 20_000;
/// A reader begins so far back, by the store's clock.
const BACK_MS: u64 = 1_000;

/// The protocol's state.
#[derive(Debug)]
pub struct Redis {
    key: String,
    cursor: Option<(u64, u64)>,
    kept_at: Option<Millis>,
}

impl Store for Redis {
    fn new(group: &str) -> Self {
        Self {
            key: format!("warmroute:1:{group}"),
            cursor: None,
            kept_at: None,
        }
    }

    fn keep(&mut self, now: Millis) -> Option<Query> {
        if self.cursor.is_none()
            || self
                .kept_at
                .is_some_and(|at| !now.is_over(at, KEEP_PERIOD_MS))
        {
            return None;
        }
        self.kept_at = Some(now);
        Some(query(
            What::Keep,
            &[b"PEXPIRE", self.key.as_bytes(), EXPIRY.as_bytes()],
        ))
    }

    fn put(&mut self, _process: u64, _number: u32, message: &[u8]) -> Option<Query> {
        let (key, most) = (self.key.as_bytes(), MAX_LENGTH.as_bytes());
        Some(query(
            What::Put,
            &[b"XADD", key, b"MAXLEN", b"~", most, b"*", b"m", message],
        ))
    }

    fn read(&mut self) -> Option<Query> {
        let (ms, at) = self.cursor?;
        let (key, from) = (self.key.as_bytes(), format!("{ms}-{at}"));
        let most = MAX_READ.as_bytes();
        Some(query(
            What::Read,
            &[b"XREAD", b"COUNT", most, b"STREAMS", key, from.as_bytes()],
        ))
    }

    fn skip(&mut self) {
        self.cursor = None;
    }

    fn answer(
        &mut self,
        what: What,
        _status: u32,
        body: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Trouble> {
        if let Some(error) = body.strip_prefix(b"-") {
            // Its first word is a code, such as NOAUTH or OOM; the rest may be anything.
            let is_code = |byte: &&u8| byte.is_ascii_uppercase();
            let code = error.iter().take_while(is_code).take(24);
            let code: String = code.map(|byte| char::from(*byte)).collect();
            return Err(Trouble(format!("it refuses: {code}")));
        }
        let mut reply = Reply(body);
        match what {
            What::Keep => {}
            What::Put => {
                let id = reply.bulk().and_then(id);
                let (ms, at) = id.ok_or_else(Trouble::unreadable)?;
                // A place behind our own message is one of a stream that is no more.
                if self.cursor.is_none_or(|cursor| cursor > (ms, at)) {
                    self.cursor = Some((ms.saturating_sub(BACK_MS), 0));
                }
            }
            What::Read => self
                .entries(&mut reply, take)
                .ok_or_else(Trouble::unreadable)?,
        }
        Ok(())
    }
}

impl Redis {
    /// `[[key, [[id, [field, value, ...]], ...]]]`, or nil when nothing is new.
    fn entries(&mut self, reply: &mut Reply<'_>, take: &mut dyn FnMut(&[u8])) -> Option<()> {
        if reply.array()? == 0 {
            return Some(());
        }
        reply.array()?;
        reply.bulk()?;
        for _ in 0..reply.array()? {
            reply.array()?;
            let id = id(reply.bulk()?)?;
            self.cursor = self.cursor.max(Some(id));
            let mut value: &[u8] = &[];
            for place in 0..reply.array()? {
                let part = reply.bulk()?;
                if place == 1 {
                    value = part;
                }
            }
            take(value);
        }
        Some(())
    }
}

/// A command as RESP wants it: an array of bulk strings.
fn query(what: What, parts: &[&[u8]]) -> Query {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend(format!("${}\r\n", part.len()).into_bytes());
        bytes.extend(*part);
        bytes.extend(b"\r\n");
    }
    Query {
        what,
        path: "",
        bytes,
    }
}

/// `milliseconds-number`.
fn id(bytes: &[u8]) -> Option<(u64, u64)> {
    let (ms, number) = core::str::from_utf8(bytes).ok()?.split_once('-')?;
    Some((ms.parse().ok()?, number.parse().ok()?))
}

/// What is left of a reply.
struct Reply<'a>(&'a [u8]);

impl<'a> Reply<'a> {
    /// The number on a line that begins with `kind`; 0 for nil.
    fn number(&mut self, kind: u8) -> Option<usize> {
        let end = self.0.iter().position(|byte| *byte == b'\r')?;
        let (line, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.strip_prefix(b"\r\n")?;
        if line == b"_" || line == b"*-1" || line == b"$-1" {
            return Some(0);
        }
        let (first, number) = line.split_first()?;
        let number = core::str::from_utf8(number).ok()?.parse().ok()?;
        (*first == kind).then_some(number)
    }

    fn array(&mut self) -> Option<usize> {
        self.number(b'*')
    }

    fn bulk(&mut self) -> Option<&'a [u8]> {
        let size = self.number(b'$')?;
        let (bulk, rest) = self.0.split_at_checked(size)?;
        self.0 = rest.strip_prefix(b"\r\n")?;
        Some(bulk)
    }
}
