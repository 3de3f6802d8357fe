//! Responses: first tokens, usage, load headers; looked at, never held, never changed.

pub mod orca;
pub mod usage;

/// Whether a `content-type` value names a stream of server-sent events.
#[must_use]
pub fn is_event_stream(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|&b| b == b';').next();
    media_type.is_some_and(|media_type| {
        media_type
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}
