//! The same for a host of wasm: it writes a body into the guest's memory, then asks for one part a call.
//!
//! Each call answers with something of its result, so that no part is optimised away.

use std::cell::RefCell;

use warmroute::request::{Api, Prompt};

use super::Parts;

thread_local! {
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PARTS: RefCell<Option<Parts>> = const { RefCell::new(None) };
}

/// Room for a body of so many bytes.
#[unsafe(no_mangle)]
extern "C" fn parts_body(bytes: usize) -> *mut u8 {
    BODY.with_borrow_mut(|body| {
        *body = vec![0; bytes];
        body.as_mut_ptr()
    })
}

/// Takes the body that was written: of a completion, or else a chat. 1 when it has a prompt.
#[unsafe(no_mangle)]
extern "C" fn parts_begin(is_completion: u32) -> u32 {
    let api = if is_completion == 0 {
        Api::Chat
    } else {
        Api::Completions
    };
    let parts = Parts::new(api, BODY.take());
    PARTS.with_borrow_mut(|place| {
        *place = parts;
        u32::from(place.is_some())
    })
}

/// Lets so many endpoints hold the prompt.
#[unsafe(no_mangle)]
extern "C" fn parts_hold(hosts: u32) {
    with(|parts| {
        parts.hold(u16::try_from(hosts).unwrap_or(u16::MAX));
        1
    });
}

#[unsafe(no_mangle)]
extern "C" fn parts_read() -> u64 {
    with(|parts| size(parts.read()))
}

#[unsafe(no_mangle)]
extern "C" fn parts_parse() -> u64 {
    with(|parts| size(parts.parse()))
}

#[unsafe(no_mangle)]
extern "C" fn parts_match() -> u64 {
    with(|parts| parts.find().into())
}

#[unsafe(no_mangle)]
extern "C" fn parts_record() -> u64 {
    with(|parts| {
        parts.record();
        1
    })
}

fn with(part: impl FnOnce(&mut Parts) -> u64) -> u64 {
    PARTS.with_borrow_mut(|parts| parts.as_mut().map_or(0, part))
}

/// Bytes of prompt.
fn size(prompt: Option<Prompt>) -> u64 {
    prompt.map_or(0, |prompt| prompt.bytes)
}
