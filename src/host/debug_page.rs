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
    let (method, path) = (header(":method"), header(":path"));
    let visit = Visit {
        method: &method,
        path: &path,
        ..Visit::default()
    };
    if !visit.is_to(page) {
        return false;
    }
    let names = ["accept", SECRET_HEADER, "x-forwarded-for", "forwarded"];
    let headers: Vec<Vec<u8>> = names.into_iter().map(header).collect();
    let paths = ["source\0address", "destination\0address"];
    let addresses = paths.into_iter().map(abi::property);
    let addresses: Vec<Vec<u8>> = addresses.map(Option::unwrap_or_default).collect();
    let ([accept, secret, forwarded_for, forwarded], [peer, local]) = (&*headers, &*addresses)
    else {
        return false;
    };
    let visit = Visit {
        accept,
        secret,
        peer,
        local,
        forwarded_for,
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

#[inline(never)]
fn header(name: &str) -> Vec<u8> {
    abi::header(Map::RequestHeaders, name).unwrap_or_default()
}
