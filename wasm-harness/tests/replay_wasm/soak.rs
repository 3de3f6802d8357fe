//! Many requests, many rebuilds, and nothing left of them.

use warmroute_harness::replay::plugin::{PluginOptions, Process, Worker};
use warmroute_harness::replay::workload::{Kind, generate};
use warmroute_harness::replay::{End, Gateway};

use super::artifact;

/// VMs die and are made anew while requests go on; `SOAK` sets how many requests.
#[test]
fn a_soak_with_rebuilds_leaves_nothing_behind() {
    let given = std::env::var("SOAK")
        .ok()
        .and_then(|text| text.parse().ok());
    let count: usize = given.unwrap_or(20_000);
    let options = PluginOptions {
        config: r#"{"debug":{"header":true}}"#.to_owned(),
        ..PluginOptions::default()
    };
    let mut process = Process::new(&artifact(), &options);
    let mut workers: Vec<Worker> = (0..8).map(|_| process.worker().unwrap()).collect();
    let bodies = generate(Kind::Tenants, 2000, 8, 10.0, 0.5, 1);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut open: Vec<(usize, usize)> = Vec::new();
    // By tenth of the run: the largest memory, and instructions of decisions.
    let mut tenths = [(0, 0); 10];
    let mut now_ms = 0.0;
    for request in 0..count {
        now_ms += 5.0;
        let at = rng.usize(..8);
        let body = &bodies[request % bodies.len()];
        let before = workers[at].figures().instructions;
        workers[at].pick(now_ms, request, body, &[true; 8]);
        workers[at].accepted(now_ms, request);
        open.push((at, request));
        if open.len() > 64 {
            let (at, request) = open.swap_remove(rng.usize(..open.len()));
            workers[at].first_token(now_ms, request);
            workers[at].end(now_ms, request, End::Done { cached_tokens: 0 });
        }
        let tenth = &mut tenths[request * 10 / count];
        tenth.0 = tenth.0.max(workers[at].vm().memory_bytes());
        tenth.1 += workers[at].figures().instructions - before;
        if request % 20 == 0 {
            workers.iter_mut().for_each(|worker| worker.tick(now_ms));
        }
        if rng.usize(..500) == 0 {
            let dead = rng.usize(..8);
            workers[dead] = process.worker().unwrap();
            open.retain(|(at, _)| *at != dead);
        }
    }
    println!("memory and instructions by tenth of the run: {tenths:?}");
    assert!(
        tenths[9].0 <= tenths[1].0 * 3 / 2,
        "memory grows: {tenths:?}"
    );
    assert!(
        tenths[9].1 <= tenths[1].1 * 3 / 2,
        "decisions get dearer: {tenths:?}"
    );
    for (at, request) in open {
        workers[at].end(now_ms, request, End::Failed);
    }
    // Past the expiry of who died last, and of failures.
    for _ in 0..3000 {
        now_ms += 100.0;
        workers.iter_mut().for_each(|worker| worker.tick(now_ms));
    }
    let cold = generate(Kind::OneShot, 64, 8, 10.0, 0.5, 9);
    let mut before = Vec::new();
    for (at, prompt) in cold.iter().enumerate() {
        // Alone, an endpoint costs what the prompt does and what is before it, however fast it was seen to be.
        let up: [bool; 8] = std::array::from_fn(|engine| engine == at / 8);
        let worker = &mut workers[at % 8];
        worker.pick(now_ms, at, prompt, &up);
        worker.accepted(now_ms, at);
        let decision = worker.decision(at).unwrap();
        let cost = decision.rsplit_once(':').unwrap().1.parse::<u32>().unwrap();
        let tokens = decision.split_once(";costs=").unwrap().0;
        let tokens = tokens.rsplit_once('/').unwrap().1.parse::<u32>().unwrap();
        before.push(cost - tokens);
        worker.end(now_ms, at, End::Done { cached_tokens: 0 });
        now_ms += 1000.0;
    }
    // The same constant everywhere: a forgotten request would cost 80 tokens at least.
    let most = before.iter().max().unwrap() - before.iter().min().unwrap();
    assert!(most < 80, "load that nobody has: {before:?}");
}
