//! What an endpoint is for, where prompts are computed by others than those that answer.

/// What an endpoint does of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// It answers.
    pub decodes: bool,
    /// It computes prompts for others.
    pub prefills: bool,
}

/// Parts of a request's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The answer.
    Decode,
    /// The prompt, where another endpoint answers.
    Prefill,
}

impl Role {
    /// Whether it does this part.
    #[must_use]
    pub fn plays(self, part: Part) -> bool {
        match part {
            Part::Decode => self.decodes,
            Part::Prefill => self.prefills,
        }
    }
}
