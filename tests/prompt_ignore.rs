//! Texts that are left out: what they change, and against a search that may look back.

mod prompt_support;

use prompt_support::{LONG, same, shared, small_blocks, try_read};
use warmroute::config::{CharClass, IgnorePattern, PromptOptions};
use warmroute::request::{Api, BodyEnd, Prompt};

fn pattern(prefix: &str, class: &str, max_chars: u16) -> IgnorePattern {
    let class = CharClass(class.bytes().fold(0, |mask, b| mask | 1 << b));
    IgnorePattern {
        prefix: prefix.to_owned(),
        class,
        max_chars,
    }
}

/// The text without what the patterns leave out: at each place the first pattern whose prefix ends here,
/// none of it before the last place where something was left out.
fn without(text: &str, patterns: &[IgnorePattern]) -> String {
    let (mut kept, mut since) = (String::new(), 0);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        kept.push(c);
        let found = |p: &&IgnorePattern| kept[since..].ends_with(&p.prefix);
        let Some(pattern) = patterns.iter().find(found) else {
            continue;
        };
        since = kept.len();
        let mut left = pattern.max_chars;
        let dropped = |c: &char| c.is_ascii() && pattern.class.0 >> *c as u32 & 1 == 1;
        while left > 0 && rest.next_if(dropped).is_some() {
            left -= 1;
        }
    }
    kept
}

#[test]
fn as_a_search_that_may_look_back() {
    let patterns = vec![
        pattern("aab", "xyz0123456789", 3),
        pattern("abaab", "ab", 2),
        pattern("=", "a1", 5),
        pattern("é;", "b", 300),
    ];
    let mut rng = fastrand::Rng::with_seed(11);
    let options = PromptOptions {
        ignore: patterns.clone(),
        ..small_blocks()
    };
    let mut changed = 0;
    for _ in 0..5000 {
        let text: String = (0..rng.usize(0..120))
            .map(|_| ["a", "b", "a", "b", "x", "1", "=", "é", "é;", "aab"][rng.usize(0..10)])
            .collect();
        let body = |text: &str| format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
        let (given, want) = (body(&text), body(&without(&text, &patterns)));
        let pieces: Vec<&[u8]> = given.as_bytes().chunks(rng.usize(1..40)).collect();
        let got = try_read(Api::Chat, &options, &pieces, BodyEnd::Complete).expect("a prompt");
        let plain = try_read(
            Api::Chat,
            &small_blocks(),
            &[want.as_bytes()],
            BodyEnd::Complete,
        )
        .expect("a prompt");
        assert_eq!(got.blocks, plain.blocks, "{text}");
        assert_eq!(got.conversation, plain.conversation, "{text}");
        assert_eq!(got.bytes, text.len() as u64);
        changed += usize::from(given != want);
    }
    assert!(changed > 1000, "{changed}");
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
    let ignore = |max_chars| PromptOptions {
        ignore: vec![pattern("; cch=", "0123456789abcdef", max_chars)],
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
