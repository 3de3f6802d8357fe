//! Answers on a real Envoy: nothing is held back, nothing is changed, and however a request ends, what
//! was counted for it is given back.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::Notify;
use warmroute_lab::client::{Call, Client, Protocol};
use warmroute_lab::engine_sim::{Faults, HangAt, SimOptions};
use warmroute_lab::stage::{
    Asked, CHAT, Decision, PATIENCE, Part, Script, ScriptedEngine, Stage, addresses, chat, sims,
    swift, text, until,
};

const FIRST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const LAST: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":900,\
                    \"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n";

fn body(seed: u64) -> String {
    chat(&text(seed, 3000), &[text(seed + 1, 300)])
}

/// A chat whose answer is a stream.
fn streaming(seed: u64) -> Call {
    let body = body(seed).replacen(
        '{',
        r#"{"stream":true,"stream_options":{"include_usage":true},"#,
        1,
    );
    Call::post_json(CHAT, body)
}

async fn settled(stage: &Stage) {
    stage
        .until("warmroute_inflight", |count| count == 0)
        .await
        .unwrap();
    stage
        .until("warmroute_backlog_tokens", |count| count == 0)
        .await
        .unwrap();
}

/// Health and an idle engine's load, whatever else it answers.
fn scripted(asked: &Asked, answer: impl Fn(&Asked) -> Script) -> Script {
    match asked.path.as_str() {
        "/health" => Script::ok("text/plain", &[]),
        "/metrics" => Script::ok(
            "text/plain",
            &[
                "vllm:num_requests_running{model_name=\"sim\"} 0.0\nvllm:num_requests_waiting{model_name=\"sim\"} 0.0\n",
            ],
        ),
        _ => answer(asked),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_frame_reaches_the_client_when_it_is_sent() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let engine = ScriptedEngine::start(([127, 0, 0, 1], 0).into(), move |asked| {
        scripted(asked, |asked| {
            let mut script = Script::ok("text/event-stream", &[FIRST, LAST]);
            if !asked.headers.contains_key("x-case") {
                return script;
            }
            script.parts.insert(1, Part::Wait(Arc::clone(&held)));
            script
        })
    })
    .await
    .unwrap();
    let stage = Stage::start(1, vec![engine.addr.to_string()])
        .await
        .unwrap();
    let authority = stage.envoy.authority();
    for client in [&stage.http1, &stage.h2] {
        let exchange = async {
            let mut answer = client
                .open(&authority, &streaming(1).header("x-case", "held"))
                .await
                .unwrap();
            let frame = answer.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), FIRST);
            // Only now does the engine go on.
            gate.notify_one();
            let rest = answer.body_mut().collect().await.unwrap();
            assert_eq!(rest.to_bytes(), LAST);
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap();
    }
    settled(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_one_frame_errors_and_broken_ones_arrive_as_sent() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let engine = ScriptedEngine::start(([127, 0, 0, 1], 0).into(), move |asked| {
        scripted(asked, |asked| {
            match asked
                .headers
                .get("x-case")
                .map(hyper::header::HeaderValue::as_bytes)
            {
                Some(b"single") => Script::ok("text/event-stream", &[&format!("{FIRST}{LAST}")]),
                Some(b"empty") => Script::ok("text/event-stream", &[]),
                Some(b"client error") => Script {
                    status: 400,
                    ..Script::ok("application/json", &[r#"{"error":"of the client"}"#])
                },
                Some(b"server error") => Script {
                    status: 500,
                    ..Script::ok("application/json", &[r#"{"error":"of the engine"}"#])
                },
                Some(b"broken") => {
                    let mut script = Script::ok("text/event-stream", &[FIRST]);
                    script
                        .parts
                        .extend([Part::Wait(Arc::clone(&held)), Part::Break]);
                    script
                }
                _ => Script::ok("application/json", &["{}"]),
            }
        })
    })
    .await
    .unwrap();
    let stage = Stage::start(1, vec![engine.addr.to_string()])
        .await
        .unwrap();
    let whole = format!("{FIRST}{LAST}");
    for (case, status, text) in [
        ("single", 200, whole.as_str()),
        ("empty", 200, ""),
        ("client error", 400, r#"{"error":"of the client"}"#),
        ("server error", 500, r#"{"error":"of the engine"}"#),
    ] {
        for client in [&stage.http1, &stage.h2] {
            let answer = stage
                .send_by(client, &streaming(7).header("x-case", case))
                .await
                .unwrap();
            assert_eq!(
                (answer.status.as_u16(), answer.text().as_str()),
                (status, text),
                "{case}"
            );
        }
    }
    for client in [&stage.http1, &stage.h2] {
        let call = streaming(9).header("x-case", "broken");
        let mut answer = client.open(&stage.envoy.authority(), &call).await.unwrap();
        let frame = answer.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), FIRST);
        gate.notify_one();
        answer
            .body_mut()
            .collect()
            .await
            .expect_err("it breaks off");
    }
    settled(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_its_counts_along() {
    // A token a minute: whoever waits for the second one waits for the client.
    let slow = SimOptions {
        inter_token_ms: 60_000.0,
        ..swift()
    };
    for workers in [1, 4] {
        let sims = sims(2, &slow).await.unwrap();
        let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
        let authority = stage.envoy.authority();
        let aborted = || sims.iter().map(|sim| sim.counts().aborted).sum::<u64>();

        let mut open = Vec::new();
        for n in 0..6 {
            // A client of its own is a connection that ends with it.
            let client = Client::without_reuse(if n % 2 == 0 {
                Protocol::Http1
            } else {
                Protocol::H2c
            });
            let mut answer = client.open(&authority, &streaming(n)).await.unwrap();
            answer.body_mut().frame().await.unwrap().unwrap();
            open.push((client, answer));
        }
        stage
            .until("warmroute_inflight", |count| count == 6)
            .await
            .unwrap();
        drop(open);
        settled(&stage).await;
        until("the engines know it", || aborted() == 6)
            .await
            .unwrap();

        let hang = Faults {
            hang: Some(HangAt::Headers),
            ..Faults::default()
        };
        sims.iter().for_each(|sim| sim.set_faults(hang.clone()));
        let mut waiting = Vec::new();
        for n in 10..16 {
            let client = Client::without_reuse(if n % 2 == 0 {
                Protocol::Http1
            } else {
                Protocol::H2c
            });
            let (authority, call) = (authority.clone(), streaming(n));
            waiting.push(tokio::spawn(async move {
                client.open(&authority, &call).await.map(drop)
            }));
        }
        stage
            .until("warmroute_inflight", |count| count == 6)
            .await
            .unwrap();
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(waiting);
        settled(&stage).await;
        // A client that leaves before its body is there was never counted.
        sims.iter()
            .for_each(|sim| sim.set_faults(Faults::default()));
        let half = tokio::net::TcpStream::connect(stage.envoy.listener_addr)
            .await
            .unwrap();
        let head =
            format!("POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: 50000\r\n\r\n{{\"mess");
        half.try_write(head.as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(half);
        let answer = stage
            .send(&Call::post_json(
                CHAT,
                body(99).replacen(r#""max_tokens":2"#, r#""max_tokens":1"#, 1),
            ))
            .await;
        assert!(Decision::of(&answer.unwrap()).is_some());
        settled(&stage).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engines_timeout_ends_in_one_answer_and_no_counts() {
    let sims = sims(2, &swift()).await.unwrap();
    let stage = Stage::with(1, addresses(&sims), serde_json::json!({}), |bootstrap| {
        let route = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";
        bootstrap.pointer_mut(route).unwrap()["timeout"] = "0.3s".into();
    })
    .await
    .unwrap();
    stage.ready(2).await.unwrap();
    let hang = Faults {
        hang: Some(HangAt::Headers),
        ..Faults::default()
    };
    sims.iter().for_each(|sim| sim.set_faults(hang.clone()));
    let answer = stage.send(&streaming(1)).await.unwrap();
    assert_eq!(answer.status, 504);
    settled(&stage).await;
    let failures = stage
        .count("warmroute_endpoint_failure_total")
        .await
        .unwrap();
    assert_eq!(failures, 1, "counted once, against the endpoint");
    assert_eq!(stage.count("warmroute_withdrawn_total").await.unwrap(), 1);
}
