//! What one worker knows and has decided lately, as JSON for people and scripts.
//!
//! Holds the writer, the bounded ring of decisions, and who may read. No prompt text and no header value
//! is in it: addresses, names of clusters, figures. A [`Report`] is always valid JSON: a text that would
//! need escapes, or would end a page's script, is not shown. Cost: nothing is kept unless
//! `debug.path` is set; then a short text a decision. Nothing is inlined: it runs seldom.

use core::fmt::Write as _;

use crate::clock::Millis;
use crate::config::DebugPage;
use crate::number::to_u32;

/// Decisions kept.
const DECISIONS: usize = 32;

/// The last decisions, the last one first: when, and the text that tells it.
#[derive(Debug, Default)]
pub struct Decisions(Vec<(Millis, String)>);

impl Decisions {
    /// Keeps a decision about a request to a cluster; the oldest one goes.
    #[inline(never)]
    pub fn keep(&mut self, cluster: &str, note: &str, now: Millis) {
        let mut told = Report::default();
        told.text("cluster", cluster);
        told.text("decision", note);
        self.0.truncate(DECISIONS - 1);
        self.0.insert(0, (now, told.0));
    }

    /// Tells them.
    pub fn tell(&self, report: &mut Report, now: Millis) {
        report.open("decisions", '[');
        for (at, told) in &self.0 {
            report.open("", '{');
            report.counts(&[("ms_ago", now.since(*at))]);
            report.key("");
            report.0.push_str(told);
            report.close('}');
        }
        report.close(']');
    }
}

/// A JSON text that grows.
#[derive(Debug, Default)]
pub struct Report(pub String);

impl Report {
    /// Begins an object (`{`) or a list (`[`); entries of a list have no key.
    #[inline(never)]
    pub fn open(&mut self, key: &str, bracket: char) {
        self.key(key);
        self.0.push(bracket);
    }

    /// Ends it.
    #[inline(never)]
    pub fn close(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    /// Whole numbers.
    #[inline(never)]
    pub fn counts(&mut self, counts: &[(&str, u64)]) {
        for (key, value) in counts {
            self.key(key);
            let _ = write!(self.0, "{value}");
        }
    }

    /// Figures of 0 or more in thousandths; null where one is not known.
    #[inline(never)]
    pub fn figures(&mut self, figures: &[(&str, Option<f64>)]) {
        for (key, value) in figures {
            self.key(key);
            let Some(value) = value else {
                self.0.push_str("null");
                continue;
            };
            let whole = to_u32(*value);
            let thousandths = to_u32((value - f64::from(whole)) * 1000.0).min(999);
            let _ = write!(self.0, "{whole}.{thousandths:03}");
        }
    }

    /// A text.
    #[inline(never)]
    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.quote(value);
    }

    #[inline(never)]
    fn key(&mut self, key: &str) {
        if !self.0.is_empty() && !self.0.ends_with(['{', '[']) {
            self.0.push(',');
        }
        if !key.is_empty() {
            self.quote(key);
            self.0.push(':');
        }
    }

    /// Addresses and names of clusters have no such characters; what a header named as one may have.
    #[inline(never)]
    fn quote(&mut self, text: &str) {
        let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\' | b'<');
        self.0.push('"');
        self.0.push_str(if text.bytes().all(is_plain) {
            text
        } else {
            "(unprintable)"
        });
        self.0.push('"');
    }
}

/// A request that may be one for the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visit<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`, with its query.
    pub path: &'a [u8],
    /// `accept`.
    pub accept: &'a [u8],
    /// The secret that it names; empty = none.
    pub secret: &'a [u8],
    /// Who sent it, as the gateway takes it: `ip:port`.
    pub peer: &'a [u8],
    /// The address that it came to, which no header can change.
    pub local: &'a [u8],
    /// `x-forwarded-for`.
    pub forwarded_for: &'a [u8],
    /// It has a header `forwarded`.
    pub is_forwarded: bool,
}

/// How the report is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Json,
    /// In a page.
    Html,
}

impl Visit<'_> {
    /// Whether the path is that of the page; a query may follow.
    #[must_use]
    pub fn is_to(&self, page: &DebugPage) -> bool {
        let query = self.path.strip_prefix(page.path.as_bytes());
        let is_path = query.is_some_and(|query| query.first().is_none_or(|byte| *byte == b'?'));
        is_path && self.method == b"GET"
    }

    /// How the report is wanted; `None` where this request may not have it.
    #[must_use]
    #[inline(never)]
    pub fn form(&self, page: &DebugPage) -> Option<Form> {
        let is_allowed = match &page.secret {
            Some(secret) => secret.is(self.secret),
            None => self.is_local(),
        };
        if !self.is_to(page) || !is_allowed {
            return None;
        }
        let is_json =
            self.path.ends_with(b"?format=json") || self.accept.starts_with(b"application/json");
        Some(if is_json { Form::Json } else { Form::Html })
    }

    /// From this machine to this machine. A gateway may take the sender's address from `x-forwarded-for`,
    /// which anybody can write: so the address that the request came to counts too, and whoever is said to
    /// have forwarded it.
    fn is_local(&self) -> bool {
        let mut forwarders = self.forwarded_for.split(|byte| *byte == b',');
        is_loopback(self.peer)
            && is_loopback(self.local)
            && !self.is_forwarded
            && (self.forwarded_for.is_empty() || forwarders.all(is_loopback))
    }
}

/// With or without a port, as gateways write them.
#[inline(never)]
fn is_loopback(address: &[u8]) -> bool {
    let address = address.trim_ascii();
    let of: [&[u8]; 3] = [b"127.", b"[::1]:", b"[::ffff:127."];
    address == b"::1" || of.iter().any(|of| address.starts_with(of))
}

#[cfg(test)]
mod tests;
