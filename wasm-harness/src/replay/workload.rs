//! Workloads: a trace file, or traffic generated from a seed.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use warmroute::pick::rendezvous;

use super::{BLOCK_TOKENS, Request};

/// One line of a trace in the format of the Mooncake paper.
#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads the first `limit` requests of a trace, played `speed` times as fast.
///
/// The blocks are taken for messages: a system prompt, then user and assistant in turn.
///
/// # Errors
/// When the file cannot be read, or a line is none of this format.
pub fn trace(path: &Path, limit: usize, speed: f64) -> Result<Vec<Request>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut requests = Vec::new();
    for (number, line) in text.lines().take(limit).enumerate() {
        let line: Line = serde_json::from_str(line)
            .with_context(|| format!("{} line {}", path.display(), number + 1))?;
        ensure!(
            line.input_length > 0,
            "{} line {}: empty prompt",
            path.display(),
            number + 1
        );
        let before_last = line.hash_ids.len().saturating_sub(1) as u32 * BLOCK_TOKENS;
        requests.push(Request {
            at_ms: line.timestamp / speed,
            tokens: line.input_length,
            output_tokens: line.output_length,
            conversation: line
                .hash_ids
                .iter()
                .take(2)
                .fold(0, |h, id| rendezvous::weight(h, *id)),
            later_turn: line.hash_ids.len() > 2,
            head_tokens: before_last.min(line.input_length),
            blocks: line.hash_ids,
            turns: Vec::new(),
        });
    }
    ensure!(!requests.is_empty(), "{}: no request in it", path.display());
    Ok(requests)
}

/// Lets each request come up to `within_ms` later, by a seed: a trace whose clock is coarse has several requests at
/// one moment, which no two machines can tell each other of in time.
pub fn spread(requests: &mut [Request], within_ms: f64, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for request in requests.iter_mut() {
        request.at_ms += rng.f64() * within_ms;
    }
    requests.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
}

/// Kinds of generated traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// People who talk: a shared system prompt, a few turns, half a minute between them.
    Chat,
    /// Agents: long shared tools, many quick turns that grow by what tools return.
    Agents,
    /// Long documents, some asked about often.
    Documents,
    /// Many tenants, each with its own system prompt, some busy.
    Tenants,
    /// Prompts that nobody sends twice.
    OneShot,
    /// A new long prefix, sixteen times at once; then the next.
    Bursts,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Chat,
        Self::Agents,
        Self::Documents,
        Self::Tenants,
        Self::OneShot,
        Self::Bursts,
    ];

    /// The kind's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Agents => "agents",
            Self::Documents => "documents",
            Self::Tenants => "tenants",
            Self::OneShot => "one_shot",
            Self::Bursts => "bursts",
        }
    }
}

/// Generates `count` requests that keep `engines` busy for `load` (0..1) of their time, if every
/// prefix were found in a cache; `tokens_per_ms` is an engine's prefill rate.
#[must_use]
pub fn generate(
    kind: Kind,
    count: usize,
    engines: usize,
    tokens_per_ms: f64,
    load: f64,
    seed: u64,
) -> Vec<Request> {
    let mut maker = Maker {
        rng: fastrand::Rng::with_seed(seed),
        made: Vec::new(),
        fresh: (seed & 0xffff) << 32,
    };
    while maker.made.len() < count {
        maker.group(kind);
    }
    let mut made = maker.made;
    made.truncate(count);
    let mut seen = std::collections::HashSet::new();
    let mut computed = 0.0;
    for (_, body) in &made {
        let known = body
            .blocks
            .iter()
            .take_while(|block| seen.contains(*block))
            .count();
        computed += f64::from(
            body.tokens
                .saturating_sub(known as u32 * BLOCK_TOKENS)
                .max(1),
        );
        seen.extend(body.blocks.iter().copied());
    }
    let span_ms = computed / (engines as f64 * tokens_per_ms * load);
    let mut requests: Vec<Request> = made
        .into_iter()
        .map(|(start, body)| Request {
            at_ms: body.at_ms + start * span_ms,
            ..body
        })
        .collect();
    requests.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    requests
}

struct Maker {
    rng: fastrand::Rng,
    /// Where in the run (0..1) its group starts, and a request timed from there.
    made: Vec<(f64, Request)>,
    fresh: u64,
}

impl Maker {
    fn between(&mut self, low: u32, high: u32) -> u32 {
        self.rng.u32(low..=high)
    }

    /// Low numbers more often than high ones.
    fn popular(&mut self, of: u64) -> u64 {
        ((of as f64).powf(self.rng.f64()) as u64).min(of) - 1
    }

    /// Extends a prompt to `tokens`: new text from here on. Texts that are shared have the top bit.
    fn extend(&mut self, blocks: &mut Vec<u64>, tokens: u32) {
        while blocks.len() < tokens.div_ceil(BLOCK_TOKENS) as usize {
            self.fresh += 1;
            blocks.push(self.fresh);
        }
    }

    /// The blocks of a text that is the same wherever it is named.
    fn text(name: u64, tokens: u32) -> Vec<u64> {
        (0..u64::from(tokens / BLOCK_TOKENS))
            .map(|at| rendezvous::weight(name + 1, at + 1) | 1 << 63)
            .collect()
    }

    fn group(&mut self, kind: Kind) {
        match kind {
            Kind::Chat => {
                let head = Self::text(self.rng.u64(..4), 1024);
                let turns = self.between(1, 8);
                self.conversation(head, turns, (200, 1500), (100, 600), 8_000.0);
            }
            Kind::Agents => {
                let head = Self::text(self.rng.u64(..6), 6144);
                let turns = self.between(5, 25);
                self.conversation(head, turns, (300, 2500), (30, 200), 800.0);
            }
            Kind::Documents => {
                let name = self.popular(200);
                let length = 8192 + (rendezvous::weight(name, 7) % 40) as u32 * 1024;
                let head = Self::text(name + 1000, length);
                self.conversation(head, 1, (50, 400), (100, 400), 1.0);
            }
            Kind::Tenants => {
                let name = self.popular(300);
                let head = Self::text(name + 5000, 2048 + (name % 5) as u32 * 1024);
                self.conversation(head, 1, (200, 2000), (50, 400), 1.0);
            }
            Kind::OneShot => self.conversation(Vec::new(), 1, (500, 12_000), (50, 500), 1.0),
            Kind::Bursts => {
                let start = self.rng.f64();
                let mut head = Vec::new();
                let length = self.between(4, 16) * BLOCK_TOKENS;
                self.extend(&mut head, length);
                // Half of them share their first message, half only what stands before it.
                let shared = self.rng.bool();
                for _ in 0..16 {
                    let at = self.rng.f64() * 100.0;
                    let (whole, _) =
                        self.turn(start, at, &head, (50, 600), (50, 200), &[head.len()]);
                    let key = if shared { head.first() } else { whole.last() }.copied();
                    if let Some((_, body)) = self.made.last_mut() {
                        body.conversation = key.unwrap_or(0);
                    }
                }
            }
        }
    }

    fn conversation(
        &mut self,
        head: Vec<u64>,
        turns: u32,
        ask: (u32, u32),
        answer: (u32, u32),
        pause_ms: f64,
    ) {
        let start = self.rng.f64();
        let mut at_ms = 0.0;
        let mut before = Vec::new();
        let mut blocks = head;
        for _ in 0..turns {
            before.push(blocks.len());
            let (whole, answered_ms) = self.turn(start, at_ms, &blocks, ask, answer, &before);
            blocks = whole;
            at_ms += answered_ms + pause_ms * (0.3 + 1.4 * self.rng.f64());
        }
    }

    /// One request on top of `before`; returns the prompt with its answer, and the answer's time.
    fn turn(
        &mut self,
        start: f64,
        at_ms: f64,
        before: &[u64],
        ask: (u32, u32),
        answer: (u32, u32),
        turns: &[usize],
    ) -> (Vec<u64>, f64) {
        let head_tokens = before.len() as u32 * BLOCK_TOKENS;
        let tokens = head_tokens + self.between(ask.0, ask.1);
        let mut blocks = before.to_vec();
        self.extend(&mut blocks, tokens);
        let output_tokens = self.between(answer.0, answer.1);
        let own = blocks.iter().find(|block| **block >> 63 == 0);
        let body = Request {
            at_ms,
            tokens,
            output_tokens,
            conversation: own.copied().unwrap_or(0),
            later_turn: turns.len() > 1,
            head_tokens,
            turns: turns.to_vec(),
            blocks: blocks.clone(),
        };
        self.made.push((start, body));
        self.extend(&mut blocks, tokens + output_tokens);
        (blocks, f64::from(output_tokens) * 25.0)
    }
}
