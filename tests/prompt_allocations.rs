//! Reading allocates for the request, not for its messages.

mod counting;
mod prompt_support;

use prompt_support::try_read;
use warmroute::config::PromptOptions;
use warmroute::request::{Api, BodyEnd};

fn allocations(messages: usize) -> usize {
    let text = "Some words that a user might say to a model, with a line break\\n and caf\u{e9}. "
        .repeat(20);
    let turn = format!(
        r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}},{{"type":"image_url","image_url":{{"url":"u"}}}}]}},{{"content":"{text}","role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"c","content":"{text}"}}"#
    );
    let turns = vec![turn; messages / 3].join(",");
    let body = format!(r#"{{"model":"m","messages":[{turns}],"stream":true}}"#);
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(16 << 10).collect();
    let before = counting::calls();
    let prompt = try_read(
        Api::Chat,
        &PromptOptions::default(),
        &pieces,
        BodyEnd::Complete,
    )
    .expect("a prompt");
    let after = counting::calls();
    assert!(prompt.blocks.len() > messages * 4);
    after - before
}

#[test]
fn no_allocation_a_message() {
    let (few, many) = (allocations(30), allocations(600));
    println!("30 messages: {few} allocations, 600 messages: {many}");
    // Only the vectors of blocks grow, by doubling: five times each for twenty times the messages.
    assert!(few <= 40, "{few}");
    assert!(many <= few + 12, "{few} {many}");
}
