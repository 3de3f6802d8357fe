use super::*;
use crate::config::Secret;

fn page(secret: Option<&str>) -> DebugPage {
    DebugPage {
        path: "/warmroute".to_owned(),
        secret: secret.map(|text| Secret::new(text.to_owned())),
    }
}

const LOCAL: Visit<'_> = Visit {
    method: b"GET",
    path: b"/warmroute",
    accept: b"text/html",
    secret: b"",
    peer: b"127.0.0.1:41000",
    local: b"127.0.0.1:10000",
    forwarded_for: b"",
    is_forwarded: false,
};

#[test]
fn without_a_secret_only_this_machine_may_read() {
    let form = |visit: Visit<'_>| visit.form(&page(None));
    assert_eq!(form(LOCAL), Some(Form::Html));
    let v6 = Visit {
        peer: b"[::1]:9",
        local: b"[::ffff:127.0.0.1]:80",
        forwarded_for: b"127.0.0.1, ::1",
        ..LOCAL
    };
    assert_eq!(form(v6), Some(Form::Html));
    let by_name = Visit {
        is_forwarded: true,
        ..LOCAL
    };
    assert_eq!(form(by_name), None);
    for (peer, local, forwarded_for) in [
        ("10.0.0.9:41000", "127.0.0.1:10000", ""),
        // What a gateway that believes `x-forwarded-for` says of a stranger who wrote it.
        ("127.0.0.1:0", "10.0.0.1:10000", "127.0.0.1"),
        // A proxy on this machine that passes strangers on.
        ("127.0.0.1:41000", "127.0.0.1:10000", "203.0.113.7"),
        (
            "127.0.0.1:41000",
            "127.0.0.1:10000",
            "127.0.0.1, 203.0.113.7",
        ),
        ("127.0.0.1:41000", "127.0.0.1:10000", "localhost"),
        ("", "127.0.0.1:10000", ""),
        ("127.0.0.1:41000", "", ""),
        ("@pipe", "@pipe", ""),
    ] {
        let visit = Visit {
            peer: peer.as_bytes(),
            local: local.as_bytes(),
            forwarded_for: forwarded_for.as_bytes(),
            ..LOCAL
        };
        assert_eq!(form(visit), None, "{peer} {local} {forwarded_for}");
    }
}

#[test]
fn with_a_secret_only_who_knows_it_may_read() {
    let page = page(Some("open sesame"));
    let form = |secret: &str| {
        let secret = secret.as_bytes();
        Visit { secret, ..LOCAL }.form(&page)
    };
    assert_eq!(form("open sesame"), Some(Form::Html));
    for wrong in ["", "open sesam", "open sesamf", "open sesame!"] {
        assert_eq!(form(wrong), None, "{wrong}: from this machine neither");
    }
    assert!(!format!("{page:?}").contains("sesame"));
}

#[test]
fn path_method_and_form() {
    let form = |method: &[u8], path: &[u8], accept: &[u8]| {
        Visit {
            method,
            path,
            accept,
            ..LOCAL
        }
        .form(&page(None))
    };
    let html = b"text/html,*/*";
    assert_eq!(
        form(b"GET", b"/warmroute?format=json", html),
        Some(Form::Json)
    );
    assert_eq!(
        form(b"GET", b"/warmroute", b"application/json"),
        Some(Form::Json)
    );
    assert_eq!(form(b"GET", b"/warmroute?x=1", b""), Some(Form::Html));
    assert_eq!(form(b"POST", b"/warmroute", html), None);
    assert_eq!(form(b"GET", b"/warmroute/", html), None);
    assert_eq!(form(b"GET", b"/warmroutes", html), None);
}

#[test]
fn a_report_is_json_whatever_stands_in_it() {
    let mut report = Report::default();
    report.open("", '{');
    report.text("text", "é|*.example");
    for odd in ["a\"b", "a\\b", "</script>", "\u{1}"] {
        report.text(odd, odd);
    }
    report.figures(&[
        ("share", Some(0.8319)),
        ("negative", Some(-3.0)),
        ("none", None),
    ]);
    report.open("list", '[');
    report.close(']');
    let mut decisions = Decisions::default();
    for n in 0..100 {
        decisions.keep("c", &format!("n={n}"), Millis(n));
    }
    decisions.tell(&mut report, Millis(100));
    report.close('}');
    assert!(!report.0.contains('<'));
    let read: serde_json::Value = serde_json::from_str(&report.0).unwrap();
    assert_eq!(read["text"], "é|*.example");
    assert_eq!(read["(unprintable)"], "(unprintable)");
    assert_eq!(read["share"], 0.831);
    assert_eq!(read["negative"], 0.0);
    assert!(read["none"].is_null() && read["list"].as_array().unwrap().is_empty());
    let decisions = read["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), DECISIONS);
    assert_eq!(decisions[0]["decision"], "n=99");
    assert_eq!(decisions[0]["ms_ago"], 1);
}
