//! What messages mean, of chat completions and of Anthropic's: shapes that clients send, and what must and must not
//! match.

mod prompt_support;

use prompt_support::{LONG, chat, read, same, shared, shared_bytes, small_blocks};
use warmroute::request::{Api, BodyEnd, PromptPlan, PromptReader, Seed};

#[test]
fn content_null_missing_and_empty_parse_and_tool_calls_count() {
    let body = |content: &str, city: &str| {
        chat(&format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{LONG}"}},{{"role":"assistant",{content}"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"weather","arguments":"{{\"city\":\"{city}\"}}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"12 degrees and rain from the west"}}]}}"#
        ))
    };
    same(&body(r#""content":null,"#, "Oslo"), &body("", "Oslo"));
    let empty = body(r#""content":"","#, "Oslo");
    assert!(empty.later_turn);
    let (oslo, bern) = (body("", "Oslo"), body("", "Bern"));
    assert!(shared(&oslo, &bern) < oslo.blocks.len());
    assert!(
        shared_bytes(&oslo, &bern) >= 64,
        "{}",
        shared_bytes(&oslo, &bern)
    );
}

#[test]
fn a_string_is_one_text_part() {
    let body = |content: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"tool","tool_call_id":"x","content":{content}}}]}}"#
        ))
    };
    let string = body(&format!(r#""{LONG}""#));
    same(
        &string,
        &body(&format!(r#"[{{"type":"text","text":"{LONG}"}}]"#)),
    );
    same(
        &string,
        &body(&format!(
            r#"[{{"text":"{LONG}","cache_control":{{"type":"ephemeral"}},"type":"text"}}]"#
        )),
    );
    same(
        &string,
        &body(&format!(r#"[{{"type":"input_text","text":"{LONG}"}}]"#)),
    );
    let (head, tail) = LONG.split_at(40);
    let two = body(&format!(
        r#"[{{"type":"text","text":"{head}"}},{{"type":"text","text":"{tail}"}}]"#
    ));
    assert_ne!(string.blocks, two.blocks);
}

#[test]
fn media_enter_by_their_hash() {
    let body = |part: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{LONG}"}}{part},{{"type":"text","text":"{LONG}"}}]}}]}}"#
        ))
    };
    let image = |url: &str| {
        body(&format!(
            r#",{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#
        ))
    };
    let big = format!("data:image/png;base64,{}", "QUJD".repeat(20_000));
    let (a, b, none) = (image("https://images.example/a.png"), image(&big), body(""));
    for (x, y) in [(&a, &b), (&a, &none), (&b, &none)] {
        let common = shared(x, y);
        assert!(
            common >= LONG.len() / 16 && common <= LONG.len() / 16 + 2,
            "{common}"
        );
        assert_ne!(x.blocks.last(), y.blocks.last());
    }
    same(&image(&big), &b);
    assert_eq!(a.bytes, b.bytes);
    assert_eq!(none.bytes, 2 * LONG.len() as u64);
    // Parts of kinds that are not known are told apart as well.
    let other = |id: &str| body(&format!(r#",{{"type":"hologram","hologram_ref":"{id}"}}"#));
    assert_ne!(other("1").blocks, other("2").blocks);
}

#[test]
fn salt_isolation_and_model_keep_apart() {
    let body =
        |extra: &str| format!(r#"{{"messages":[{{"role":"user","content":"{LONG}"}}]{extra}}}"#);
    let read_with = |extra: &str, seed: Seed<'_>| {
        let mut reader = PromptReader::new(Api::Chat, PromptPlan::new(&small_blocks()).into());
        reader.feed(body(extra).as_bytes());
        reader.finish(seed, BodyEnd::Complete).expect("a prompt")
    };
    let tenant = |t: &'static str| Seed {
        isolation: Some(t.as_bytes()),
        model_override: None,
    };
    let prompts = [
        chat(&body("")),
        chat(&body(r#","model":"base""#)),
        chat(&body(r#","model":"base-lora-a""#)),
        chat(&body(r#","cache_salt":"A""#)),
        chat(&body(r#","cache_salt":"B""#)),
        chat(&body(r#","cache_salt":"""#)),
        chat(&body(r#","chat_template":"A""#)),
        read_with("", tenant("A")),
        read_with("", tenant("")),
        read_with("", tenant("B")),
    ];
    for (i, a) in prompts.iter().enumerate() {
        for (j, b) in prompts.iter().enumerate() {
            assert_eq!(
                shared(a, b),
                if i == j { a.blocks.len() } else { 0 },
                "{i} {j}"
            );
            assert_eq!(a.conversation == b.conversation, i == j);
        }
    }
    same(&prompts[3], &chat(&body(r#","cache_salt":"A""#)));
    same(&prompts[0], &chat(&body(r#","cache_salt":null"#)));
    let rewritten = read_with(
        r#","model":"base""#,
        Seed {
            isolation: None,
            model_override: Some("base-lora-a"),
        },
    );
    assert_eq!(
        (&rewritten.blocks, rewritten.model.as_str()),
        (&prompts[2].blocks, "base")
    );
    // The model may come before the messages as well as after them.
    same(
        &prompts[1],
        &chat(&format!(r#"{{"model":"base",{}"#, &body("")[1..])),
    );
    let long = |end: char| chat(&body(&format!(r#","model":"{}{end}""#, "m".repeat(2000))));
    assert_ne!(long('a').blocks, long('b').blocks);
    assert!(long('a').model.len() < 64);
}

#[test]
fn anthropic_system_as_string_or_blocks_and_nested_results() {
    let body = |system: &str| {
        read(
            Api::Messages,
            &format!(
                r#"{{"system":{system},"messages":[{{"role":"user","content":"hi"}}],"model":"c"}}"#
            ),
        )
    };
    same(
        &body(&format!(r#""{LONG}""#)),
        &body(&format!(r#"[{{"type":"text","text":"{LONG}"}}]"#)),
    );
    let result = |content: &str, id: &str| {
        read(
            Api::Messages,
            &format!(
                r#"{{"messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":{content}}}]}}]}}"#
            ),
        )
    };
    let string = result(&format!(r#""{LONG}""#), "t1");
    same(
        &string,
        &result(&format!(r#"[{{"type":"text","text":"{LONG}"}}]"#), "t1"),
    );
    assert!(string.blocks.len() >= LONG.len() / 16);
    assert_ne!(
        string.blocks.last(),
        result(&format!(r#""{LONG}""#), "t2").blocks.last()
    );
    let thinking = |text: &str| {
        read(
            Api::Messages,
            &format!(
                r#"{{"messages":[{{"role":"assistant","content":[{{"type":"thinking","thinking":"{text}","signature":"s"}},{{"type":"tool_use","id":"t","name":"n","input":{{"a":1}}}}]}},{{"role":"user","content":"{LONG}"}}]}}"#
            ),
        )
    };
    assert!(shared(&thinking("a"), &thinking("b")) <= 4);
    assert_ne!(thinking("a").blocks.last(), thinking("b").blocks.last());
}
