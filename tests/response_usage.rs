//! Token counts out of answers of every API shape, in any chunks.

use warmroute::response::usage::{Shape, Usage, UsageScan};

fn fixture(name: &str) -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/responses/");
    std::fs::read(format!("{dir}{name}")).unwrap()
}

fn usage(prompt: u32, cached: impl Into<Option<u32>>, completion: u32) -> Usage {
    Usage {
        prompt_tokens: Some(prompt),
        cached_tokens: cached.into(),
        completion_tokens: Some(completion),
    }
}

fn whole(body: &[u8], shape: Shape, is_stream: bool) -> Usage {
    let mut scan = UsageScan::new(shape, is_stream);
    scan.push(body);
    scan.usage()
}

fn cases() -> Vec<(&'static str, Shape, Usage)> {
    vec![
        ("chat.json", Shape::Usage, usage(333, 256, 7)),
        ("chat_stream.sse", Shape::Usage, usage(1200, 1024, 5)),
        (
            "chat_stream_usage_null.sse",
            Shape::Usage,
            usage(90, None, 5),
        ),
        ("responses.json", Shape::Usage, usage(450, 320, 12)),
        ("responses_stream.sse", Shape::Usage, usage(451, 0, 2)),
        ("anthropic.json", Shape::Usage, usage(1000, 880, 30)),
        ("anthropic_stream.sse", Shape::Usage, usage(1000, 960, 25)),
        ("sglang_generate.json", Shape::MetaInfo, usage(77, 64, 3)),
        (
            "sglang_generate_stream.sse",
            Shape::MetaInfo,
            usage(512, 384, 12),
        ),
    ]
}

#[test]
fn every_shape_in_any_chunks() {
    let mut rng = fastrand::Rng::with_seed(6);
    for (name, shape, expected) in cases() {
        let body = fixture(name);
        let is_stream = name.ends_with(".sse");
        assert_eq!(whole(&body, shape, is_stream), expected, "{name}");
        for round in 0..300 {
            let longest = [1, 2, 5, 70, 400][round % 5];
            let mut scan = UsageScan::new(shape, is_stream);
            let mut rest = body.as_slice();
            while !rest.is_empty() {
                let (chunk, behind) = rest.split_at(rng.usize(0..=longest).min(rest.len()));
                scan.push(chunk);
                rest = behind;
            }
            assert_eq!(scan.usage(), expected, "{name}, chunks up to {longest}");
        }
        for cut in 0..body.len() {
            let mut scan = UsageScan::new(shape, is_stream);
            scan.push(&body[..cut]);
            scan.push(&body[cut..]);
            assert_eq!(scan.usage(), expected, "{name}, cut at {cut}");
        }
    }
}

#[test]
fn a_body_that_tells_nothing() {
    for body in [
        "",
        "{}",
        r#"{"usage":null}"#,
        r#"{"usage":{}}"#,
        r#"{"usage":{"prompt_tokens":null}}"#,
        r#"{"usage":"none","prompt_tokens":3}"#,
        r#"{"usage":[{"prompt_tokens":3}]}"#,
        r#"{"usage":{"prompt_tokens":-3,"completion_tokens":1.5}}"#,
        r#"{"usage":{"prompt_tokens":99999999999}}"#,
        r#"{"a":"\"usage\":{\"prompt_tokens\":3}"}"#,
        r#"{"a":"\\\"usage\": {\"prompt_tokens\":3}"}"#,
        r#"{"my_usage":{"prompt_tokens":3}}"#,
        r#"{"usage":{"details":{"prompt_tokens":3}}}"#,
    ] {
        let body = body.as_bytes();
        assert_eq!(
            whole(body, Shape::Usage, false),
            Usage::default(),
            "{body:?}"
        );
        assert_eq!(
            whole(body, Shape::Usage, true),
            Usage::default(),
            "{body:?}"
        );
    }
}

#[test]
fn a_count_cut_in_two_is_not_half_a_count() {
    let body = br#"{"usage":{"prompt_tokens":755,"completion_tokens":81"#;
    for cut in 0..=body.len() {
        let told = whole(&body[..cut], Shape::Usage, true);
        assert!(
            matches!(told.prompt_tokens, None | Some(755)),
            "cut at {cut}"
        );
        assert_eq!(told.completion_tokens, None, "cut at {cut}");
    }
}

#[test]
fn cached_tokens_of_other_details_are_not_taken() {
    let body = br#"{"usage":{"prompt_tokens":5,"output_tokens_details":{"cached_tokens":4}}}"#;
    assert_eq!(whole(body, Shape::Usage, false).cached_tokens, None);
}

#[test]
fn counts_in_every_event_end_at_the_last() {
    let mut scan = UsageScan::new(Shape::Usage, true);
    for i in 1..=500 {
        let event = format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":64,\"completion_tokens\":{i}}}}}\n\n"
        );
        scan.push(event.as_bytes());
    }
    assert_eq!(scan.usage(), usage(64, None, 500));
}

#[test]
fn a_long_answer_before_and_an_endless_object_after() {
    let mut body = b"{\"choices\":[\"".to_vec();
    body.extend(b"word ".repeat(100_000));
    body.extend(b"\"],\"usage\":{\"prompt_tokens\":8,\"x\":\"");
    body.extend(b"word ".repeat(100_000));
    assert_eq!(whole(&body, Shape::Usage, false).prompt_tokens, Some(8));
}

#[test]
fn any_bytes_are_read_without_harm() {
    let mut rng = fastrand::Rng::with_seed(12);
    let parts: [&[u8]; 9] = [
        b"\"usage\"",
        b":",
        b"{",
        b"}",
        b"\"prompt_tokens\":",
        b"12",
        b",",
        b"\\",
        b"\"",
    ];
    for _ in 0..5_000 {
        let mut scan = UsageScan::new(Shape::Usage, rng.bool());
        for _ in 0..rng.usize(..60) {
            match rng.usize(..12) {
                i if i < parts.len() => scan.push(parts[i]),
                _ => scan.push(&[rng.u8(..)]),
            }
        }
        assert!(scan.usage().prompt_tokens.is_none_or(|n| n > 0));
    }
}
