//! Picks on a real Envoy, with one worker and with four.

use futures_util::future::join_all;
use warmroute_lab::client::{Answer, Call};
use warmroute_lab::engine_sim::EngineSim;
use warmroute_lab::stage::{
    CHAT, Decision, Stage, addresses, arrivals, chat, numbered, served_by, sims, swift, text,
};

/// Turn `turn` (from 0) of a conversation: 3 KB of system prompt, then 600 bytes a message.
fn turn(conversation: u64, turn: u64) -> String {
    let messages: Vec<String> = (0..=2 * turn)
        .map(|place| text(conversation * 1000 + place, 600))
        .collect();
    chat(&text(conversation * 1000 + 999, 3000), &messages)
}

async fn ask(stage: &Stage, sims: &[EngineSim], body: &str) -> (Answer, Decision, usize) {
    let call = numbered(Call::post_json(CHAT, body.to_owned()));
    let answer = stage.send_by(&stage.fresh, &call.call).await.unwrap();
    let decision = Decision::of(&answer).unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(answer.status, 200);
    assert_eq!(
        served_by(&answer),
        decision.endpoint,
        "the pick is followed"
    );
    let arrived = arrivals(sims, &call.number);
    assert_eq!(arrived.len(), 1);
    (answer, decision, arrived[0].1.cached_tokens)
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_conversation_stay_with_the_engine_that_holds_them() {
    const CONVERSATIONS: u64 = 24;
    const TURNS: u64 = 4;
    for workers in [1, 4] {
        let sims = sims(4, &swift()).await.unwrap();
        let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
        let mut homes = vec![String::new(); CONVERSATIONS as usize];
        let mut blocks = vec![0; CONVERSATIONS as usize];
        let (mut later, mut matched, mut stayed, mut warm) = (0, 0, 0, 0);
        for number in 0..TURNS {
            for (conversation, home) in homes.iter_mut().enumerate() {
                let body = turn(conversation as u64, number);
                let (_, decision, cached) = ask(&stage, &sims, &body).await;
                if number > 0 {
                    later += 1;
                    // All but the tail was in the turn before: 3 KB of system prompt are 11 blocks.
                    matched += u32::from(decision.matched >= 11);
                    stayed += u32::from(decision.endpoint == *home);
                    warm += u32::from(cached >= 600);
                    if decision.matched < 11 || decision.endpoint != *home {
                        println!(
                            "{workers} workers, turn {number} of {conversation} strayed from {home} \
                             ({cached} cached): {decision:?}"
                        );
                    }
                } else {
                    assert_eq!((decision.matched, cached), (0, 0), "never sent before");
                }
                home.clone_from(&decision.endpoint);
                blocks[conversation] = decision.total;
            }
            let all = u64::from(workers) * blocks.iter().sum::<u64>();
            stage
                .until("warmroute_index_pairs", |pairs| pairs >= all)
                .await
                .expect("each worker hears of each conversation");
        }
        println!("{workers} workers: {matched} matched, {stayed} stayed, {warm} warm of {later}");
        let least = if workers == 1 { later } else { later * 9 / 10 };
        let counted: Vec<_> = stage.envoy.stats().await.unwrap().into_iter().collect();
        let counted = counted
            .iter()
            .filter(|(name, count)| name.contains("warmroute_") && *count > 0);
        let counted: Vec<_> = counted.collect();
        assert!(
            matched >= least,
            "{workers} workers: {matched} of {later}, {counted:?}"
        );
        assert!(stayed >= least, "{workers} workers: {stayed} of {later}");
        assert!(warm >= least, "{workers} workers: {warm} of {later}");
        // Cold conversations spread: nobody has them all.
        for sim in &sims {
            let share = homes.iter().filter(|home| **home == sim.addr.to_string());
            assert!(share.count() < CONVERSATIONS as usize * 2 / 3, "{homes:?}");
        }
        if workers > 1 {
            let stats = stage.envoy.stats().await.unwrap();
            let at_work = stats.iter().filter(|(name, count)| {
                name.contains("worker_") && name.ends_with("downstream_cx_total") && **count > 0
            });
            assert!(at_work.count() >= 3, "connections reach several workers");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_one_cold_prompt_does_not_land_on_one_engine() {
    for workers in [1, 4] {
        // 6,000 tokens at 20,000 a second: a prefill takes as long as a metrics interval.
        let slow = warmroute_lab::engine_sim::SimOptions {
            prefill_tokens_per_s: 20_000.0,
            ..swift()
        };
        let sims = sims(4, &slow).await.unwrap();
        let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
        let body = chat(&text(u64::from(workers), 24_000), &[text(7, 100)]);
        let stage = &stage;
        let burst = (0..16).map(|_| async { stage.steered(&body).await.unwrap().1.endpoint });
        let endpoints = join_all(burst).await;
        let used = sims
            .iter()
            .filter(|sim| endpoints.contains(&sim.addr.to_string()))
            .count();
        assert!(used >= 2, "{workers} workers: {endpoints:?}");
    }
}
