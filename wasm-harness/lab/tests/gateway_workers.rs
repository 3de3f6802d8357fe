//! One view of four workers: the workload of `run` through one worker and through four.

use std::sync::Arc;

use warmroute_lab::client::{Client, Protocol};
use warmroute_lab::play::play;
use warmroute_lab::run::sim_options;
use warmroute_lab::stage::{Stage, addresses, sims};
use warmroute_lab::workload::{Conversation, WorkloadOptions, generate};

/// Hit tokens of the workload with so many workers.
async fn hit_tokens(workers: u32, conversations: &Arc<Vec<Conversation>>) -> u64 {
    let sims = sims(4, &sim_options()).await.unwrap();
    let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
    sims.iter()
        .for_each(warmroute_lab::engine_sim::EngineSim::reset);
    // Each request over a connection of its own: whichever worker the kernel gives it to.
    let client = Client::without_reuse(Protocol::Http1);
    let label = format!("{workers} workers");
    let played = play(&label, &client, &stage.envoy.authority(), conversations).await;
    assert!(
        played
            .outcomes
            .iter()
            .all(|outcome| outcome.error.is_none()),
        "{played:?}"
    );
    let hits = sims.iter().map(|sim| sim.counts().hit_tokens).sum();
    stage
        .until("warmroute_inflight", |count| count == 0)
        .await
        .unwrap();
    hits
}

/// How requests overlap in real time moves a single run by some percent, so a run that falls short is judged with
/// more beside it.
#[tokio::test(flavor = "multi_thread")]
async fn four_workers_hit_as_one_does() {
    const ROUNDS: usize = 3;
    let conversations = Arc::new(generate(&WorkloadOptions::default()));
    let mut hits = [0, 0];
    for round in 1..=ROUNDS {
        for (sum, workers) in hits.iter_mut().zip([1, 4]) {
            *sum += hit_tokens(workers, &conversations).await;
        }
        println!("hit tokens of one and of four workers after {round} rounds: {hits:?}");
        if hits[1] * 100 >= hits[0] * 95 {
            return;
        }
    }
    panic!("four workers hit less than 0.95 of what one does: {hits:?}");
}
