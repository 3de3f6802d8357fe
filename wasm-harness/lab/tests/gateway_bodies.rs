//! Request bodies on a real Envoy: whatever frames they come in, they arrive as they left, and as much
//! of them is read as the plugin's budget allows.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::HeaderMap;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use warmroute_lab::client::{Answer, BodyPlan, Call, Client};
use warmroute_lab::digest;
use warmroute_lab::engine_sim::EngineSim;
use warmroute_lab::stage::{
    CHAT, Decision, PATIENCE, Stage, addresses, arrivals, chat, fallback, numbered, sims, swift,
    text,
};

/// A chat of exactly `bytes` bytes whose text comes first; `seed` makes it one of its own.
fn chat_of(seed: u64, bytes: usize) -> Bytes {
    let empty = chat("", &[text(seed + 1, 20)]).len();
    let body = chat(&text(seed, bytes - empty), &[text(seed + 1, 20)]);
    assert_eq!(body.len(), bytes);
    body.into()
}

/// The same with at most 200 KB of text, and the rest behind it in what no engine reads.
fn padded_chat_of(seed: u64, bytes: usize) -> Bytes {
    let mut body = chat(&text(seed, 200_000), &[text(seed + 1, 20)]);
    assert_eq!(body.pop(), Some('}'));
    body.push_str(r#","metadata":{"note":""#);
    let left = bytes - body.len() - 3;
    body.push_str(&"n".repeat(left));
    body.push_str("\"}}");
    assert_eq!(body.len(), bytes);
    body.into()
}

fn post(body: BodyPlan) -> Call {
    Call {
        body,
        ..Call::post_json(CHAT, "")
    }
}

/// Sends a body, and holds that it arrived unchanged at one engine and was answered.
async fn deliver(
    stage: &Stage,
    sims: &[EngineSim],
    client: &Client,
    call: Call,
    body: &Bytes,
) -> Answer {
    let sent = numbered(call);
    let answer = stage.send_by(client, &sent.call).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let arrived = arrivals(sims, &sent.number);
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].1.body_bytes, body.len());
    assert_eq!(arrived[0].1.body_digest, digest(body));
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_and_trailers() {
    for workers in [1, 4] {
        let sims = sims(2, &swift()).await.unwrap();
        let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
        let body = chat_of(1, 73_072);
        let trailers =
            HeaderMap::from_iter([("x-checksum".parse().unwrap(), "7".parse().unwrap())]);
        let mut plans = vec![BodyPlan::Whole(body.clone())];
        for size in [16_384, 199, 4096, 73_071, 100_000] {
            plans.push(BodyPlan::chunked(&body, size));
        }
        let BodyPlan::Frames { frames, .. } = BodyPlan::chunked(&body, 16_384) else {
            unreachable!()
        };
        assert_eq!(frames.last().unwrap().len(), 73_072 - 4 * 16_384);
        let pause = Duration::from_millis(5);
        plans.push(BodyPlan::Frames {
            frames: frames.clone(),
            pause,
            trailers: None,
        });
        plans.push(BodyPlan::Frames {
            frames: frames.clone(),
            pause,
            trailers: Some(trailers.clone()),
        });
        // The last frame is empty, and ends the stream.
        let closed = [frames, vec![Bytes::new()]].concat();
        plans.push(BodyPlan::Frames {
            frames: closed,
            pause,
            trailers: None,
        });
        let mut blocks = None;
        for client in [&stage.h2, &stage.http1] {
            for plan in &plans {
                let is_trailed = matches!(
                    plan,
                    BodyPlan::Frames {
                        trailers: Some(_),
                        ..
                    }
                );
                let mut call = post(plan.clone());
                if is_trailed {
                    call = call
                        .header("trailer", "x-checksum")
                        .header("te", "trailers");
                }
                let answer = deliver(&stage, &sims, client, call, &body).await;
                let decision = Decision::of(&answer).unwrap_or_else(|| panic!("{answer:?}"));
                assert_eq!(decision.cut, None);
                // 72 KB of prompt in blocks of 256 bytes, however they came.
                assert_eq!(
                    *blocks.get_or_insert(decision.total),
                    decision.total,
                    "{plan:?}"
                );
                assert!((280..=286).contains(&decision.total), "{decision:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_budget_is_steered_by_its_beginning_or_passes() {
    for workers in [1, 4] {
        let sims = sims(3, &swift()).await.unwrap();
        let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
        for (seed, client) in [(10, &stage.http1), (20, &stage.h2)] {
            let body = padded_chat_of(seed, 8_000_000);
            let mut first: Option<Decision> = None;
            for chunk in [65_536, 16_384] {
                let call = post(BodyPlan::chunked(&body, chunk));
                let answer = deliver(&stage, &sims, client, call, &body).await;
                let decision = Decision::of(&answer).unwrap_or_else(|| panic!("{answer:?}"));
                assert_eq!(decision.cut.as_deref(), Some("body_bytes"));
                assert!(
                    decision.total > 700,
                    "the text before the cut counts: {decision:?}"
                );
                if let Some(first) = &first {
                    assert_eq!(first.endpoint, decision.endpoint);
                    assert_eq!(decision.matched, decision.total);
                }
                first = Some(decision);
            }
            // With a length over the budget nothing of it is held.
            let call = post(BodyPlan::Whole(body.clone()));
            let answer = deliver(&stage, &sims, client, call, &body).await;
            assert_eq!(fallback(&answer), Some("too_large"));
        }
        // One text of 5 MB: as many blocks of it as are compared at all.
        let body = chat_of(40, 5_000_000);
        let call = post(BodyPlan::chunked(&body, 65_536));
        let answer = deliver(&stage, &sims, &stage.h2, call, &body).await;
        assert_eq!(
            Decision::of(&answer).map(|decision| decision.total),
            Some(4096)
        );
        // More than Envoy would keep for a retry.
        let body = padded_chat_of(30, 24_000_000);
        let call = post(BodyPlan::chunked(&body, 100_000));
        let answer = deliver(&stage, &sims, &stage.http1, call, &body).await;
        assert!(Decision::of(&answer).is_some(), "{:?}", answer.headers);
        // A little under the budget, several at once.
        let bodies: Vec<Bytes> = (0..8).map(|n| padded_chat_of(100 + n, 4_100_000)).collect();
        let all = bodies.iter().map(|body| {
            deliver(
                &stage,
                &sims,
                &stage.fresh,
                post(BodyPlan::Whole(body.clone())),
                body,
            )
        });
        for answer in join_all(all).await {
            assert!(Decision::of(&answer).is_some(), "{:?}", answer.headers);
        }
        stage
            .until("warmroute_inflight", |count| count == 0)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_budget_of_the_configuration_holds() {
    let sims = sims(2, &swift()).await.unwrap();
    let limits = json!({"limits": {"maxRequestBodyBytes": 20_000}});
    let stage = Stage::with(1, addresses(&sims), limits, |_| {})
        .await
        .unwrap();
    stage.ready(2).await.unwrap();
    // One byte decides.
    for (bytes, reason) in [(20_000, None), (20_001, Some("too_large"))] {
        let body = chat_of(1, bytes);
        let call = post(BodyPlan::Whole(body.clone()));
        let answer = deliver(&stage, &sims, &stage.http1, call, &body).await;
        assert_eq!(fallback(&answer), reason);
        let call = post(BodyPlan::chunked(&body, 7000));
        let answer = deliver(&stage, &sims, &stage.h2, call, &body).await;
        let decision = Decision::of(&answer).unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!(decision.cut.as_deref(), reason.map(|_| "body_bytes"));
    }
}

/// What is on the wire counts here: the head goes first, the body when it is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn expect_100_continue_with_a_large_body() {
    let sims = sims(2, &swift()).await.unwrap();
    let stage = Stage::start(1, addresses(&sims)).await.unwrap();
    let body = chat_of(1, 1_400_000);
    let sent = numbered(Call::get("/"));
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\nx-lab-request: {}\r\nconnection: close\r\n\r\n",
        body.len(),
        sent.number
    );
    let talk = async {
        let mut stream = tokio::net::TcpStream::connect(stage.envoy.listener_addr)
            .await
            .unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).await.unwrap();
        assert_eq!(interim, *b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(&body).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(PATIENCE, talk).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("x-warmroute-decision: endpoint="),
        "{answer}"
    );
    let arrived = arrivals(&sims, &sent.number);
    assert_eq!(arrived[0].1.body_digest, digest(&body));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_the_body_stay() {
    let sims = sims(2, &swift()).await.unwrap();
    let stage = Stage::start(1, addresses(&sims)).await.unwrap();
    let body = chat(&text(1, 3000), &[text(2, 300)]);
    for client in [&stage.http1, &stage.h2] {
        let sent = numbered(Call::post_json(CHAT, body.clone()));
        let answer = stage.send_by(client, &sent.call).await.unwrap();
        assert!(Decision::of(&answer).is_some());
        let arrived = arrivals(&sims, &sent.number);
        let length = body.len().to_string();
        assert_eq!(arrived[0].1.header("content-length"), Some(length.as_str()));
        assert_eq!(
            arrived[0].1.header("content-type"),
            Some("application/json")
        );
        assert_eq!(arrived[0].1.header("transfer-encoding"), None);
    }
}
