//! What the plugin answers itself on a real Envoy, where it is told to, and that it does so nowhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use warmroute_lab::client::{Answer, BodyPlan, Call};
use warmroute_lab::stage::{
    Asked, CHAT, Decision, Script, ScriptedEngine, Stage, chat, fallback, text,
};

const SUBSET: &str = "x-gateway-destination-endpoint-subset";
const PRIORITY: &str = "x-request-priority";

/// Engines that have as many requests waiting as is set.
async fn engines(count: usize, waiting: &Arc<AtomicU32>) -> Vec<ScriptedEngine> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let waiting = Arc::clone(waiting);
        let answer = move |asked: &Asked| match asked.path.as_str() {
            "/health" => Script::ok("text/plain", &[]),
            "/metrics" => {
                let waiting = waiting.load(Ordering::Relaxed);
                let text = format!(
                    "vllm:num_requests_running{{model_name=\"sim\"}} 9.0\nvllm:num_requests_waiting{{model_name=\"sim\"}} {waiting}.0\n"
                );
                Script::ok("text/plain", &[&text])
            }
            _ => Script::ok("application/json", &[r#"{"choices":[]}"#]),
        };
        let engine = ScriptedEngine::start("127.0.0.1:0".parse().unwrap(), answer).await;
        engines.push(engine.unwrap());
    }
    engines
}

fn of(engines: &[ScriptedEngine]) -> Vec<String> {
    engines.iter().map(|one| one.addr.to_string()).collect()
}

fn call(priority: Option<&str>) -> Call {
    let call = Call::post_json(CHAT, chat(&text(1, 3000), &[text(2, 300)]));
    match priority {
        Some(priority) => call.header(PRIORITY, priority),
        None => call,
    }
}

async fn until_status(stage: &Stage, call: &Call, status: u16) -> Answer {
    let deadline = std::time::Instant::now() + warmroute_lab::stage::PATIENCE;
    loop {
        let answer = stage.send_by(&stage.fresh, call).await.unwrap();
        if answer.status == status {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "{answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_can_wait_is_turned_away_while_all_are_full() {
    let waiting = Arc::new(AtomicU32::new(20));
    let engines = engines(2, &waiting).await;
    let changes = json!({"overload": {"mode": "shed"}, "metrics": {"staleAfterMs": 60_000}});
    let stage = Stage::with(1, of(&engines), changes, |_| {}).await.unwrap();
    stage.ready(2).await.unwrap();
    let answer = until_status(&stage, &call(Some("-1")), 429).await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.header(warmroute_lab::stage::DECISION_HEADER),
        Some("answered=429")
    );
    assert_eq!(answer.json().unwrap()["error"]["code"], 429);

    // However the body comes, and over HTTP/2.
    let shed = stage
        .count("warmroute_answered_total.status.429")
        .await
        .unwrap();
    let before: usize = engines.iter().map(|one| one.asked().len()).sum();
    let body = Bytes::from(chat(&text(3, 400_000), &[text(4, 300)]));
    let chunked = Call {
        body: BodyPlan::chunked(&body, 9_000),
        ..call(Some("-3"))
    };
    let mut anthropic = call(Some("sheddable"));
    anthropic.path = "/v1/messages".into();
    for client in [&stage.http1, &stage.h2] {
        let answer = stage.send_by(client, &chunked).await.unwrap();
        assert_eq!(answer.status, 429, "{answer:?}");
        let answer = stage.send_by(client, &anthropic).await.unwrap();
        assert_eq!(answer.status, 429);
        let said = answer.json().unwrap();
        assert_eq!(said["type"], "error");
        assert_eq!(said["error"]["type"], "rate_limit_error");
    }
    let after: usize = engines.iter().map(|one| one.asked().len()).sum();
    assert_eq!(before, after, "no engine got any of it");

    // Others go on, and are steered.
    for priority in [None, Some("0"), Some("3"), Some("urgent")] {
        let answer = stage.send(&call(priority)).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(Decision::of(&answer).is_some());
    }
    let now = stage.count("warmroute_answered_total.status.429").await;
    assert_eq!(now.unwrap(), shed + 4);
    let text = stage.envoy.admin("/stats/prometheus").await.unwrap();
    assert!(text.contains(r#"warmroute_answered_total{status="429"}"#));

    waiting.store(0, Ordering::Relaxed);
    until_status(&stage, &call(Some("-1")), 200).await;
    stage
        .until("warmroute_inflight", |count| count == 0)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_be_picked_the_answer_is_503() {
    let engines = engines(2, &Arc::default()).await;
    let changes = json!({"overload": {"mode": "shed"}});
    let stage = Stage::with(1, of(&engines), changes, |_| {}).await.unwrap();
    stage.ready(2).await.unwrap();
    let stranger = call(None).header(SUBSET, "10.9.8.7:1");
    // Not in the first seconds, while all endpoints are down until their first health check.
    assert_eq!(stage.send(&stranger).await.unwrap().status, 200);
    let answer = until_status(&stage, &stranger, 503).await;
    assert_eq!(answer.header("retry-after"), None);
    let said: Value = answer.json().unwrap();
    assert_eq!(said["error"]["code"], 503, "{said}");
    // What is no call of an engine is none of our business.
    let upload = Call::post_json("/v1/files", "{}").header(SUBSET, "10.9.8.7:1");
    assert_eq!(stage.send(&upload).await.unwrap().status, 200);
    assert_eq!(
        stage
            .count("warmroute_answered_total.status.503")
            .await
            .unwrap(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_nobody_is_turned_away() {
    let engines = engines(2, &Arc::new(AtomicU32::new(500))).await;
    let stage = Stage::start(1, of(&engines)).await.unwrap();
    for _ in 0..10 {
        let answer = stage.send(&call(Some("-1"))).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(Decision::of(&answer).is_some());
    }
    let stranger = call(Some("-1")).header(SUBSET, "10.9.8.7:1");
    let answer = stage.send(&stranger).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(fallback(&answer), Some("none_eligible"));
}
