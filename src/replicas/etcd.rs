//! etcd 3.4 or later, through its JSON gateway.
//!
//! Each replica owns a ring of [`RING`] keys under the group's prefix, all on its lease; a message goes into the next
//! one. A range over the prefix with `min_mod_revision` gives what is new of everybody. So a replica makes two calls
//! an interval, however many replicas there are, and a third one now and then for its lease.
//!
//! Source: etcd's `rpc.proto` and its JSON mapping: 64-bit numbers are strings, bytes are base64.
//!
//! Cost: O(bytes).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;

use super::store::{Query, Store, Trouble, What};
use crate::clock::Millis;

/// Messages of one replica that are there at a time.
const RING: u32 = 16;
/// Messages read by one call at most.
const MAX_READ: usize = 64;
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
            // No group's prefix begins another one's.
            prefix: format!("warmroute/1/{}/", group.replace('/', "%2F")),
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
        if self.kept_at.is_some_and(|at| now.since(at) < period_ms) {
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
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(message));
        let body = format!(r#"{{"key":"{key}","value":"{value}","lease":"{lease}"}}"#);
        Some(query(What::Put, "/v3/kv/put", body))
    }

    fn read(&mut self) -> Option<Query> {
        let from = self.revision?.saturating_add(1);
        let key = BASE64_STANDARD.encode(&self.prefix);
        // All keys that begin with the prefix: up to the one with its `/` replaced by the next character.
        let mut end = self.prefix.clone();
        end.pop();
        end.push('0');
        let end = BASE64_STANDARD.encode(end);
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
        let answer: Answer<'_> = serde_json::from_slice(body).map_err(|_| Trouble::unreadable())?;
        let revision = answer.header.revision.parse().ok();
        match what {
            What::Keep => {
                let (id, ttl) = answer
                    .result
                    .map_or((answer.id, answer.ttl), |kept| (kept.id, kept.ttl));
                // One that is over has no time to live.
                self.lease = id.parse().ok().filter(|_| !matches!(ttl, "" | "0"));
            }
            What::Put => {
                let now = revision.ok_or_else(Trouble::unreadable)?;
                // A place behind our own message is one of a store that lost what it had.
                if self.revision.is_none_or(|known| known > now) {
                    self.revision = Some(now);
                }
            }
            What::Read => {
                let mut reached = revision;
                for entry in &answer.kvs {
                    if answer.more {
                        reached = entry.mod_revision.parse().ok();
                    }
                    take(&BASE64_STANDARD.decode(entry.value).unwrap_or_default());
                }
                self.revision = self.revision.max(reached);
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

/// What any of the calls answers. Nothing in it needs escapes, so all is borrowed.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default, borrow)]
    header: Header<'a>,
    #[serde(default, borrow)]
    kvs: Vec<Entry<'a>>,
    #[serde(default)]
    more: bool,
    #[serde(default, rename = "ID")]
    id: &'a str,
    #[serde(default, rename = "TTL")]
    ttl: &'a str,
    /// A lease that was kept alive: one of a stream of answers.
    #[serde(borrow)]
    result: Option<Lease<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header<'a> {
    revision: &'a str,
}

#[derive(Deserialize)]
struct Entry<'a> {
    mod_revision: &'a str,
    #[serde(default)]
    value: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    #[serde(rename = "TTL")]
    ttl: &'a str,
}
