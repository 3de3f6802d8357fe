//! What response headers tell: streams and load reports.

use warmroute::endpoints::load::Load;
use warmroute::response::{is_event_stream, orca};

#[test]
fn event_streams_by_content_type() {
    for yes in [
        "text/event-stream",
        "Text/Event-Stream; charset=utf-8",
        " text/event-stream ",
    ] {
        assert!(is_event_stream(yes.as_bytes()), "{yes}");
    }
    for no in [
        "",
        "application/json",
        "text/event-streams",
        "text/plain; text/event-stream",
    ] {
        assert!(!is_event_stream(no.as_bytes()), "{no}");
    }
}

#[test]
fn load_reports() {
    let expected = Load {
        waiting: Some(7.0),
        kv_use: Some(0.25),
        ..Load::default()
    };
    for header in [
        r#"JSON {"named_metrics": {"num_requests_waiting": 7.0, "kv_cache_usage_perc": 0.25}}"#,
        r#"json {"cpu_utilization": 1, "named_metrics": {"kv_cache_usage_perc": 0.25, "other": 1, "num_requests_waiting": 7}}"#,
        "TEXT named_metrics.kv_cache_usage_perc=0.25, named_metrics.num_requests_waiting=7.0",
        "TEXT cpu_utilization=0.5,named_metrics.num_requests_waiting=7,named_metrics.kv_cache_usage_perc=0.25,",
    ] {
        assert_eq!(
            orca::parse(header.as_bytes()),
            Some(expected.clone()),
            "{header}"
        );
    }
    let running = orca::parse(b"TEXT named_metrics.num_requests_running=3");
    assert_eq!(running.and_then(|load| load.running), Some(3.0));
}

#[test]
fn reports_that_tell_nothing() {
    for header in [
        "",
        "JSON",
        "JSON {}",
        "JSON {\"named_metrics\": {}}",
        "JSON {\"named_metrics\": {\"num_requests_waiting\": -1}}",
        "JSON {\"named_metrics\": {\"num_requests_waiting\": NaN}}",
        "TEXT named_metrics.num_requests_waiting=NaN",
        "TEXT named_metrics.num_requests_waiting",
        "TEXT num_requests_waiting=3",
        "BIN CgYKBHRlc3Q=",
        "\u{e9}",
    ] {
        assert_eq!(orca::parse(header.as_bytes()), None, "{header}");
    }
}
