//! The scan against a plain reading of the format, on random texts; and any bytes at all.

use std::collections::BTreeMap;

use warmroute::endpoints::scan::{scan, scan_escaped};
use warmroute::raw_json::RawJsonStr;

/// Waiting and running of a vLLM text, read the slow way: every line split into all its parts.
fn slow(text: &str) -> (Option<f32>, Option<f32>) {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.split('\n') {
        if let Some((name, value)) = slow_line(line) {
            *sums.entry(name).or_default() += value;
        }
    }
    let sum = |name: &str| sums.get(name).map(|sum| gauge(*sum));
    (
        sum("vllm:num_requests_waiting"),
        sum("vllm:num_requests_running"),
    )
}

/// As a load keeps it.
#[allow(clippy::cast_possible_truncation)]
fn gauge(value: f64) -> f32 {
    value as f32
}

fn slow_line(line: &str) -> Option<(String, f64)> {
    let name_end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(name_end);
    let mut chars = rest.trim_start().chars().peekable();
    if chars.peek() == Some(&'{') {
        chars.next();
        slow_labels(&mut chars)?;
    }
    let words: String = chars.collect();
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    let value: f64 = words.first()?.parse().ok()?;
    if let Some(timestamp) = words.get(1) {
        timestamp.parse::<f64>().ok()?;
    }
    (words.len() <= 2 && value.is_finite() && value >= 0.0).then(|| (name.to_owned(), value))
}

fn slow_labels(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<()> {
    loop {
        match chars.peek()? {
            '}' => {
                chars.next();
                return Some(());
            }
            ' ' => {
                chars.next();
                continue;
            }
            _ => {}
        }
        while chars.next()? != '=' {}
        if chars.next()? != '"' {
            return None;
        }
        loop {
            match chars.next()? {
                '\\' => {
                    chars.next()?;
                }
                '"' => break,
                _ => {}
            }
        }
        match chars.peek()? {
            ',' => {
                chars.next();
            }
            '}' => {}
            _ => return None,
        }
    }
}

fn pick<'a>(rng: &mut fastrand::Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn random_line(rng: &mut fastrand::Rng) -> String {
    if rng.u8(..8) == 0 {
        let len = rng.usize(..150);
        return "# HELP v ".chars().cycle().take(len).collect();
    }
    let name = pick(
        rng,
        &[
            "vllm:num_requests_waiting",
            "vllm:num_requests_running",
            "vllm:num_requests_waiting_by_reason",
            "vllm:num_requests_waitin",
            "vllm:e2e_request_latency_seconds_bucket",
            "http_requests_total",
            "v",
            "",
        ],
    );
    let value = pick(
        rng,
        &[
            "0", "3.0", "17", "1e2", "NaN", "+Inf", "-1", "x", "5 6", "5 6 7", "",
        ],
    );
    let mut labels = String::new();
    for i in 0..rng.usize(..4) {
        let label = pick(
            rng,
            &[
                "plain",
                "a b",
                "x,y",
                "}{",
                r#"q\"q"#,
                r"b\\",
                r"l\nl",
                "é\u{1F600}",
                "",
                "\\",
            ],
        );
        labels.push_str(&format!("l{i}=\"{label}\""));
        labels.push_str(pick(rng, &[",", ",", ", ", "", "}"]));
    }
    let (open, close) = match rng.u8(..6) {
        0 => ("", ""),
        1 => ("{", ""),
        _ => ("{", "}"),
    };
    let gap = pick(rng, &[" ", "  ", "\t", ""]);
    format!("{name}{open}{labels}{close}{gap}{value}")
}

#[test]
fn random_texts_read_like_the_slow_way() {
    let mut rng = fastrand::Rng::with_seed(38);
    let mut told = 0;
    for _ in 0..4_000 {
        let mut text = String::new();
        for _ in 0..rng.usize(..12) {
            text.push_str(&random_line(&mut rng));
            text.push_str(pick(&mut rng, &["\n", "\n", "\n", "\n\n", "\r\n"]));
        }
        let expected = slow(&text);
        let load = scan(text.as_bytes());
        assert_eq!((load.waiting, load.running), expected, "{text:?}");
        let json = serde_json::to_string(&text).unwrap();
        let inside = &json.as_bytes()[1..json.len() - 1];
        assert_eq!(scan_escaped(RawJsonStr(inside)), load, "{json}");
        told += usize::from(load.waiting.is_some());
    }
    assert!(told > 300, "too few texts tell anything: {told}");
}

#[test]
fn any_bytes_are_read_without_harm() {
    let mut rng = fastrand::Rng::with_seed(5);
    let seed = concat!(
        "vllm:num_requests_waiting{engine=\\\"0\\\"} 3\\nvllm:lora_requests_info{max_lora=\\\"1\\\",",
        "running_lora_adapters=\\\"a,b\\\"} 1\nnv_trt_llm_request_metrics{request_type=\"waiting\"} 4\n",
    );
    for _ in 0..20_000 {
        let mut text = seed.as_bytes().repeat(rng.usize(..3));
        for _ in 0..rng.usize(..20) {
            let byte =
                [b'\\', b'"', b'\n', b'n', b'{', b'}', b'=', b'u', rng.u8(..)][rng.usize(..9)];
            let at = rng.usize(..=text.len());
            text.insert(at, byte);
        }
        text.truncate(rng.usize(..=text.len()));
        let plain = scan(&text);
        let escaped = scan_escaped(RawJsonStr(&text));
        for load in [plain, escaped] {
            assert!(load.kv_use.is_none_or(|kv| (0.0..=1.0).contains(&kv)));
            assert!(load.waiting.is_none_or(|waiting| waiting >= 0.0));
        }
    }
}
