//! Which API call a path names.
//!
//! Calls are told by the end of the path, so that gateways may mount them under any prefix.

/// A call that carries a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI completions.
    Completions,
    /// OpenAI Responses.
    Responses,
    /// Anthropic messages.
    Messages,
    /// OpenAI embeddings.
    Embeddings,
    /// SGLang's native call.
    Generate,
}

/// Ends of paths, the longer before what it ends with.
const SUFFIXES: [(&[u8], Api); 6] = [
    (b"/chat/completions", Api::Chat),
    (b"/completions", Api::Completions),
    (b"/responses", Api::Responses),
    (b"/v1/messages", Api::Messages),
    (b"/embeddings", Api::Embeddings),
    (b"/generate", Api::Generate),
];

impl Api {
    /// The call that `path` (with or without a query) names; `None` for everything else, such as
    /// `/v1/messages/count_tokens`.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let path = path
            .split(|&b| b == b'?' || b == b'#')
            .next()
            .unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        SUFFIXES
            .iter()
            .find(|(suffix, _)| path.ends_with(suffix))
            .map(|&(_, api)| api)
    }
}
