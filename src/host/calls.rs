//! Calls of this VM whose answers are awaited.

#[cfg(feature = "envoy")]
use crate::discovery::Call;
use crate::replicas::store::What;

/// Answers that came before their call returned, at most.
const MAX_EARLY: usize = 256;

/// What a call was made for.
pub enum Out {
    /// Endpoints or their load.
    #[cfg(feature = "envoy")]
    Discovery(Call),
    /// The replicas' store.
    Store(What),
}

/// Calls by the gateway's token, with the rule that they are for.
#[derive(Default)]
pub struct Calls {
    out: Vec<(u32, usize, Out)>,
    early: Vec<u32>,
}

impl Calls {
    /// Notes a call; gives it back where its answer came before the call returned.
    pub fn made(&mut self, token: u32, rule: usize, out: Out) -> Option<Out> {
        if let Some(at) = self.early.iter().position(|early| *early == token) {
            self.early.swap_remove(at);
            return Some(out);
        }
        self.out.push((token, rule, out));
        None
    }

    /// The call that an answer is for.
    pub fn answered(&mut self, token: u32) -> Option<(usize, Out)> {
        let Some(at) = self.out.iter().position(|(known, ..)| *known == token) else {
            if self.early.len() < MAX_EARLY {
                self.early.push(token);
            }
            return None;
        };
        let (_, rule, out) = self.out.swap_remove(at);
        Some((rule, out))
    }

    /// Whether such a call is out.
    #[cfg(feature = "envoy")]
    pub fn is_any_out(&self, is_such: impl Fn(&Out) -> bool) -> bool {
        self.out.iter().any(|(.., out)| is_such(out))
    }
}
