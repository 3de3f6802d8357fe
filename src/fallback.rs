//! Every reason for which a request is left to the gateway's own load balancing.
//!
//! One place, one enum: a variant is a counter (`warmroute_fallback_total` by reason), a README row
//! and a test. A fallback is never an error for the user.

/// Why a request was not steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// The headers ended the request: GET, HEAD, DELETE, or an empty body.
    NoBody,
    /// The path is none of the calls that carry a prompt.
    UnsupportedCall,
    /// A protocol upgrade (WebSocket): never held.
    Upgrade,
    /// `content-encoding` is set: the body is not plain JSON text.
    Encoded,
    /// `content-length` is over what may be held; not held at all.
    TooLarge,
    /// The body is no JSON object of this call's shape; the engine will answer for it.
    Malformed,
    /// The body ended before its `content-length`.
    Truncated,
    /// A call that we know, without a prompt in it.
    NoPrompt,
    /// No rule of the configuration matches the request.
    NoRule,
    /// The gateway or the configuration names no endpoints.
    NoEndpoints,
    /// Every endpoint is unhealthy, draining, excluded or cooling down.
    NoneEligible,
    /// A host call failed where the pick needed it.
    HostCallFailed,
}

impl Fallback {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 12] = [
        Self::NoBody,
        Self::UnsupportedCall,
        Self::Upgrade,
        Self::Encoded,
        Self::TooLarge,
        Self::Malformed,
        Self::Truncated,
        Self::NoPrompt,
        Self::NoRule,
        Self::NoEndpoints,
        Self::NoneEligible,
        Self::HostCallFailed,
    ];

    /// The reason as metrics, logs and the documentation spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoBody => "no_body",
            Self::UnsupportedCall => "unsupported_call",
            Self::Upgrade => "upgrade",
            Self::Encoded => "encoded",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Truncated => "truncated",
            Self::NoPrompt => "no_prompt",
            Self::NoRule => "no_rule",
            Self::NoEndpoints => "no_endpoints",
            Self::NoneEligible => "none_eligible",
            Self::HostCallFailed => "host_call_failed",
        }
    }
}
