//! What holds for every body: random conversations against a slow reading of the same rules.

mod prompt_support;

use prompt_support::{shared, small_blocks, try_read};
use serde_json::{Map, Value, json};
use warmroute::config::PromptOptions;
use warmroute::request::{Api, BodyEnd, Cut, Prompt, Unreadable};

const ALPHABET: [&str; 14] = [
    "a",
    "b ",
    "word ",
    "\n",
    "\"",
    "\\",
    "é",
    "漢",
    "🦀",
    "\u{7f}",
    "\u{1}",
    "/",
    "longer words in a row, ",
    "\t",
];

fn text(rng: &mut fastrand::Rng, max: usize) -> String {
    (0..rng.usize(0..=max))
        .map(|_| ALPHABET[rng.usize(0..ALPHABET.len())])
        .collect()
}

fn content(rng: &mut fastrand::Rng) -> Value {
    match rng.u8(0..8) {
        0 => Value::Null,
        1..=4 => Value::String(text(rng, 30)),
        _ => (0..rng.usize(0..4))
            .map(|_| match rng.u8(0..4) {
                0 => json!({"type": "image_url", "image_url": {"url": text(rng, 9)}}),
                1 => json!({"type": "tool_result", "tool_use_id": text(rng, 2), "content": text(rng, 9)}),
                _ => json!({"type": "text", "text": text(rng, 20)}),
            })
            .collect(),
    }
}

fn message(rng: &mut fastrand::Rng) -> Value {
    let mut message = Map::new();
    message.insert(
        "role".into(),
        ["system", "user", "assistant", "tool"][rng.usize(0..4)].into(),
    );
    if rng.u8(0..8) > 0 {
        message.insert("content".into(), content(rng));
    }
    if rng.u8(0..4) == 0 {
        message.insert("name".into(), text(rng, 2).into());
    }
    if rng.u8(0..4) == 0 {
        let call = json!({"id": "c", "function": {"name": text(rng, 2), "arguments": text(rng, 9), "n": [1, 2.5, true, null]}});
        message.insert("tool_calls".into(), json!([call]));
    }
    Value::Object(message)
}

fn body(rng: &mut fastrand::Rng, messages: Vec<Value>) -> Value {
    let mut body = Map::new();
    body.insert("messages".into(), messages.into());
    body.insert("model".into(), "m".into());
    if rng.bool() {
        body.insert(
            "tools".into(),
            json!([{"type": "function", "function": {"name": "f", "description": text(rng, 20)}}]),
        );
    }
    if rng.u8(0..4) == 0 {
        body.insert("cache_salt".into(), text(rng, 2).into());
    }
    Value::Object(body)
}

fn messages(rng: &mut fastrand::Rng) -> Vec<Value> {
    (0..rng.usize(1..6)).map(|_| message(rng)).collect()
}

/// Spells a value with keys in random order, random whitespace and random escapes. Keys inside tools and
/// tool calls keep their order, which counts.
fn spell(rng: &mut fastrand::Rng, value: &Value, shuffles: bool, out: &mut String) {
    let blank = |rng: &mut fastrand::Rng, out: &mut String| {
        out.push_str(["", "", " ", "\n\t", "  "][rng.usize(0..5)]);
    };
    blank(rng, out);
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            if shuffles {
                rng.shuffle(&mut keys);
            }
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                spell(rng, &Value::String(key.clone()), false, out);
                blank(rng, out);
                out.push(':');
                let inner =
                    shuffles && !matches!(key.as_str(), "tools" | "tool_calls" | "image_url");
                spell(rng, &map[key], inner, out);
            }
            blank(rng, out);
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                spell(rng, item, shuffles, out);
            }
            blank(rng, out);
            out.push(']');
        }
        Value::String(text) => {
            out.push('"');
            for c in text.chars() {
                let must = c < ' ' || c == '"' || c == '\\';
                if must || rng.u8(0..9) == 0 {
                    c.encode_utf16(&mut [0; 2])
                        .iter()
                        .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
                } else {
                    out.push(c);
                }
            }
            out.push('"');
        }
        other => out.push_str(&other.to_string()),
    }
    blank(rng, out);
}

fn read(body: &[u8]) -> Result<Prompt, Unreadable> {
    try_read(Api::Chat, &small_blocks(), &[body], BodyEnd::Complete)
}

fn must(body: &str) -> Prompt {
    read(body.as_bytes()).unwrap_or_else(|e| panic!("{e:?}: {body}"))
}

/// Pieces at random places; one byte each in every fourth case.
fn cut_up<'a>(rng: &mut fastrand::Rng, body: &'a [u8]) -> Vec<&'a [u8]> {
    if rng.u8(0..4) == 0 {
        return body.chunks(1).collect();
    }
    let mut pieces = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rng.usize(0..=rest.len().min(60)));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[test]
fn appending_changes_no_earlier_block() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..1500 {
        let mut list = messages(&mut rng);
        let base = body(&mut rng, list.clone());
        let before = must(&base.to_string());
        list.push(message(&mut rng));
        list.push(message(&mut rng));
        let mut longer = base.clone();
        longer["messages"] = list.into();
        let after = must(&longer.to_string());
        assert_eq!(
            shared(&before, &after),
            before.blocks.len(),
            "{base}\n{longer}"
        );
        assert!(after.bytes >= before.bytes);
        let first_user = base["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|m| m["role"] == "user");
        assert!(!first_user || before.conversation == after.conversation);
    }
}

#[test]
fn a_changed_character_changes_its_block_and_all_after() {
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..1500 {
        let words: Vec<char> = (0..rng.usize(1..300)).map(|_| rng.lowercase()).collect();
        let at = rng.usize(0..words.len());
        let spell = |c: Option<char>| -> String {
            words
                .iter()
                .enumerate()
                .map(|(i, &w)| if i == at { c.unwrap_or(w) } else { w })
                .collect()
        };
        let tail = text(&mut rng, 40);
        let build = |text: &str| {
            must(&json!({"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": tail}]}).to_string())
        };
        let (a, b) = (build(&spell(None)), build(&spell(Some('#'))));
        assert_ne!(a.conversation, b.conversation);
        let same = shared(&a, &b);
        // Nothing is shared from that block on, and everything before it is.
        assert!(
            a.blocks
                .iter()
                .skip(same)
                .zip(b.blocks.iter().skip(same))
                .all(|(a, b)| a != b)
        );
        let at = u64::try_from(at).expect("small");
        let (low, high) = (a.matched_bytes(same), a.matched_bytes(same + 1));
        assert!(
            low <= at && (same == a.blocks.len() || at < high),
            "{at} {low} {high} {same} {a:?}"
        );
    }
}

#[test]
fn pieces_spelling_and_key_order_change_nothing() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..1500 {
        let list = messages(&mut rng);
        let value = body(&mut rng, list);
        let want = must(&value.to_string());
        let mut spelled = String::new();
        spell(&mut rng, &value, true, &mut spelled);
        let got = must(&spelled);
        assert_eq!(
            (&got.blocks, got.bytes, got.conversation),
            (&want.blocks, want.bytes, want.conversation),
            "{spelled}"
        );
        assert_eq!(
            (got.head_bytes, got.later_turn),
            (want.head_bytes, want.later_turn)
        );
        let pieces = cut_up(&mut rng, spelled.as_bytes());
        assert_eq!(
            try_read(Api::Chat, &small_blocks(), &pieces, BodyEnd::Complete),
            Ok(got),
            "{spelled}"
        );
    }
}

#[test]
fn a_body_cut_anywhere_never_panics_and_never_matches_more() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..30 {
        let list = messages(&mut rng);
        let value = body(&mut rng, list);
        let mut text = String::new();
        spell(&mut rng, &value, true, &mut text);
        let whole = must(&text);
        for cut in 0..text.len() {
            let head = &text.as_bytes()[..cut];
            let got = try_read(Api::Chat, &small_blocks(), &[head], BodyEnd::Cut)
                .expect("cut is not malformed");
            let is_whole = serde_json::from_slice::<Value>(head).is_ok();
            assert_eq!(got.cut, (!is_whole).then_some(Cut::BodyBytes));
            assert!(is_whole || shared(&got, &whole) == 0);
            assert!(got.blocks.len() <= whole.blocks.len() && got.bytes <= whole.bytes);
            if cut % 5 > 0 {
                continue;
            }
            let limit = u32::try_from(cut).expect("small");
            let budget = PromptOptions {
                max_body_bytes: limit,
                ..small_blocks()
            };
            let pieces = cut_up(&mut rng, text.as_bytes());
            assert_eq!(
                try_read(Api::Chat, &budget, &pieces, BodyEnd::Complete).as_ref(),
                Ok(&got),
                "{text} at {cut}"
            );
        }
    }
}

#[test]
fn what_is_accepted_is_what_a_parser_of_values_accepts() {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..6_000 {
        let list = messages(&mut rng);
        let mut extra = body(&mut rng, list);
        extra["x"] = json!([1.5e10, -0.25, 0, {"k": [true, false, null]}, text(&mut rng, 5)]);
        let mut bytes = extra.to_string().into_bytes();
        for _ in 0..rng.usize(1..3) {
            let at = rng.usize(0..bytes.len());
            match rng.u8(0..4) {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, b"{}[]\",:0e-.\\u\n 1"[rng.usize(0..16)]),
                2 => bytes[at] = b"{}[]\",:0e-.\\u\n 1"[rng.usize(0..16)],
                _ => bytes[at] = rng.u8(..),
            }
        }
        let is_json = |text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let valid = core::str::from_utf8(&bytes).is_ok_and(is_json)
            && bytes.trim_ascii_start().starts_with(b"{");
        let pieces = cut_up(&mut rng, &bytes);
        let got = try_read(Api::Chat, &small_blocks(), &pieces, BodyEnd::Complete);
        if valid {
            good += 1;
        } else {
            bad += 1;
        }
        if !valid
            && got
                .as_ref()
                .map_or_else(|e| *e != Unreadable::Malformed, |p| p.cut.is_none())
        {
            panic!("accepted: {}", String::from_utf8_lossy(&bytes));
        }
        // Of the right shape: a message list of objects whose contents and texts are what they may be.
        let shape = serde_json::from_slice::<Value>(&bytes).ok().filter(is_chat);
        if let (Some(_), Err(e)) = (shape, got) {
            panic!("{e:?}: {}", String::from_utf8_lossy(&bytes));
        }
    }
    assert!(good > 300 && bad > 300, "{good} {bad}");
}

fn is_chat(body: &Value) -> bool {
    let text = |v: &Value| v.is_string() || v.is_null();
    let part = |p: &Value| {
        p.is_string()
            || p.is_object() && text(&p["text"]) && (text(&p["content"])) && !p["type"].is_number()
    };
    let content = |c: &Value| text(c) || c.as_array().is_some_and(|parts| parts.iter().all(part));
    let message = |m: &Value| {
        m.is_object() && text(&m["role"]) && content(&m["content"]) && text(&m["output"])
    };
    text(&body["model"])
        && body["messages"]
            .as_array()
            .is_some_and(|list| !list.is_empty() && list.iter().all(message))
}
