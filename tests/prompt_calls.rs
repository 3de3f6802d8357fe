//! What each call's bodies mean: shapes that clients send, and what must and must not match.

mod prompt_support;

use prompt_support::{chat, read, shared, shared_bytes, small_blocks, try_read};
use warmroute::config::{CharClass, IgnorePattern, PromptOptions, ToolMode};
use warmroute::request::{Api, BodyEnd, Cut, Prompt, PromptPlan, PromptReader, Seed, Unreadable};

const LONG: &str =
    "A system text that is long enough to fill a good many blocks of sixteen bytes each.";

fn malformed(api: Api, body: &[u8]) {
    let got = try_read(api, &small_blocks(), &[body], BodyEnd::Complete);
    assert_eq!(
        got,
        Err(Unreadable::Malformed),
        "{}",
        String::from_utf8_lossy(body)
    );
}

#[track_caller]
fn same(a: &Prompt, b: &Prompt) {
    assert_eq!(a.blocks, b.blocks);
    assert_eq!(a.conversation, b.conversation);
    assert_eq!(
        (a.bytes, a.head_bytes, a.later_turn),
        (b.bytes, b.head_bytes, b.later_turn)
    );
}

#[test]
fn paths() {
    for (path, api) in [
        ("/v1/chat/completions", Some(Api::Chat)),
        ("/v1/chat/completions?a=b", Some(Api::Chat)),
        ("/v1/chat/completions/", Some(Api::Chat)),
        ("/llm/v1/chat/completions/?x=/", Some(Api::Chat)),
        ("/v1/completions", Some(Api::Completions)),
        ("/v1/responses", Some(Api::Responses)),
        ("/anthropic/v1/messages", Some(Api::Messages)),
        ("/v1/messages?beta=true", Some(Api::Messages)),
        ("/v1/embeddings", Some(Api::Embeddings)),
        ("/generate", Some(Api::Generate)),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/count_tokens?beta=true", None),
        ("/v1/videos", None),
        ("/v1/responses/r1/cancel", None),
        ("/v1/models", None),
        ("/v1/chat/completions//", None),
        ("/x?/v1/chat/completions", None),
        ("", None),
    ] {
        assert_eq!(Api::of_path(path.as_bytes()), api, "{path}");
    }
}

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

fn tool(name: &str, about: &str) -> String {
    format!(
        r#"{{"type":"function","function":{{"name":"{name}","description":"{about}","parameters":{{"type":"object"}}}}}}"#
    )
}

fn with_tools(mode: ToolMode, key: &str, tools: &[String]) -> Prompt {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"{LONG}"}}],"{key}":[{}]}}"#,
        tools.join(",")
    );
    let options = PromptOptions {
        tool_mode: mode,
        ..small_blocks()
    };
    try_read(Api::Chat, &options, &[body.as_bytes()], BodyEnd::Complete).expect("a prompt")
}

#[test]
fn tools_by_mode() {
    let (a, b, a2) = (
        tool("a", "first"),
        tool("b", "second"),
        tool("a", "other words"),
    );
    for mode in [ToolMode::Full, ToolMode::Identity] {
        let ab = with_tools(mode, "tools", &[a.clone(), b.clone()]);
        let ba = with_tools(mode, "tools", &[b.clone(), a.clone()]);
        assert_ne!(ab.blocks.last(), ba.blocks.last());
        same(&ab, &with_tools(mode, "tools", &[a.clone(), b.clone()]));
        same(&ab, &with_tools(mode, "functions", &[a.clone(), b.clone()]));
        let reworded = with_tools(mode, "tools", &[a2.clone(), b.clone()]);
        assert_eq!(
            ab.blocks.last() == reworded.blocks.last(),
            mode == ToolMode::Identity
        );
    }
    let none = |tools: &[String]| with_tools(ToolMode::None, "tools", tools);
    assert_eq!(none(&[a.clone(), b.clone()]).blocks, none(&[b, a]).blocks);
    assert!(none(&[a2]).bytes > LONG.len() as u64);
}

#[test]
fn tools_come_before_messages_wherever_the_body_has_them() {
    let tools = format!(r#""tools":[{}]"#, tool("a", LONG));
    let messages = format!(r#""messages":[{{"role":"user","content":"{LONG}"}}]"#);
    let first = chat(&format!("{{{tools},{messages}}}"));
    let last = chat(&format!("{{{messages},{tools}}}"));
    same(&first, &last);
    assert_eq!(first.ends, last.ends);
    let other = chat(&format!(
        r#"{{{tools},"messages":[{{"role":"user","content":"Something else"}}]}}"#
    ));
    assert!(shared_bytes(&first, &other) >= LONG.len() as u64);
}

fn claude(nonce: &str, options: &PromptOptions) -> Prompt {
    let body = format!(
        r#"{{"model":"c","messages":[{{"role":"user","content":[{{"type":"text","text":"hello","cache_control":{{"type":"ephemeral"}}}}]}}],"system":[{{"type":"text","text":"x-billing: v=1.2; entry=cli; cch={nonce};"}},{{"type":"text","text":"{LONG}","cache_control":{{"type":"ephemeral"}}}}],"stream":true}}"#
    );
    try_read(
        Api::Messages,
        options,
        &[body.as_bytes()],
        BodyEnd::Complete,
    )
    .expect("a prompt")
}

#[test]
fn a_nonce_ends_the_match_unless_it_is_ignored() {
    let (a, b) = (
        claude("36ee5", &small_blocks()),
        claude("0aaa9", &small_blocks()),
    );
    assert!(shared(&a, &b) <= 3, "{}", shared(&a, &b));
    assert!(a.stream);
    let hex = CharClass((0x3FF << b'0') | (0x3F << b'a'));
    let ignore = |max_chars| PromptOptions {
        ignore: vec![IgnorePattern {
            prefix: "; cch=".to_owned(),
            class: hex,
            max_chars,
        }],
        ..small_blocks()
    };
    let (a, b) = (claude("36ee5", &ignore(5)), claude("0aaa9", &ignore(5)));
    same(&a, &b);
    assert_ne!(
        claude("36ee5", &ignore(4)).blocks,
        claude("0aaa9", &ignore(4)).blocks
    );
    assert_eq!(a.bytes, claude("36ee5", &small_blocks()).bytes);
    // What is no part of the class stays.
    assert_ne!(claude("36ee5x", &ignore(5)).blocks, a.blocks);
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

#[test]
fn completions_in_every_form() {
    let read = |body: &str| {
        let options = PromptOptions {
            block_bytes: 16,
            ..PromptOptions::default()
        };
        try_read(
            Api::Completions,
            &options,
            &[body.as_bytes()],
            BodyEnd::Complete,
        )
        .expect(body)
    };
    assert_eq!(read(r#"{"model":"m","prompt":"hello"}"#).bytes, 5);
    assert_eq!(read(r#"{"prompt":["hello","world"]}"#).bytes, 10);
    let ids = |list: &str| read(&format!(r#"{{"prompt":{list}}}"#));
    assert_eq!(ids("[1,2,3]").bytes, 12);
    assert_ne!(
        ids("[1,2,3,4,5]").conversation,
        ids("[12,3,4,5]").conversation
    );
    assert_ne!(
        ids("[1,2,3,4,5,6,7,8]").blocks,
        ids("[12,3,4,5,6,7,8,9]").blocks
    );
    // Of a batch the first prompt counts, as if it came alone; the others weigh.
    let (alone, batch) = (ids("[[5,6,7,8,9,10,11]]"), ids("[[5,6,7,8,9,10,11],[1,2]]"));
    assert_eq!(
        (&alone.blocks, alone.conversation),
        (&batch.blocks, batch.conversation)
    );
    assert_eq!((alone.bytes, batch.bytes), (28, 36));
    assert_eq!(alone.blocks, ids("[5,6,7,8,9,10,11]").blocks);
    assert_eq!(
        read(r#"{"prompt":"","prompt_token_ids":[123,456,789]}"#).bytes,
        12
    );
    assert_ne!(
        read(r#"{"prompt":"","prompt_token_ids":[1,2,3,4,5,6,7]}"#).blocks,
        read(r#"{"prompt":"","prompt_token_ids":[1,2,3,4,5,6,8]}"#).blocks
    );
    let odd = ids("[1,-2,1.5,99999999999999999999999,4294967295]");
    assert_eq!(odd.bytes, 20);
    for empty in [r#"{"model":"m"}"#, r#"{"prompt":[]}"#, r#"{"prompt":null}"#] {
        let got = try_read(
            Api::Completions,
            &small_blocks(),
            &[empty.as_bytes()],
            BodyEnd::Complete,
        );
        assert_eq!(got, Err(Unreadable::NoPrompt), "{empty}");
    }
}

#[test]
fn embeddings_and_generate() {
    assert_eq!(read(Api::Embeddings, r#"{"input":["a","b"]}"#).bytes, 2);
    assert_eq!(
        read(Api::Embeddings, r#"{"input":[[1,2],[3,4]]}"#).bytes,
        16
    );
    let text = read(
        Api::Generate,
        &format!(r#"{{"text":"{LONG}","session_params":{{"id":"s1"}},"stream":true}}"#),
    );
    assert!(text.session.is_some() && text.stream && text.bytes == LONG.len() as u64);
    let other = read(
        Api::Generate,
        &format!(r#"{{"text":"{LONG}","session_params":{{"id":"s2"}}}}"#),
    );
    assert!(other.session != text.session && other.blocks == text.blocks);
    let image = read(
        Api::Generate,
        &format!(r#"{{"text":"{LONG}","image_data":"x"}}"#),
    );
    assert_eq!(shared(&image, &text), 0);
    let adapter = read(
        Api::Generate,
        &format!(r#"{{"text":"{LONG}","lora_path":"x"}}"#),
    );
    assert_eq!(shared(&adapter, &text), 0);
    assert_eq!(read(Api::Generate, r#"{"input_ids":[[1,2,3]]}"#).bytes, 12);
}

#[test]
fn responses_in_every_form() {
    let body = |input: &str, extra: &str| {
        read(
            Api::Responses,
            &format!(r#"{{"model":"m","input":{input}{extra}}}"#),
        )
    };
    let string = body(&format!(r#""{LONG}""#), "");
    same(
        &string,
        &body(&format!(r#"[{{"role":"user","content":"{LONG}"}}]"#), ""),
    );
    same(
        &string,
        &body(
            &format!(
                r#"[{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{LONG}"}}]}}]"#
            ),
            "",
        ),
    );
    let told = body(
        &format!(r#""{LONG}""#),
        &format!(r#","instructions":"{LONG}""#),
    );
    assert_eq!(told.bytes, 2 * LONG.len() as u64);
    assert_eq!(
        (told.head_bytes, shared(&told, &string)),
        (LONG.len() as u64, 0)
    );
    // What the server remembers is not in the body: a short input alone claims nothing.
    let next = body(&format!(r#""{LONG}""#), r#","previous_response_id":"r1""#);
    assert_eq!(shared(&next, &string), 0);
    assert!(next.later_turn && next.session.is_some());
    let keyed = body(
        &format!(r#""{LONG}""#),
        r#","previous_response_id":"r1","prompt_cache_key":"k""#,
    );
    assert!(keyed.session != next.session && keyed.blocks == next.blocks);
    let items = |output: &str| {
        body(
            &format!(
                r#"[{{"role":"user","content":"{LONG}"}},{{"type":"reasoning","summary":[]}},{{"type":"function_call","call_id":"c","name":"f","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"c","output":{output}}}]"#
            ),
            "",
        )
    };
    let call = items(&format!(r#""{LONG}""#));
    assert!(call.later_turn);
    assert_eq!(call.bytes - call.head_bytes, LONG.len() as u64 + 1);
    assert_eq!(
        call.blocks,
        items(&format!(r#"[{{"type":"input_text","text":"{LONG}"}}]"#)).blocks
    );
    assert_eq!(shared(&call, &string), string.blocks.len());
    assert_eq!(call.conversation, string.conversation);
}

#[test]
fn what_is_not_the_call_is_malformed_or_no_prompt() {
    for body in [
        &b"{\"a\":}"[..],
        b"",
        b"   ",
        b"[]",
        b"\"x\"",
        b"{",
        b"{}x",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xed\xa0\x80\"}]}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"a\nb\"}]}",
        b"{\"messages\":\"hi\"}",
        b"{\"messages\":[\"hi\"]}",
        b"{\"messages\":[{\"role\":1,\"content\":\"x\"}]}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
    ] {
        malformed(Api::Chat, body);
    }
    for body in [
        "{}",
        r#"{"messages":[]}"#,
        r#"{"model":"v","content":[{"type":"text","text":"A sentence."}]}"#,
    ] {
        let got = try_read(
            Api::Chat,
            &small_blocks(),
            &[body.as_bytes()],
            BodyEnd::Complete,
        );
        assert_eq!(got, Err(Unreadable::NoPrompt), "{body}");
    }
}

#[test]
fn surrogates_are_what_they_are() {
    let body = |text: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"{LONG}{text}"}}]}}"#
        ))
    };
    let key = |text: &str| body(text).conversation;
    assert_eq!(key(r"\ud83e\udd80"), key("🦀"));
    assert_eq!(key(r"\u00e9\u4e2d"), key("é中"));
    let lone = [
        r"\ud83e",
        r"\udd80",
        r"\udd80\ud83e",
        r"\ud83ex",
        r"\ud83e\u0041",
        r"\ud83e\ud83e\udd80",
        r"\ufffd",
    ];
    for (i, a) in lone.iter().enumerate() {
        for (j, b) in lone.iter().enumerate() {
            assert_eq!(key(a) == key(b), i == j, "{a} {b}");
        }
    }
}

#[test]
fn ten_blocks_of_cjk_stay_when_a_character_is_added() {
    let text = "漢字仮名交じり文".repeat(7);
    let body = |end: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"{text}{end}"}}]}}"#
        ))
    };
    let (a, b) = (body(""), body("x"));
    assert!(a.blocks.len() >= 10);
    assert!(shared(&a, &b) >= a.blocks.len() - 1);
    assert_eq!(b.bytes, a.bytes + 1);
}

#[test]
fn turns_extend_one_another() {
    let one = format!(
        r#"{{"role":"system","content":"{LONG}"}},{{"role":"user","content":"First question, {LONG}"}}"#
    );
    let two = format!(
        r#"{one},{{"role":"assistant","content":"An answer"}},{{"role":"user","content":"And then?"}}"#
    );
    let (one, two) = (
        chat(&format!(r#"{{"messages":[{one}]}}"#)),
        chat(&format!(r#"{{"messages":[{two}]}}"#)),
    );
    assert_eq!(shared(&one, &two), one.blocks.len());
    assert_eq!(one.conversation, two.conversation);
    assert_eq!((one.later_turn, two.later_turn), (false, true));
    assert_eq!(one.head_bytes, 0);
    assert_eq!(two.bytes - two.head_bytes, "And then?".len() as u64);
    let short = |q: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"{q}"}}]}}"#
        ))
        .conversation
    };
    assert_ne!(short("a"), short("b"));
}

#[test]
fn the_last_of_repeated_keys_wins() {
    let body = |message: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"system","content":"{LONG}"}},{{{message}}}]}}"#
        ))
    };
    let plain = body(&format!(r#""role":"user","content":"{LONG}","name":"n""#));
    for message in [
        format!(r#""role":"system","role":"user","content":"{LONG}","name":"n""#),
        format!(r#""role":"user","content":"other {LONG} text","content":"{LONG}","name":"n""#),
        format!(r#""content":"other","content":"{LONG}","name":"x","role":"user","name":"n""#),
        format!(r#""content":"other","role":"user","content":"{LONG}","name":"n""#),
        format!(r#""name":"n","content":"{LONG}","role":"user""#),
    ] {
        same(&plain, &body(&message));
    }
    let twice = chat(&format!(
        r#"{{"messages":[{{"role":"user","content":"x"}}],"messages":[{{"role":"user","content":"{LONG}"}}]}}"#
    ));
    same(
        &twice,
        &chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"{LONG}"}}]}}"#
        )),
    );
    let irregular = body(&format!(
        r#""role":"user","content":"{LONG}","role":"system""#
    ));
    assert_eq!(irregular.cut, Some(Cut::Irregular));
    assert!(irregular.blocks.len() <= LONG.len() / 16 + 2);
}

#[test]
fn budgets_cut_and_are_told() {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"{}"}}],"model":"m","stream":true}}"#,
        LONG.repeat(10)
    );
    let limited = |options: PromptOptions| {
        try_read(Api::Chat, &options, &[body.as_bytes()], BodyEnd::Complete)
    };
    let whole = chat(&body);
    let blocks = limited(PromptOptions {
        max_blocks: 5,
        ..small_blocks()
    })
    .expect("a prompt");
    assert_eq!(
        (blocks.cut, blocks.blocks.as_slice()),
        (Some(Cut::Blocks), &whole.blocks[..5])
    );
    assert_eq!(
        (blocks.bytes, blocks.stream, blocks.model.as_str()),
        (whole.bytes, true, "m")
    );
    let exact = u32::try_from(whole.blocks.len()).expect("few");
    assert_eq!(
        limited(PromptOptions {
            max_blocks: exact,
            ..small_blocks()
        })
        .expect("a prompt"),
        whole
    );
    let size = u32::try_from(body.len()).expect("small");
    assert_eq!(
        limited(PromptOptions {
            max_body_bytes: size,
            ..small_blocks()
        })
        .expect("a prompt"),
        whole
    );
    let cut = limited(PromptOptions {
        max_body_bytes: size - 40,
        ..small_blocks()
    })
    .expect("a prompt");
    assert_eq!((cut.cut, shared(&cut, &whole)), (Some(Cut::BodyBytes), 0));
    assert!(cut.blocks.len() > 40);
    let deep = chat(&format!(
        r#"{{"messages":[{{"role":"user","content":"{LONG}"}}],"x":{}"#,
        "[".repeat(80)
    ));
    assert_eq!(deep.cut, Some(Cut::Depth));
    assert!(deep.blocks.len() >= LONG.len() / 16);
    let many = format!(
        r#"{{"messages":[{{"role":"user","content":"{LONG}"}}],"x":[{}0]}}"#,
        "0,".repeat(1 << 20)
    );
    assert_eq!(chat(&many).cut, Some(Cut::Nodes));
}

/// Content stands before its role where keys are sorted by name.
#[test]
fn a_message_cut_before_its_role_is_lost_alone() {
    const ROLE_FIRST: [&str; 2] = [r#""role":"user",""#, ""];
    const ROLE_LAST: [&str; 2] = [r#"""#, r#","role":"user""#];
    let cut_in = |[before, after]: [&str; 2], first: &str, second: &str| {
        let first = format!(r#"{{{before}content":"{first}"{after}}}"#);
        let body = format!(r#"{{"model":"m","messages":[{first},{{{before}content":"{second}"#);
        try_read(Api::Chat, &small_blocks(), &[body.as_bytes()], BodyEnd::Cut)
            .expect("cut is not malformed")
    };
    let unlike = LONG.to_uppercase();
    let [known, waiting] =
        [ROLE_FIRST, ROLE_LAST].map(|keys| [LONG, &unlike].map(|text| cut_in(keys, LONG, text)));
    // The whole blocks of the first message, and none after it.
    let first = waiting[0].blocks.len();
    assert!(first >= LONG.len() / 16 && first <= shared(&known[0], &known[1]));
    assert_eq!(waiting[0].blocks, known[0].blocks[..first]);
    assert_eq!(waiting[0].blocks, waiting[1].blocks);
    // All of it is sent to an engine, which will read it.
    assert_eq!(waiting[0].bytes, known[0].bytes);
    assert_eq!(waiting[0].bytes, 2 * LONG.len() as u64);
    let alone = format!(r#"{{"messages":[{{"content":"{LONG}"#);
    let alone = try_read(
        Api::Chat,
        &small_blocks(),
        &[alone.as_bytes()],
        BodyEnd::Cut,
    )
    .expect("cut is not malformed");
    assert_eq!((alone.blocks.len(), alone.bytes), (0, LONG.len() as u64));
}

/// Tools come last in most clients' bodies, and stand first in a prompt.
#[test]
fn messages_before_tools_that_were_cut_count_in_bytes() {
    let body =
        format!(r#"{{"messages":[{{"role":"user","content":"{LONG}"}}],"tools":[{{"type":"func"#);
    let cut = try_read(Api::Chat, &small_blocks(), &[body.as_bytes()], BodyEnd::Cut)
        .expect("cut is not malformed");
    assert!(cut.bytes >= LONG.len() as u64, "{}", cut.bytes);
    assert!(cut.head_bytes <= cut.bytes);
    assert!(cut.matched_bytes(cut.blocks.len()) <= cut.bytes);
}

#[test]
fn matched_bytes_are_monotone_and_bounded() {
    let prompt = chat(&format!(
        r#"{{"tools":[{}],"messages":[{{"role":"user","content":"{LONG}{LONG}"}}]}}"#,
        tool("a", LONG)
    ));
    let counts: Vec<u64> = (0..prompt.blocks.len() + 3)
        .map(|k| prompt.matched_bytes(k))
        .collect();
    assert_eq!(counts[0], 0);
    assert!(counts.is_sorted() && counts.iter().all(|&c| c <= prompt.bytes));
    assert!(prompt.bytes - counts[counts.len() - 1] < 16);
    assert_eq!(prompt.ends.len(), prompt.blocks.len());
}

/// The bodies of real clients, where they are at hand.
#[test]
fn captured_bodies_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/samples/requests");
    let Ok(files) = std::fs::read_dir(folder) else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name().into_string().unwrap_or_default();
        let body = std::fs::read_to_string(file.path()).expect("text");
        let (api, bodies): (_, Vec<&str>) = match name.as_str() {
            n if n.starts_with("req_nonllm") || n.contains("system_array") => continue,
            n if n.ends_with("jsonl") => (Api::Completions, body.lines().collect()),
            n if n.contains("anthropic") => (Api::Messages, vec![&body]),
            n if n.contains("completions") => (Api::Completions, vec![&body]),
            _ => (Api::Chat, vec![&body]),
        };
        for body in bodies {
            let api = if body.contains("\"input\"") {
                Api::Embeddings
            } else {
                api
            };
            let prompt = read(api, body);
            assert!(prompt.bytes > 0 && prompt.cut.is_none(), "{name}");
        }
    }
}
