//! Requests that are none of the plugin's business: each is answered by the engine as without it,
//! each reason is counted, and no client aims at an engine of its choice.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use warmroute_lab::client::{BodyPlan, Call, Client, Protocol};
use warmroute_lab::engine_sim::EngineSim;
use warmroute_lab::envoy::PICK_HEADER;
use warmroute_lab::stage::{
    CHAT, Decision, Stage, addresses, arrivals, chat, fallback, numbered, served_by, sims, swift,
    text,
};

fn call(method: &Method, path: &str, body: BodyPlan) -> Call {
    Call {
        method: method.clone(),
        path: path.into(),
        body,
        ..Call::default()
    }
}

fn whole(body: &[u8]) -> BodyPlan {
    BodyPlan::Whole(Bytes::copy_from_slice(body))
}

/// Requests with the reason for which each passes.
fn passing() -> Vec<(&'static str, Call)> {
    let post = |path: &str, body: BodyPlan| call(&Method::POST, path, body);
    let mut all = vec![
        ("no_body", Call::get("/v1/models")),
        (
            "no_body",
            call(&Method::HEAD, "/v1/models", BodyPlan::Empty),
        ),
        (
            "no_body",
            call(&Method::DELETE, "/v1/files/7", BodyPlan::Empty),
        ),
        ("no_body", post(CHAT, BodyPlan::Empty)),
        (
            "no_body",
            post(CHAT, BodyPlan::Empty).header("content-length", "0"),
        ),
        (
            "unsupported_call",
            post("/v1/videos", whole(br#"{"content": "a cat"}"#)),
        ),
        (
            "unsupported_call",
            post("/v1/messages/count_tokens", whole(br#"{"messages": []}"#)),
        ),
        (
            "unsupported_call",
            post(
                "/upload",
                BodyPlan::chunked(&text(1, 5_000_000).into(), 100_000),
            )
            .header("content-type", "multipart/form-data; boundary=b"),
        ),
        // Not told apart by what is in it: the header counts.
        (
            "encoded",
            post(CHAT, whole(b"\x1f\x8b\x08\0\0\0\0\0\0\x03")).header("content-encoding", "gzip"),
        ),
        (
            "encoded",
            post(CHAT, whole(chat("s", &["q".into()]).as_bytes()))
                .header("content-encoding", "gzip"),
        ),
        ("no_prompt", post(CHAT, whole(b"{}"))),
    ];
    let malformed: [&[u8]; 6] = [
        br#"{"a":}"#,
        b"\xff\xfe{}",
        br#"{"messages": [{"role": "user", "content": "cut"#,
        b"[]",
        br#""x""#,
        br#"{"messages": 7}"#,
    ];
    all.extend(malformed.map(|body| ("malformed", post(CHAT, whole(body)))));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_answered_as_by_the_engine_itself() {
    for workers in [1, 4] {
        let sims = sims(2, &swift()).await.unwrap();
        let stage = Stage::start(workers, addresses(&sims)).await.unwrap();
        let mut expected = BTreeMap::new();
        for (reason, call) in passing() {
            for (protocol, client) in [(Protocol::Http1, &stage.http1), (Protocol::H2c, &stage.h2)]
            {
                let sent = numbered(call.clone().header(PICK_HEADER, "127.0.0.1:1"));
                let what = format!("{} {} {protocol:?}", call.method, call.path);
                let answer = stage.send_by(client, &sent.call).await.unwrap();
                assert_eq!(
                    fallback(&answer),
                    Some(reason),
                    "{what} {:?}",
                    answer.headers
                );
                *expected.entry(reason).or_insert(0) += 1;

                let arrived = arrivals(&sims, &sent.number);
                assert_eq!(arrived.len(), 1, "{what}");
                let (place, entry) = &arrived[0];
                assert_eq!(entry.header(PICK_HEADER), None, "{what}");
                assert_eq!(served_by(&answer), sims[*place].addr.to_string());
                let direct = numbered(call.clone());
                let authority = sims[*place].addr.to_string();
                let alone = Client::new(Protocol::Http1);
                let alone = alone.send(&authority, &direct.call).await.unwrap();
                assert_eq!(answer.status, alone.status, "{what}");
                if answer.status != 200 {
                    assert_eq!(answer.text(), alone.text(), "{what}");
                }
                let direct = arrivals(&sims, &direct.number);
                assert_eq!(entry.body_digest, direct[0].1.body_digest, "{what}");
            }
        }
        for (reason, count) in expected {
            let name = format!("warmroute_fallback_total.reason.{reason}");
            stage.until(&name, |now| now == count).await.unwrap();
        }
        assert_eq!(stage.count("warmroute_inflight").await.unwrap(), 0);
        assert_eq!(
            stage
                .count("warmroute_host_call_failure_total")
                .await
                .unwrap(),
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_own_pick_is_neither_followed_nor_passed_on() {
    let sims = sims(3, &swift()).await.unwrap();
    let stage = Stage::start(1, addresses(&sims)).await.unwrap();
    let wished = sims[2].addr.to_string();
    let mut elsewhere = 0;
    for _ in 0..16 {
        let sent = numbered(Call::get("/v1/models").header(PICK_HEADER, &wished));
        let answer = stage.send(&sent.call).await.unwrap();
        elsewhere += u32::from(served_by(&answer) != wished);
        assert_eq!(arrivals(&sims, &sent.number)[0].1.header(PICK_HEADER), None);
    }
    assert!(
        elsewhere > 0,
        "least request does not send 16 of 16 to one of three"
    );

    let body = chat(&text(1, 9000), &[text(2, 500)]);
    let (_, first) = stage.steered(&body).await.unwrap();
    let other = sims
        .iter()
        .find(|sim| sim.addr.to_string() != first.endpoint);
    let other = other.unwrap().addr.to_string();
    for protocol in [&stage.http1, &stage.h2] {
        let call = Call::post_json(CHAT, body.clone()).header(PICK_HEADER, &other);
        // Twice in one request is still the client's.
        let sent = numbered(call.header(PICK_HEADER, "169.254.169.254:80"));
        let answer = stage.send_by(protocol, &sent.call).await.unwrap();
        assert_eq!(served_by(&answer), first.endpoint);
        assert_eq!(arrivals(&sims, &sent.number)[0].1.header(PICK_HEADER), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_endpoints_the_gateway_balances() {
    let sims = sims(2, &swift()).await.unwrap();
    let nobody = json!({"endpoints": {"admin": {"cluster": "envoy_admin", "of": ["nobody"]}}});
    let stage = Stage::with(1, addresses(&sims), nobody, |_| {})
        .await
        .unwrap();
    let body = chat(&text(1, 9000), &[text(2, 500)]);
    for protocol in [&stage.http1, &stage.h2] {
        let sent = numbered(Call::post_json(CHAT, body.clone()));
        let answer = stage.send_by(protocol, &sent.call).await.unwrap();
        assert_eq!(answer.status, 200);
        if fallback(&answer).is_none() {
            // The cluster of a request is discovered when it is not named: then it was fast.
            assert!(Decision::of(&answer).is_some(), "{:?}", answer.headers);
        }
        let arrived = arrivals(&sims, &sent.number);
        assert_eq!(arrived[0].1.body_bytes, body.len());
    }
    let passed = stage
        .count("warmroute_fallback_total.reason.no_endpoints")
        .await
        .unwrap();
    assert!(passed >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes() {
    let sims = sims(2, &swift()).await.unwrap();
    let stage = Stage::start(1, addresses(&sims)).await.unwrap();
    for path in ["/v1/responses", "/v1/realtime"] {
        let sent = numbered(
            Call::get(path)
                .header("connection", "Upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .header(PICK_HEADER, &sims[0].addr.to_string()),
        );
        let authority = stage.envoy.authority();
        let answer = stage.fresh.open(&authority, &sent.call).await.unwrap();
        assert_eq!(answer.status(), 101);
        assert_eq!(arrivals(&sims, &sent.number)[0].1.header(PICK_HEADER), None);
        drop(hyper::upgrade::on(answer).await.unwrap());
    }
    let name = "warmroute_fallback_total.reason.upgrade";
    stage.until(name, |count| count == 2).await.unwrap();
    let used: Vec<&EngineSim> = sims.iter().filter(|sim| !sim.log().is_empty()).collect();
    assert!(!used.is_empty());
}
