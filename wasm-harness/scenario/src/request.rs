//! Requests and answers of a scenario.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::body::Body;

/// A client's request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its name in this file.
    pub name: String,
    /// The worker that serves it, from 0.
    #[serde(default)]
    pub worker: usize,
    /// The cluster that it goes to; absent = the gateway's.
    pub cluster: Option<String>,
    /// The route that it takes; absent = the gateway's.
    pub route: Option<String>,
    /// HTTP method.
    #[serde(default = "post")]
    pub method: String,
    /// HTTP path.
    #[serde(default = "chat_completions")]
    pub path: String,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body; absent = headers end the request.
    pub body: Option<Body>,
    /// Sizes of the first chunks; the rest comes in chunks of the last size. Empty = one chunk.
    #[serde(default)]
    pub chunks: Vec<usize>,
    /// Says no `content-length`.
    #[serde(default)]
    pub chunked: bool,
    /// Spoken over HTTP/2 where there is a wire: chunks are DATA frames. Requests with trailers always are.
    #[serde(default)]
    pub http2: bool,
    /// The end comes with these trailers, after the body.
    pub trailers: Option<BTreeMap<String, String>>,
    /// The body stops after this many bytes until a `finish` step.
    pub hold_after_bytes: Option<usize>,
    /// Where it must go.
    pub pick: Pick,
    /// Headers that the upstream must get; null = must not get, `*a*` = a value with `a` in it.
    #[serde(default)]
    pub upstream_headers: BTreeMap<String, Option<String>>,
    /// Status of a reply that the gateway or the plugin must give instead.
    pub local_reply: Option<u32>,
    /// What the access log must be told; `*a*` = something with `a` in it. Absent = it is free.
    pub access_log: Option<String>,
    /// It must hang.
    #[serde(default)]
    pub hangs: bool,
}

impl Request {
    /// `:authority`, which a header of this name sets.
    #[must_use]
    pub fn authority(&self) -> &str {
        let named = self.headers.get(":authority");
        named.map_or("llm.example", String::as_str)
    }

    /// The chunks of a body of `total` bytes from `sent` on, each with whether it ends the request; all
    /// of them when `rest`, else up to where the request holds.
    #[must_use]
    pub fn plan(&self, mut sent: usize, total: usize, rest: bool) -> Vec<(Range<usize>, bool)> {
        let held = self.hold_after_bytes.filter(|_| !rest);
        let until = held.unwrap_or(total).min(total);
        let mut sizes = self.chunks.iter().copied();
        let mut size = total;
        let mut plan = Vec::new();
        while sent < until {
            size = sizes.next().unwrap_or(size).max(1);
            let end = sent.saturating_add(size).min(until);
            plan.push((sent..end, end == total && self.trailers.is_none()));
            sent = end;
        }
        plan
    }
}

fn post() -> String {
    "POST".to_owned()
}

fn chat_completions() -> String {
    "/v1/chat/completions".to_owned()
}

/// Where a request must go.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// To this address.
    To(String),
    /// To one of these.
    OneOf(Vec<String>),
    /// Where the request of this name went.
    SameAs(String),
    /// Elsewhere than the request of this name.
    NotAs(String),
    /// Anywhere, but picked.
    Any,
    /// Left to the gateway.
    None,
}

/// The upstream's answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// The request's name.
    pub to: String,
    /// HTTP status.
    #[serde(default = "ok")]
    pub status: u16,
    /// Who served; absent = who was picked.
    pub served_by: Option<String>,
    /// How many endpoints the gateway tried; absent = 1.
    pub attempts: Option<u64>,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body chunks, word for word.
    #[serde(default)]
    pub body: Vec<String>,
    /// The answer goes on: its end does not come, the stream stays open for an `abort`.
    #[serde(default)]
    pub goes_on: bool,
    /// Headers that the client must get; null = must not get, `*a*` = a value with `a` in it.
    #[serde(default)]
    pub downstream_headers: BTreeMap<String, Option<String>>,
}

fn ok() -> u16 {
    200
}
