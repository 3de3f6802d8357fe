//! What this worker knows, answered to who may read it (`debug.path`).
//!
//! The page is one file without anything to fetch: its script ends with a call that gets the report, and a
//! refresh asks anew.

use super::abi::{self, Map};
use super::now;
use super::root::Worker;
use crate::engine::Engine;
use crate::report::{Form, Visit};

/// The request header that names the secret.
const SECRET_HEADER: &str = "x-warmroute-secret";
/// The page up to the report, and what follows it.
const PAGE: &str = include_str!("debug_page.html");
const PAGE_END: &str = ")</script>";

/// Answers the request if it is one for the page; `false` = it goes its way.
#[inline(never)]
pub fn answer(worker: &Worker, engine: &Engine) -> bool {
    let Some(page) = &engine.config.debug.page else {
        return false;
    };
    let header = |name: &str| abi::header(Map::RequestHeaders, name).unwrap_or_default();
    let [method, path] = [":method", ":path"].map(header);
    let visit = Visit {
        method: &method,
        path: &path,
        ..Visit::default()
    };
    if !visit.is_to(page) {
        return false;
    }
    let [accept, secret, forwarded_for, forwarded] =
        ["accept", SECRET_HEADER, "x-forwarded-for", "forwarded"].map(header);
    let [peer, local] = ["source\0address", "destination\0address"]
        .map(|path| abi::property(path).unwrap_or_default());
    let visit = Visit {
        accept: &accept,
        secret: &secret,
        peer: &peer,
        local: &local,
        forwarded_for: &forwarded_for,
        is_forwarded: !forwarded.is_empty(),
        ..visit
    };
    let Some(form) = visit.form(page) else {
        return false;
    };
    let report = engine.report(worker.identity.vm, now());
    let (kind, body) = match form {
        Form::Json => ("application/json", report),
        Form::Html => (
            "text/html; charset=utf-8",
            [PAGE, &report, PAGE_END].concat(),
        ),
    };
    let headers = [("content-type", kind), ("cache-control", "no-store")];
    abi::respond(200, &headers, &body).is_ok()
}
