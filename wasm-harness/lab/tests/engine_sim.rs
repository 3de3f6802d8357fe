//! The engine simulator over real sockets.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warmroute_lab::client::{Answer, BodyPlan, Call, Client, Protocol};
use warmroute_lab::digest;
use warmroute_lab::engine_sim::{EngineSim, SimOptions};

const CHAT: &str = "/v1/chat/completions";

struct Rig {
    sim: EngineSim,
    client: Client,
}

impl Rig {
    async fn new(options: SimOptions) -> Self {
        Self {
            sim: EngineSim::start(options).await.unwrap(),
            client: Client::new(Protocol::Http1),
        }
    }

    async fn send(&self, call: Call) -> Answer {
        let authority = self.sim.addr.to_string();
        self.client.send(&authority, &call).await.unwrap()
    }

    async fn command(&self, path: &str) {
        let answer = self.send(Call::post_json(path, "")).await;
        assert_eq!(answer.status, 200, "{path}");
    }

    /// Prompt and cached tokens of one short chat.
    async fn chat(&self, text: &str) -> (u64, u64) {
        let answer = self.send(Call::post_json(CHAT, chat(text, 1, false))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let usage = answer.json().unwrap()["usage"].clone();
        let count = |pointer| usage.pointer(pointer).and_then(Value::as_u64).unwrap();
        (
            count("/prompt_tokens"),
            count("/prompt_tokens_details/cached_tokens"),
        )
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = self.send(Call::get("/metrics")).await.text();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")));
        line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

fn fast() -> SimOptions {
    SimOptions {
        prefill_tokens_per_s: 1e6,
        inter_token_ms: 1.0,
        ..SimOptions::default()
    }
}

fn chat(text: &str, max_tokens: u32, stream: bool) -> String {
    json!({
        "model": "sim", "max_tokens": max_tokens, "stream": stream,
        "stream_options": stream.then(|| json!({"include_usage": true})),
        "messages": [{"role": "user", "content": text}],
    })
    .to_string()
}

/// 3 frames and `tokens - 3` tokens of text that starts with `tag`.
fn text(tag: &str, tokens: usize) -> String {
    let whole = format!("{tag:<8}{}", "abcdefgh".repeat(tokens / 2));
    whole[..(tokens - 3) * 4].to_owned()
}

#[tokio::test]
async fn the_second_time_all_full_blocks_but_the_last_token_are_cached() {
    let rig = Rig::new(fast()).await;
    assert_eq!(rig.chat(&text("a", 330)).await, (330, 0));
    assert_eq!(rig.chat(&text("a", 330)).await, (330, 320));
    assert_eq!(rig.chat(&text("b", 320)).await, (320, 0));
    assert_eq!(
        rig.chat(&text("b", 320)).await,
        (320, 304),
        "one token is left to compute"
    );
    assert_eq!(rig.metric("vllm:prefix_cache_queries_total").await, 1300.0);
    assert_eq!(rig.metric("vllm:prefix_cache_hits_total").await, 624.0);
    rig.command("/sim/clear_cache").await;
    assert_eq!(rig.chat(&text("a", 330)).await, (330, 0));
}

#[tokio::test]
async fn a_full_cache_forgets_the_least_recently_used() {
    let rig = Rig::new(SimOptions {
        num_gpu_blocks: 40,
        ..fast()
    })
    .await;
    for tag in ["a", "b", "a", "c"] {
        rig.chat(&text(tag, 330)).await;
    }
    assert_eq!(
        rig.chat(&text("a", 330)).await.1,
        320,
        "used again, so it stayed"
    );
    assert_eq!(rig.chat(&text("b", 330)).await.1, 0);
}

#[tokio::test]
async fn one_prefill_at_a_time_first_come_first_served() {
    let rig = Rig::new(SimOptions {
        prefill_tokens_per_s: 5000.0,
        ..fast()
    })
    .await;
    let calls = ["a", "b", "c"].map(|tag| Call::post_json(CHAT, chat(&text(tag, 500), 2, true)));
    let authority = rig.sim.addr.to_string();
    let mut tasks = Vec::new();
    for call in calls {
        let (client, authority) = (rig.client.clone(), authority.clone());
        let start = Instant::now();
        tasks.push((
            start,
            tokio::spawn(async move { client.send(&authority, &call).await.unwrap() }),
        ));
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    let begin = tasks[0].0;
    assert_eq!(rig.metric("vllm:num_requests_running").await, 1.0);
    assert_eq!(rig.metric("vllm:num_requests_waiting").await, 2.0);
    assert!(rig.metric("vllm:kv_cache_usage_perc").await < 1e-9);
    let mut first = Vec::new();
    for (start, task) in tasks {
        let answer = task.await.unwrap();
        assert!(answer.headers_after < answer.first_bytes_after.unwrap());
        first.push(start + answer.first_bytes_after.unwrap() - begin);
    }
    // Each waits for the prefills before it: 100 ms apiece.
    for (place, at) in first.iter().enumerate() {
        let least = Duration::from_millis(98 * (1 + place as u64));
        assert!(*at >= least, "{first:?}");
    }
}

#[tokio::test]
async fn a_full_batch_makes_others_wait() {
    let rig = Rig::new(SimOptions {
        max_batch: 1,
        inter_token_ms: 40.0,
        ..fast()
    })
    .await;
    let authority = rig.sim.addr.to_string();
    let long = Call::post_json(CHAT, chat(&text("a", 330), 10, true));
    let client = rig.client.clone();
    let running = tokio::spawn(async move { client.send(&authority, &long).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(rig.metric("vllm:kv_cache_usage_perc").await > 20.0 / 4096.0 - 1e-9);
    let second = rig.send(Call::post_json(CHAT, chat("b", 1, true))).await;
    assert!(second.first_bytes_after.unwrap() >= Duration::from_millis(250));
    running.await.unwrap();
    assert_eq!(rig.sim.counts().finished, 2);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let rig = Rig::new(SimOptions {
        max_batch: 1,
        inter_token_ms: 1000.0,
        ..fast()
    })
    .await;
    let long = Call::post_json(CHAT, chat("a", 100, true));
    let opened = rig
        .client
        .open(&rig.sim.addr.to_string(), &long)
        .await
        .unwrap();
    drop(opened);
    assert_eq!(rig.chat("b").await.0, 4);
    let counts = rig.sim.counts();
    assert_eq!((counts.aborted, counts.finished, counts.running), (1, 1, 0));
}

#[tokio::test]
async fn a_stream_has_the_shape_of_vllm() {
    let rig = Rig::new(fast()).await;
    let answer = rig
        .send(Call::post_json(CHAT, chat(&text("a", 330), 3, true)))
        .await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let body = answer.text();
    let events: Vec<&str> = body.split_terminator("\n\n").collect();
    assert_eq!(events.len(), 6, "role, three tokens, usage, end: {body}");
    let event = |i: usize| -> Value {
        serde_json::from_str(events[i].strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(event(0)["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(event(3)["choices"][0]["finish_reason"], "length");
    assert_eq!(
        event(4)["usage"]["prompt_tokens_details"]["cached_tokens"],
        0
    );
    assert_eq!(events[5], "data: [DONE]");
}

#[tokio::test]
async fn completions_and_hidden_cached_tokens() {
    let rig = Rig::new(SimOptions {
        hide_cached_tokens: true,
        ..fast()
    })
    .await;
    let body = json!({"prompt": "abcd".repeat(20), "max_tokens": 2}).to_string();
    let answer = rig.send(Call::post_json("/v1/completions", body)).await;
    let answer = answer.json().unwrap();
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["usage"]["prompt_tokens"], 20);
    assert_eq!(answer["usage"]["prompt_tokens_details"], Value::Null);
}

#[tokio::test]
async fn the_metrics_text_is_whole_and_live() {
    let rig = Rig::new(SimOptions {
        num_gpu_blocks: 777,
        ..fast()
    })
    .await;
    rig.chat(&text("a", 330)).await;
    let text = rig.send(Call::get("/metrics")).await.text();
    assert!(
        (45_000..60_000).contains(&text.len()),
        "{} bytes",
        text.len()
    );
    let families: Vec<&str> = text.lines().filter(|l| l.starts_with("# TYPE ")).collect();
    assert_eq!(families.len(), 92);
    let config = text
        .lines()
        .find(|l| l.starts_with("vllm:cache_config_info{"))
        .unwrap();
    assert!(config.contains(r#"block_size="16""#) && config.contains(r#"num_gpu_blocks="777""#));
    assert!(config.ends_with("} 1.0"));
    assert_eq!(rig.metric("vllm:num_requests_running").await, 0.0);
    assert_eq!(rig.metric("vllm:prompt_tokens_total").await, 330.0);
    assert_eq!(
        rig.metric("vllm:time_to_first_token_seconds_count").await,
        1.0
    );
}

#[tokio::test]
async fn faults_come_and_go() {
    let rig = Rig::new(fast()).await;
    let status = async |path: &str| match path {
        CHAT => rig
            .send(Call::post_json(CHAT, chat("a", 1, false)))
            .await
            .status
            .as_u16(),
        path => rig.send(Call::get(path)).await.status.as_u16(),
    };
    rig.command("/sim/drain").await;
    assert_eq!((status("/health").await, status(CHAT).await), (503, 200));
    rig.command("/sim/drain?on=false").await;
    rig.command("/sim/fail?status=500").await;
    assert_eq!((status("/health").await, status(CHAT).await), (200, 500));
    rig.command("/sim/fail?status=404&path=/metrics").await;
    assert_eq!((status("/metrics").await, status(CHAT).await), (404, 200));
    rig.command("/sim/fail?status=0").await;
    assert_eq!(status("/metrics").await, 200);

    rig.command("/sim/slow?factor=50").await;
    rig.command("/sim/clear_cache").await;
    let slow = rig
        .send(Call::post_json(CHAT, chat(&text("s", 2000), 1, false)))
        .await;
    assert!(slow.done_after >= Duration::from_millis(99));
    let bad = rig.send(Call::post_json("/sim/slow?factor=x", "")).await;
    assert_eq!(bad.status, 400);

    rig.command("/sim/reset").await;
    assert!(rig.sim.log().is_empty());
    assert_eq!(rig.sim.counts().finished, 0);
}

#[tokio::test]
async fn a_hanging_engine_answers_once_released() {
    let rig = Rig::new(fast()).await;
    rig.command("/sim/hang").await;
    let (client, authority) = (rig.client.clone(), rig.sim.addr.to_string());
    let call = Call::post_json(CHAT, chat("a", 1, true));
    let mut hung = tokio::spawn(async move { client.send(&authority, &call).await.unwrap() });
    let early = tokio::time::timeout(Duration::from_millis(100), &mut hung).await;
    assert!(early.is_err(), "no headers while it hangs");
    rig.command("/sim/hang?at=off").await;
    assert_eq!(hung.await.unwrap().status, 200);

    rig.command("/sim/hang?at=body").await;
    let authority = rig.sim.addr.to_string();
    let call = Call::post_json(CHAT, chat("a", 1, true));
    let opened = rig.client.open(&authority, &call).await.unwrap();
    assert_eq!(opened.status(), 200, "headers came at once");
}

#[tokio::test]
async fn bodies_are_logged_as_they_came() {
    let rig = Rig::new(fast()).await;
    let h2 = Client::new(Protocol::H2c);
    let body: bytes::Bytes = chat(&"缓存 warm ".repeat(5000), 1, false).into();
    let mut call = Call::post_json(CHAT, body.clone()).header("x-mark", "7");
    let authority = rig.sim.addr.to_string();
    call.body = BodyPlan::chunked(&body, 4093);
    if let BodyPlan::Frames { trailers, .. } = &mut call.body {
        let mut map = hyper::HeaderMap::new();
        map.insert("x-after", "end".parse().unwrap());
        *trailers = Some(map);
    }
    for client in [&h2, &rig.client] {
        let call = call.clone().header("trailer", "x-after");
        assert_eq!(client.send(&authority, &call).await.unwrap().status, 200);
    }
    let zipped = Call::post_json(CHAT, vec![0x1f, 0x8b, 0xff]).header("content-encoding", "gzip");
    assert_eq!(rig.send(zipped).await.status, 200);
    assert_eq!(rig.send(Call::post_json(CHAT, "{")).await.status, 400);
    assert_eq!(rig.send(Call::get("/nowhere")).await.status, 404);

    let log = rig.sim.log();
    assert_eq!(log.len(), 5);
    for (entry, version) in log.iter().zip(["HTTP/2.0", "HTTP/1.1"]) {
        assert_eq!(entry.version, version);
        assert_eq!(
            (entry.body_bytes, &entry.body_digest),
            (body.len(), &digest(&body))
        );
        assert_eq!(entry.header("x-mark"), Some("7"));
        assert_eq!(entry.trailers, [("x-after".to_owned(), "end".to_owned())]);
    }
    assert!(log[1].cached_tokens > 0 && log[1].prompt_tokens > log[1].cached_tokens);
    assert_eq!(log[2].body_digest, digest(&[0x1f, 0x8b, 0xff]));
    let over_http = rig.send(Call::get("/sim/log")).await.json().unwrap();
    assert_eq!(over_http["requests"][4]["path"], "/nowhere");
}

#[tokio::test]
async fn load_is_reported_in_a_header_when_asked() {
    let rig = Rig::new(fast()).await;
    let ask = |format: &str| {
        Call::post_json(CHAT, chat("a", 1, false)).header("endpoint-load-metrics-format", format)
    };
    let json = rig.send(ask("JSON")).await;
    let json = json.header("endpoint-load-metrics").unwrap();
    let value: Value = serde_json::from_str(json.strip_prefix("JSON ").unwrap()).unwrap();
    assert_eq!(value["named_metrics"]["num_requests_waiting"], 0.0);
    let text = rig.send(ask("TEXT")).await;
    let text = text.header("endpoint-load-metrics").unwrap();
    assert!(text.starts_with("TEXT named_metrics.num_requests_waiting=0.0, "));
    let without = rig.send(Call::post_json(CHAT, chat("a", 1, false))).await;
    assert_eq!(without.header("endpoint-load-metrics"), None);
}

#[tokio::test]
async fn websockets_open_and_dropped_engines_close() {
    let rig = Rig::new(fast()).await;
    let authority = rig.sim.addr.to_string();
    let call = Call::get("/v1/realtime")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "bm90IGNoZWNrZWQgaGVyZQ==");
    let response = rig.client.open(&authority, &call).await.unwrap();
    assert_eq!(response.status(), 101);
    assert!(hyper::upgrade::on(response).await.is_ok());
    let Rig { sim, client } = rig;
    drop(sim);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(
        client
            .send(&authority, &Call::get("/health"))
            .await
            .is_err()
    );
}
