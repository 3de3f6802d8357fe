//! What becomes of a prompt's tools, texts and messages, whatever the call: what blocks share, and where a budget
//! or an odd body ends them.

mod prompt_support;

use prompt_support::{LONG, chat, same, shared, shared_bytes, small_blocks, try_read};
use warmroute::config::{PromptOptions, ToolMode};
use warmroute::request::{Api, BodyEnd, Cut, Prompt};

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
