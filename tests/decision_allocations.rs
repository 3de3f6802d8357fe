//! A whole request allocates a fixed number of times, whatever the number of its messages.

mod counting;

use warmroute::clock::Millis;
use warmroute::config::{Config, EndpointSource, StaticEndpoint};
use warmroute::endpoints::own::Ending;
use warmroute::engine::Engine;
use warmroute::pool::Served;
use warmroute::request::BodyEnd;
use warmroute::session::{Head, Session, Step};

const ENDPOINTS: usize = 8;

/// A chat of so many messages of some 100 bytes, in few blocks: what grows with the blocks is counted elsewhere.
fn chat(messages: usize) -> Vec<u8> {
    let turn = r#"{"role":"user","content":"Some words that a user might say, with a line break\n and more."}"#;
    let turns = vec![turn; messages].join(",");
    format!(r#"{{"model":"m","messages":[{turns}],"stream":true}}"#).into_bytes()
}

/// Heap allocations of one request: its headers and body and the decision; its answer and its end.
fn request(engine: &mut Engine, body: &[u8], now: Millis) -> [usize; 2] {
    let start = counting::calls();
    let mut session = Session::default();
    let head = Head {
        method: b"POST",
        path: b"/v1/chat/completions",
        content_length: Some(body.len() as u64),
        ..Head::default()
    };
    assert_eq!(session.head(engine, "engines", &head), Step::Hold);
    for piece in body.chunks(4 << 10) {
        session.body(piece);
    }
    let step = session.decide(engine, BodyEnd::Complete, now, |_, _| {});
    assert!(matches!(step, Step::Steer { .. }), "{step:?}");
    let decided = counting::calls();
    let served = Served {
        status: 200,
        by: None,
        attempts: None,
    };
    session.response_head(engine, &served, true, now);
    session.response_body(engine, b"data: {}\n\n", false, now);
    session.response_body(engine, b"data: [DONE]\n\n", true, now);
    session.end(engine, Ending::Served, now);
    [decided - start, counting::calls() - decided]
}

#[test]
fn a_decision_allocates_the_same_for_ten_messages_and_for_a_thousand() {
    let endpoints = (0..ENDPOINTS).map(|n| StaticEndpoint {
        address: format!("10.0.0.{}:8000", n + 1),
    });
    let mut config = Config {
        endpoints: EndpointSource::Static(endpoints.collect()),
        ..Config::default()
    };
    // Two blocks a prompt, so that messages alone differ.
    config.prompt.block_bytes = 1 << 16;
    let mut engine = Engine::new(config, 7);
    let (few, many) = (chat(10), chat(1_000));
    for body in [&few, &many, &few, &many] {
        request(&mut engine, body, Millis(1_000));
    }
    let few = request(&mut engine, &few, Millis(2_000));
    let many = request(&mut engine, &many, Millis(3_000));
    println!("allocations of decision and answer: 10 messages {few:?}, 1,000 messages {many:?}");
    // Buffers that grow by doubling; far below one a message.
    assert!(many[0] <= few[0] + 12, "{few:?} {many:?}");
    assert!(few[0] <= 30 && few[1] <= 10, "{few:?}");
}
