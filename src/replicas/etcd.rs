//! etcd 3.4 or later, through its JSON gateway.
//!
//! Each replica owns a ring of [`RING`] keys under the group's prefix, all on its lease; a message goes into the next
//! one. A range over the prefix with `min_mod_revision` gives what is new of everybody. So a replica makes two calls
//! an interval, however many replicas there are, and a third one now and then for its lease.
//!
//! Source: etcd's `rpc.proto` and its JSON mapping: 64-bit numbers are strings, bytes are base64.
//!
//! Cost: O(bytes).

use super::base64;
use super::store::{Query, Store, Trouble, What};
use crate::clock::Millis;
use crate::raw_json;

/// Messages of one replica that are there at a time.
const RING: u32 = 16;
/// Messages read by one call at most.
const MAX_READ: usize = 128;
/// A replica's keys go when it was silent for so long.
const LEASE_SECONDS: u32 = 15;
const KEEP_PERIOD_MS: u64 = 5_000;
/// Without a lease one is asked for this often.
const GRANT_PERIOD_MS: u64 = 1_000;

/// The protocol's state.
#[derive(Debug)]
pub struct Etcd {
    prefix: String,
    lease: Option<u64>,
    kept_at: Option<Millis>,
    revision: Option<u64>,
}

impl Store for Etcd {
    fn new(group: &str) -> Self {
        Self {
            // With its length no group's prefix begins another one's.
            prefix: format!("warmroute/1/{}/{group}/", group.len()),
            lease: None,
            kept_at: None,
            revision: None,
        }
    }

    fn keep(&mut self, now: Millis) -> Option<Query> {
        let period_ms = if self.lease.is_some() {
            KEEP_PERIOD_MS
        } else {
            GRANT_PERIOD_MS
        };
        if self.kept_at.is_some_and(|at| !now.is_over(at, period_ms)) {
            return None;
        }
        self.kept_at = Some(now);
        Some(match self.lease {
            Some(lease) => query(
                What::Keep,
                "/v3/lease/keepalive",
                format!(r#"{{"ID":"{lease}"}}"#),
            ),
            None => query(
                What::Keep,
                "/v3/lease/grant",
                format!(r#"{{"TTL":"{LEASE_SECONDS}"}}"#),
            ),
        })
    }

    fn put(&mut self, process: u64, number: u32, message: &[u8]) -> Option<Query> {
        let lease = self.lease?;
        let key = format!("{}{process:016x}/{}", self.prefix, number % RING);
        let (key, value) = (base64::encode(key.as_bytes()), base64::encode(message));
        let body = format!(r#"{{"key":"{key}","value":"{value}","lease":"{lease}"}}"#);
        Some(query(What::Put, "/v3/kv/put", body))
    }

    fn read(&mut self) -> Option<Query> {
        let from = self.revision?.saturating_add(1);
        let key = base64::encode(self.prefix.as_bytes());
        // All keys that begin with the prefix: up to the one with its `/` replaced by the next character.
        let mut end = self.prefix.clone();
        end.pop();
        end.push('0');
        let end = base64::encode(end.as_bytes());
        let body = format!(
            r#"{{"key":"{key}","range_end":"{end}","min_mod_revision":"{from}","sort_target":"MOD","sort_order":"ASCEND","limit":"{MAX_READ}"}}"#
        );
        Some(query(What::Read, "/v3/kv/range", body))
    }

    fn skip(&mut self) {
        self.revision = None;
    }

    fn answer(
        &mut self,
        what: What,
        status: u32,
        body: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Trouble> {
        if status != 200 {
            if what != What::Read {
                // The lease may be what it lacks; the next one is asked for.
                self.lease = None;
            }
            return Err(Trouble(format!("it answers HTTP {status}")));
        }
        let mut answer = Answer::default();
        let mut last = 0;
        for (key, value) in pairs(body) {
            let number = || core::str::from_utf8(value).ok()?.parse().ok();
            match key {
                b"revision" => answer.revision = number(),
                b"ID" => answer.id = number(),
                b"TTL" => answer.is_alive = value != b"0",
                b"mod_revision" => last = number().unwrap_or(last),
                b"value" if what == What::Read => {
                    answer.entries = answer.entries.saturating_add(1);
                    take(&base64::decode(value).unwrap_or_default());
                }
                _ => {}
            }
        }
        let known = if what == What::Keep {
            answer.id
        } else {
            answer.revision
        };
        let known = known.ok_or_else(Trouble::unreadable)?;
        match what {
            // One that is over has no time to live.
            What::Keep => self.lease = answer.is_alive.then_some(known),
            // A place behind our own message is one of a store that lost what it had.
            What::Put if self.revision.is_none_or(|reached| reached > known) => {
                self.revision = Some(known);
            }
            What::Put => {}
            What::Read if self.revision > Some(known) => self.revision = Some(0),
            What::Read => {
                let is_all = answer.entries < MAX_READ;
                self.revision = self.revision.max(Some(if is_all { known } else { last }));
            }
        }
        Ok(())
    }
}

fn query(what: What, path: &'static str, body: String) -> Query {
    Query {
        what,
        path,
        bytes: body.into_bytes(),
    }
}

/// What an answer says, whichever call it is for.
#[derive(Default)]
struct Answer {
    revision: Option<u64>,
    id: Option<u64>,
    is_alive: bool,
    entries: usize,
}

/// The members of all objects in a JSON text whose values are strings, in order. All that is wanted of etcd's
/// answers is such, needs no escapes, and has a name of its own at any depth; typed readers would be several
/// times as large in the plugin.
fn pairs(mut text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    core::iter::from_fn(move || {
        loop {
            let at = text.iter().position(|byte| *byte == b'"')?;
            let (key, behind) = raw_json::string(text.get(at..)?)?;
            text = behind;
            let value = behind.trim_ascii_start().strip_prefix(b":");
            if let Some((value, behind)) =
                value.and_then(|v| raw_json::string(v.trim_ascii_start()))
            {
                text = behind;
                return Some((key, value));
            }
        }
    })
}
