//! Saying no: what the plugin answers itself, where `overload.mode` is `shed` and never else.
//!
//! Full means that every endpoint that could be picked is past a limit by figures that are there and
//! fresh; one that nothing fresh is known of ends it. Only requests that say that they can wait are
//! turned away then. Where nobody can be picked at all, everybody is.
//!
//! Codes as in the Endpoint Picker Protocol 1.0: 429 shed, 503 no endpoint. Priorities as in the Gateway
//! API Inference Extension: below 0 is sheddable.

use crate::config::OverloadOptions;
use crate::pick::Signals;
use crate::request::Api;

/// Weight of figures from which they are fresh enough to turn a request away.
const FRESH: f64 = 2.0 / 3.0;
/// Seconds after which a client should try again.
pub const RETRY_AFTER_S: &str = "1";

/// Why a request is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Every endpoint is full, and the request can wait.
    Overloaded,
    /// Every endpoint is unhealthy, draining, excluded or cooling down.
    NoneEligible,
}

impl Refusal {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 2] = [Self::Overloaded, Self::NoneEligible];

    /// HTTP status of the answer.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Overloaded => 429,
            Self::NoneEligible => 503,
        }
    }

    /// The same as metrics, logs and the documentation spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "429",
            Self::NoneEligible => "503",
        }
    }

    /// The answer's body, in the style of the call's API.
    #[must_use]
    pub fn body(self, api: Api) -> String {
        let (kind, message) = match self {
            Self::Overloaded => ("rate_limit_error", "All engines are busy; try again later."),
            Self::NoneEligible => ("overloaded_error", "No engine can take the request now."),
        };
        if api == Api::Messages {
            return format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#
            );
        }
        let code = self.status();
        format!(
            r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":{code}}}}}"#
        )
    }
}

/// Whether a request of this priority can be turned away.
#[must_use]
pub fn is_sheddable(priority: &[u8]) -> bool {
    let text = core::str::from_utf8(priority).unwrap_or_default().trim();
    text.eq_ignore_ascii_case("sheddable") || text.parse().is_ok_and(|number: i64| number < 0)
}

/// Whether an endpoint is known to be past a limit.
#[must_use]
pub fn is_full(signals: &Signals, limits: &OverloadOptions) -> bool {
    signals.freshness >= FRESH
        && (signals
            .waiting
            .is_some_and(|waiting| waiting > f64::from(limits.queue_depth))
            || signals.kv_use.is_some_and(|share| share > limits.kv_use))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_does_not_say_so_can_not_be_turned_away() {
        for (priority, can) in [
            (&b""[..], false),
            (b"0", false),
            (b"7", false),
            (b"-1", true),
            (b" -20 ", true),
            (b"Sheddable", true),
            (b"critical", false),
            (b"-", false),
            (b"-1,5", false),
            (b"-99999999999999999999", false),
            (b"\xff-1", false),
        ] {
            assert_eq!(is_sheddable(priority), can, "{priority:?}");
        }
    }

    #[test]
    fn an_endpoint_is_full_by_fresh_figures_past_a_limit_alone() {
        let limits = OverloadOptions {
            queue_depth: 5,
            kv_use: 0.8,
            priority_header: String::new(),
        };
        let signals = |waiting, kv_use, freshness| Signals {
            waiting,
            kv_use,
            freshness,
            ..Signals::default()
        };
        assert!(is_full(&signals(Some(6.0), None, 1.0), &limits));
        assert!(is_full(&signals(None, Some(0.81), 0.7), &limits));
        assert!(!is_full(&signals(Some(5.0), Some(0.8), 1.0), &limits));
        assert!(!is_full(&signals(Some(60.0), Some(1.0), 0.6), &limits));
        assert!(!is_full(&signals(None, None, 1.0), &limits));
    }

    #[test]
    fn bodies_are_json_of_their_api() {
        for refusal in Refusal::ALL {
            let parse = |api| serde_json::from_str::<serde_json::Value>(&refusal.body(api));
            let openai = parse(Api::Chat).unwrap();
            assert_eq!(openai["error"]["code"], refusal.status());
            let anthropic = parse(Api::Messages).unwrap();
            assert_eq!(anthropic["type"], "error");
            assert_eq!(anthropic["error"]["type"], openai["error"]["type"]);
        }
    }
}
