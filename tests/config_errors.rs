//! What a configuration refuses, and the one line that it says.

use warmroute::config::Plugin;

fn refusal(text: &str) -> String {
    Plugin::parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn p() {
    for t in [
        r#"{"prefix":{"blockSizeTokens":0}}"#,
        r#"{"prefix":{"blockSizeTokens":"128"}}"#,
        r#"{"prefix":{"blockSizeTokens":1.5}}"#,
        r#"{"prefix":{"blockSizeToken":1}}"#,
        r#"{"prefix":{"x":1}}"#,
        r#"{"prefix":null}"#,
        r#"{"prefix":[1]}"#,
        r#"{"profile":{"cost":null}}"#,
        r#"{"profile":"latency"}"#,
        r#"{"weights":{"queue":-1}}"#,
        r#"{"weights":{"queue":1e400}}"#,
        r#"{"weights":{"queue":NaN}}"#,
        r#"{"weights":{"queue":1,"queue":2}}"#,
        r#"{"_rules_":[{"_match_route_":["a"]},{"_match_route_":["a"]},{"_match_route_":["a"],"weights":{"queue":-1}}]}"#,
        r#"{"_rules_":[{"_match_route_":["a"],"_rules_":[]}]}"#,
        r#"{"_rules_":[{}]}"#,
        r#"{"_rules_":[]}"#,
        r#"{"_match_route_":["a"]}"#,
        r#"{"endpoints":{"static":["1.2.3.4:80","1.2.3.4:80"]}}"#,
        r#"{"endpoints":{"static":["host:80"]}}"#,
        r#"{"endpoints":{"static":[]}}"#,
        r#"{"endpoints":{"admin":{}}}"#,
        r#"{"endpoints":{"admin":{"cluster":"a","of":[1]}}}"#,
        r#"{"endpoints":{"admin":{"cluster":"a","of":7}}}"#,
        r#"{"prompt":{"ignore":[{"prefix":"a","class":"z-a"}]}}"#,
        r#"{"overload":{"mode":"shed"}}"#,
        r#"{"exchange":"maybe"}"#,
        r#"{"debug":{"header":"yes"}}"#,
        r#"[]"#,
        r#"null"#,
        r#"{"#,
        r#"{} x"#,
        "\u{feff}{}",
        "profile: cost",
    ] {
        println!("{t}\n    {}", refusal(t));
    }
}
