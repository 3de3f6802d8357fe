//! The rules of the field, each as its authors describe it, on a book with exact own counts.
//!
//! Names are those of the reports: what proxies do by default (round robin, least request, power
//! of two, bounded consistent hash on the first characters, session hash) and what routers for
//! LLMs publish.

use warmroute::pick::rendezvous;

use super::book::Book;
use super::engine::Metrics;
use super::{BLOCK_TOKENS, End, Figures, Gateway, Request};

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// One after the other.
    RoundRobin,
    /// Fewest requests in flight.
    LeastRequest,
    /// The better of two at random.
    PowerOfTwo,
    /// A ring over the first characters, nobody above 1.25 of the mean load (KubeAI).
    FirstCharacters,
    /// The conversation's hash, whatever the load.
    SessionHash,
    /// Dynamo: uncached blocks ahead and own, and blocks of running requests by this weight.
    Dynamo(f64),
    /// LMetric: uncached tokens times the batch.
    LMetric,
    /// Preble: follow the cache where it holds more than half, else the least work.
    Preble,
    /// DualMap: two hashed choices, the second when the first is too slow.
    DualMap,
    /// llm-d: keep only those that hold 80 % unless they are far behind, then the least tokens.
    AffinityFilter,
    /// Ray Serve: best match while queues are balanced, else power of two.
    Ray,
    /// AIBrix: best match among those not above mean + deviation, then the fewest requests.
    AiBrix,
    /// SGLang cache_aware: best match while balanced, else the shortest queue.
    CacheAware,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 14] = [
        Self::RoundRobin,
        Self::LeastRequest,
        Self::PowerOfTwo,
        Self::FirstCharacters,
        Self::SessionHash,
        Self::Dynamo(0.1),
        Self::Dynamo(1.0),
        Self::LMetric,
        Self::Preble,
        Self::DualMap,
        Self::AffinityFilter,
        Self::Ray,
        Self::AiBrix,
        Self::CacheAware,
    ];

    /// The rule's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::PowerOfTwo => "power_of_two",
            Self::FirstCharacters => "first_characters",
            Self::SessionHash => "session_hash",
            Self::Dynamo(weight) if weight < 1.0 => "dynamo_0.1",
            Self::Dynamo(_) => "dynamo_1",
            Self::LMetric => "lmetric",
            Self::Preble => "preble",
            Self::DualMap => "dualmap",
            Self::AffinityFilter => "affinity_filter",
            Self::Ray => "ray",
            Self::AiBrix => "aibrix",
            Self::CacheAware => "cache_aware",
        }
    }
}

/// One worker that chooses by a rule.
pub struct Ruled {
    rule: Rule,
    book: Book,
    turn: usize,
    rng: fastrand::Rng,
}

impl Ruled {
    /// A worker with an empty book.
    #[must_use]
    pub fn new(rule: Rule, index_blocks: usize, seed: u64) -> Self {
        Self {
            rule,
            book: Book::new(index_blocks),
            turn: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn choose(&mut self, body: &Request, up: &[usize]) -> usize {
        let book = &self.book;
        let tokens = f64::from(body.tokens);
        let inflight = |e: usize| f64::from(book.page(e).inflight());
        let backlog = |e: usize| book.page(e).backlog_tokens();
        let matched = |e: usize| book.page(e).matched_tokens(body);
        let work = |e: usize| backlog(e) + tokens - matched(e);
        let batch = |e: usize| inflight(e) + 1.0;
        let rng = &mut self.rng;
        match self.rule {
            Rule::RoundRobin => {
                self.turn += 1;
                up[self.turn % up.len()]
            }
            Rule::LeastRequest => least(up, rng, inflight),
            Rule::PowerOfTwo => power_of_two(up, rng, inflight),
            Rule::FirstCharacters => {
                let key = body.blocks.first().copied().unwrap_or(0);
                let mean = (up.iter().map(|e| inflight(*e)).sum::<f64>() + 1.0) / up.len() as f64;
                let fits = |e: &usize| inflight(*e) < (mean * 1.25).ceil();
                home(up.iter().copied().filter(fits), key).unwrap_or(up[0])
            }
            Rule::SessionHash => home(up.iter().copied(), body.conversation).unwrap_or(up[0]),
            Rule::Dynamo(weight) => {
                let block = f64::from(BLOCK_TOKENS);
                least(up, rng, |e| {
                    work(e) / block + weight * book.page(e).active_tokens / block
                })
            }
            Rule::LMetric => least(up, rng, |e| work(e) * batch(e)),
            Rule::Preble => {
                let best = most(up, matched);
                if matched(best) * 2.0 > tokens {
                    best
                } else {
                    least(up, rng, work)
                }
            }
            Rule::DualMap => {
                let first = home(up.iter().copied(), body.conversation).unwrap_or(up[0]);
                let others = up.iter().copied().filter(|e| *e != first);
                let second = home(others, body.conversation ^ 0x5555_5555_5555_5555);
                match second {
                    Some(second) if backlog(first) > 10_000.0 && work(second) < work(first) => {
                        second
                    }
                    _ => first,
                }
            }
            Rule::AffinityFilter => {
                let hold = |e: &usize| matched(*e) >= 0.8 * tokens;
                let holders: Vec<usize> = up.iter().copied().filter(hold).collect();
                let anyone = least(up, rng, backlog);
                if holders.is_empty() {
                    return anyone;
                }
                let holder = least(&holders, rng, backlog);
                if backlog(holder) - backlog(anyone) > 20_000.0 {
                    anyone
                } else {
                    holder
                }
            }
            Rule::Ray => {
                let (low, high) = spread(up, inflight);
                let best = most(up, matched);
                if high - low < 10.0 && matched(best) >= 0.1 * tokens {
                    best
                } else {
                    power_of_two(up, rng, inflight)
                }
            }
            Rule::AiBrix => {
                let mean = up.iter().map(|e| inflight(*e)).sum::<f64>() / up.len() as f64;
                let variance = up
                    .iter()
                    .map(|e| (inflight(*e) - mean).powi(2))
                    .sum::<f64>()
                    / up.len() as f64;
                let limit = mean + variance.sqrt();
                let fits: Vec<usize> = up
                    .iter()
                    .copied()
                    .filter(|e| inflight(*e) <= limit)
                    .collect();
                let best = most(&fits, matched);
                let equal: Vec<usize> = fits
                    .iter()
                    .copied()
                    .filter(|e| matched(*e) == matched(best))
                    .collect();
                least(&equal, rng, inflight)
            }
            Rule::CacheAware => {
                let (low, high) = spread(up, inflight);
                if high - low > 32.0 && high > 1.1 * low {
                    return least(up, rng, inflight);
                }
                let best = most(up, matched);
                if matched(best) > 0.5 * tokens {
                    best
                } else {
                    least(up, rng, |e| book.page(e).indexed_blocks() as f64)
                }
            }
        }
    }
}

impl Gateway for Ruled {
    fn pick(&mut self, now_ms: f64, request: usize, body: &Request, up: &[bool]) -> usize {
        self.book.grow(up.len());
        let alive: Vec<usize> = (0..up.len()).filter(|engine| up[*engine]).collect();
        let engine = self.choose(body, &alive);
        self.book.sent(now_ms, request, body, engine);
        engine
    }

    fn first_token(&mut self, now_ms: f64, request: usize) {
        self.book.first_token(now_ms, request);
    }

    fn end(&mut self, now_ms: f64, request: usize, end: End) {
        self.book.end(now_ms, request, end);
    }

    fn metrics(&mut self, now_ms: f64, metrics: &[Option<Metrics>]) {
        self.book.metrics(now_ms, metrics);
    }

    fn left(&mut self, engine: usize) {
        self.book.left(engine);
    }

    fn figures(&self) -> Figures {
        Figures {
            predicted_tokens: self.book.predicted_tokens,
            ..Figures::default()
        }
    }
}

/// The engine with the lowest value; equal ones by chance.
fn least(engines: &[usize], rng: &mut fastrand::Rng, value: impl Fn(usize) -> f64) -> usize {
    let mut best = (f64::INFINITY, engines[0]);
    let mut ties = 0;
    for engine in engines {
        let value = value(*engine);
        if value < best.0 {
            best = (value, *engine);
            ties = 1;
        } else if value == best.0 {
            ties += 1;
            if rng.usize(..ties) == 0 {
                best.1 = *engine;
            }
        }
    }
    best.1
}

fn most(engines: &[usize], value: impl Fn(usize) -> f64) -> usize {
    let mut best = (f64::NEG_INFINITY, engines[0]);
    for engine in engines {
        let value = value(*engine);
        if value > best.0 {
            best = (value, *engine);
        }
    }
    best.1
}

fn power_of_two(engines: &[usize], rng: &mut fastrand::Rng, value: impl Fn(usize) -> f64) -> usize {
    let first = engines[rng.usize(..engines.len())];
    let second = engines[rng.usize(..engines.len())];
    if value(second) < value(first) {
        second
    } else {
        first
    }
}

fn home(engines: impl Iterator<Item = usize>, key: u64) -> Option<usize> {
    engines.max_by_key(|engine| {
        rendezvous::weight(
            key,
            rendezvous::weight(*engine as u64 + 1, 0x6a09_e667_f3bc_c908),
        )
    })
}

fn spread(engines: &[usize], value: impl Fn(usize) -> f64) -> (f64, f64) {
    engines
        .iter()
        .fold((f64::INFINITY, 0.0), |(low, high), engine| {
            (low.min(value(*engine)), high.max(value(*engine)))
        })
}
