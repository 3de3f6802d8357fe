//! The event loop: requests arrive, a gateway picks, engines work, things break.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::engine::{Engine, EngineOptions};
use super::{End, Figures, Gateway, Request};

/// Times a client tries a request that failed.
const TRIES: u32 = 5;
/// Pause before a client tries again.
const RETRY_MS: f64 = 50.0;
/// Workers are told this often that time passed.
const TICK_MS: f64 = 100.0;

/// What surrounds the gateway.
#[derive(Clone, Debug)]
pub struct World {
    /// How engines are built.
    pub engine: EngineOptions,
    /// Engines at the start.
    pub engines: usize,
    /// Time between two readings of all metrics.
    pub scrape_ms: f64,
    /// Which worker each request comes to, one way of many.
    pub assignment: u64,
    /// What goes wrong, and when.
    pub disturbances: Vec<Disturbance>,
}

/// Something that happens to an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// When.
    pub at_ms: f64,
    /// What.
    pub what: What,
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// An engine dies and is back, empty, at once.
    Restart(usize),
    /// An engine clears its cache, and nobody is told.
    Clear(usize),
    /// So many engines join.
    Add(usize),
    /// An engine gets no more requests.
    Drain(usize),
    /// An engine answers everything with an error at once, until that time.
    Fail(usize, f64),
}

/// Who chooses.
pub enum Chooser {
    /// Sees every engine's true cache, queue and rate; takes the earliest first token.
    Oracle,
    /// One gateway a worker; each request comes to one of them.
    Workers(Vec<Box<dyn Gateway>>),
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Time to first token by request; `None` = never.
    pub ttft_ms: Vec<Option<f64>>,
    /// Prompt tokens of all requests that got a first token.
    pub prompt_tokens: u64,
    /// Of those, found in a cache.
    pub hit_tokens: u64,
    /// Computed prompt tokens by engine.
    pub computed_tokens: Vec<u64>,
    /// Answers that were errors.
    pub failures: u64,
    /// What the workers say of their decisions.
    pub figures: Figures,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize),
    Prefilled {
        engine: usize,
        request: usize,
        life: u32,
    },
    Decoded {
        engine: usize,
        request: usize,
        life: u32,
    },
    Failed(usize),
    Scrape,
    Tick,
    Disturb(usize),
}

struct Timed {
    at_ms: f64,
    order: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    /// The earliest first out of a max-heap; equal times in the order they were put in.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .at_ms
            .total_cmp(&self.at_ms)
            .then(other.order.cmp(&self.order))
    }
}

/// One engine and its life: events of an earlier life are void.
struct Host {
    engine: Engine,
    life: u32,
    up: bool,
    fails_until_ms: f64,
}

struct Run<'a> {
    world: &'a World,
    requests: &'a [Request],
    chooser: Chooser,
    hosts: Vec<Host>,
    events: BinaryHeap<Timed>,
    order: u64,
    tries: Vec<u32>,
    cached: Vec<u32>,
    open: usize,
    outcome: Outcome,
}

/// Runs all `requests` through `chooser`.
#[must_use]
pub fn run(world: &World, requests: &[Request], chooser: Chooser) -> Outcome {
    let mut run = Run {
        world,
        requests,
        chooser,
        hosts: Vec::new(),
        events: BinaryHeap::new(),
        order: 0,
        tries: vec![0; requests.len()],
        cached: vec![0; requests.len()],
        open: requests.len(),
        outcome: Outcome {
            ttft_ms: vec![None; requests.len()],
            ..Outcome::default()
        },
    };
    run.add(world.engines);
    run.at(0.0, Event::Scrape);
    run.at(0.0, Event::Tick);
    for (request, body) in requests.iter().enumerate() {
        run.at(body.at_ms, Event::Arrive(request));
    }
    for (number, disturbance) in world.disturbances.iter().enumerate() {
        run.at(disturbance.at_ms, Event::Disturb(number));
    }
    while run.open > 0 {
        let Some(next) = run.events.pop() else { break };
        run.step(next.at_ms, next.event);
    }
    if let Chooser::Workers(workers) = &run.chooser {
        let figures = workers.iter().map(|worker| worker.figures());
        run.outcome.figures = figures.fold(Figures::default(), Figures::and);
    }
    run.outcome
}

/// The worker that a request comes to: mixed, and the same for every policy.
fn worker_of(assignment: u64, request: usize, workers: usize) -> usize {
    let mixed = (request as u64 + (assignment << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    (mixed % workers as u64) as usize
}

impl Run<'_> {
    fn at(&mut self, at_ms: f64, event: Event) {
        self.order += 1;
        self.events.push(Timed {
            at_ms,
            order: self.order,
            event,
        });
    }

    fn add(&mut self, engines: usize) {
        for _ in 0..engines {
            self.hosts.push(Host {
                engine: Engine::new(self.world.engine),
                life: 0,
                up: true,
                fails_until_ms: 0.0,
            });
            self.outcome.computed_tokens.push(0);
        }
    }

    fn gateway(&mut self, request: usize) -> Option<&mut dyn Gateway> {
        match &mut self.chooser {
            Chooser::Oracle => None,
            Chooser::Workers(workers) => {
                let worker = worker_of(self.world.assignment, request, workers.len());
                Some(workers[worker].as_mut())
            }
        }
    }

    fn step(&mut self, now: f64, event: Event) {
        match event {
            Event::Arrive(request) => self.arrive(now, request),
            Event::Prefilled {
                engine,
                request,
                life,
            } if self.hosts[engine].life == life => {
                self.prefilled(now, engine, request);
            }
            Event::Decoded {
                engine,
                request,
                life,
            } if self.hosts[engine].life == life => {
                self.hosts[engine].engine.decoded(request, self.requests);
                let cached_tokens = self.cached[request];
                if let Some(gateway) = self.gateway(request) {
                    gateway.end(now, request, End::Done { cached_tokens });
                }
                self.open -= 1;
                self.start(now, engine);
            }
            Event::Prefilled { .. } | Event::Decoded { .. } => {}
            Event::Failed(request) => self.failed(now, request),
            Event::Scrape => {
                let metrics: Vec<_> = self
                    .hosts
                    .iter()
                    .map(|host| host.up.then(|| host.engine.metrics()))
                    .collect();
                if let Chooser::Workers(workers) = &mut self.chooser {
                    for worker in workers {
                        worker.metrics(now, &metrics);
                    }
                }
                self.at(now + self.world.scrape_ms, Event::Scrape);
            }
            Event::Tick => {
                if let Chooser::Workers(workers) = &mut self.chooser {
                    for worker in workers {
                        worker.tick(now);
                    }
                }
                self.at(now + TICK_MS, Event::Tick);
            }
            Event::Disturb(number) => self.disturb(now, self.world.disturbances[number].what),
        }
    }

    fn arrive(&mut self, now: f64, request: usize) {
        let body = &self.requests[request];
        let up: Vec<bool> = self.hosts.iter().map(|host| host.up).collect();
        let engine = match &mut self.chooser {
            Chooser::Oracle => {
                let mut best = (f64::INFINITY, 0);
                for (number, host) in self.hosts.iter().enumerate() {
                    let ttft = host.engine.ttft_ms(now, body, self.requests);
                    if host.up && host.fails_until_ms <= now && ttft < best.0 {
                        best = (ttft, number);
                    }
                }
                best.1
            }
            Chooser::Workers(workers) => {
                let worker = worker_of(self.world.assignment, request, workers.len());
                workers[worker].pick(now, request, body, &up)
            }
        };
        let host = &mut self.hosts[engine];
        if host.fails_until_ms > now {
            self.at(now + 2.0, Event::Failed(request));
            return;
        }
        host.engine.push(request);
        if let Some(gateway) = self.gateway(request) {
            gateway.accepted(now, request);
        }
        self.start(now, engine);
    }

    fn start(&mut self, now: f64, engine: usize) {
        let host = &mut self.hosts[engine];
        let life = host.life;
        if let Some(started) = host.engine.start(now, self.requests) {
            let request = started.request;
            let tokens = u64::from(self.requests[request].tokens);
            let hit = u64::from(started.hit_tokens);
            self.cached[request] = started.hit_tokens;
            self.outcome.prompt_tokens += tokens;
            self.outcome.hit_tokens += hit;
            self.outcome.computed_tokens[engine] += tokens - hit;
            self.at(
                started.ends_ms,
                Event::Prefilled {
                    engine,
                    request,
                    life,
                },
            );
        }
    }

    fn prefilled(&mut self, now: f64, engine: usize, request: usize) {
        self.hosts[engine].engine.prefilled(self.requests);
        let body = &self.requests[request];
        self.outcome.ttft_ms[request].get_or_insert(now - body.at_ms);
        if let Some(gateway) = self.gateway(request) {
            gateway.first_token(now, request);
        }
        let decode = f64::from(body.output_tokens) * self.world.engine.ms_per_output_token;
        let life = self.hosts[engine].life;
        self.at(
            now + decode,
            Event::Decoded {
                engine,
                request,
                life,
            },
        );
        self.start(now, engine);
    }

    fn failed(&mut self, now: f64, request: usize) {
        self.outcome.failures += 1;
        if let Some(gateway) = self.gateway(request) {
            gateway.end(now, request, End::Failed);
        }
        self.tries[request] += 1;
        if self.tries[request] < TRIES {
            self.at(now + RETRY_MS, Event::Arrive(request));
        } else {
            self.open -= 1;
        }
    }

    fn disturb(&mut self, now: f64, what: What) {
        match what {
            What::Restart(engine) => {
                self.hosts[engine].life += 1;
                let lost = self.hosts[engine].engine.restart();
                for request in lost {
                    self.failed(now, request);
                }
                self.left(engine);
            }
            What::Clear(engine) => self.hosts[engine].engine.clear_cache(),
            What::Add(engines) => self.add(engines),
            What::Drain(engine) => self.hosts[engine].up = false,
            What::Fail(engine, until_ms) => self.hosts[engine].fails_until_ms = until_ms,
        }
    }

    fn left(&mut self, engine: usize) {
        if let Chooser::Workers(workers) = &mut self.chooser {
            for worker in workers {
                worker.left(engine);
            }
        }
    }
}
