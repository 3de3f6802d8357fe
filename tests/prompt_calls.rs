//! What each call's bodies mean: shapes that clients send, and what must and must not match.

mod prompt_support;

use prompt_support::{LONG, read, same, shared, small_blocks, try_read};
use warmroute::config::PromptOptions;
use warmroute::request::{Api, BodyEnd, Unreadable};

fn malformed(api: Api, body: &[u8]) {
    let got = try_read(api, &small_blocks(), &[body], BodyEnd::Complete);
    assert_eq!(
        got,
        Err(Unreadable::Malformed),
        "{}",
        String::from_utf8_lossy(body)
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
