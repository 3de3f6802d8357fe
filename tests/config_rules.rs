//! Which configuration a request gets.

use warmroute::config::{Plugin, Profile, RequestPlace};

/// The place of the rule that a request gets: its index, -1 for the global part, `None` = off.
fn chosen(plugin: &Plugin, place: &RequestPlace) -> Option<i64> {
    let id = plugin.select(place)?;
    let all: Vec<_> = plugin.configs().map(|(id, _)| id).collect();
    let at = all
        .iter()
        .position(|other| *other == id)
        .expect("an id that configs() lists");
    assert!(plugin.get(id).is_some());
    let offset = i64::from(plugin.global.is_some());
    Some(i64::try_from(at).expect("small") - offset)
}

fn plugin(rules: &str) -> Plugin {
    Plugin::parse(format!("{{\"_rules_\":[{rules}]}}").as_bytes()).expect(rules)
}

fn at<'a>(route: &'a str, cluster: &'a str, authority: &'a str) -> RequestPlace<'a> {
    RequestPlace {
        route: route.as_bytes(),
        cluster: cluster.as_bytes(),
        authority: authority.as_bytes(),
        consumer: b"",
    }
}

#[test]
fn first_rule_then_global_then_off() {
    let rules =
        r#"{"_match_route_":["a"],"profile":"cost"},{"_match_route_":["a","b"],"weights":{}}"#;
    let off = plugin(rules);
    assert_eq!(chosen(&off, &at("a", "", "")), Some(0));
    assert_eq!(chosen(&off, &at("b", "", "")), Some(1));
    assert_eq!(chosen(&off, &at("c", "", "")), None);
    assert_eq!(chosen(&off, &RequestPlace::default()), None);
    let on =
        Plugin::parse(format!("{{\"orca\":true,\"_rules_\":[{rules}]}}").as_bytes()).expect("on");
    assert_eq!(chosen(&on, &at("b", "", "")), Some(1));
    assert_eq!(chosen(&on, &at("c", "", "")), Some(-1));
    let only_global = Plugin::parse(br#"{"_rules_":[],"prefix":{}}"#).expect("global");
    assert_eq!(chosen(&only_global, &at("c", "", "")), Some(-1));
}

#[test]
fn a_rule_inherits_nothing() {
    let text = br#"{"profile":"default","orca":true,"_rules_":[{"_match_route_":["a"]}]}"#;
    let plugin = Plugin::parse(text).expect("rules");
    let rule = plugin
        .select(&at("a", "", ""))
        .and_then(|id| plugin.get(id))
        .expect("the rule");
    assert_eq!(
        (rule.pick.profile.clone(), rule.orca),
        (Profile::Cost, false)
    );
}

#[test]
fn service_by_fqdn_and_port() {
    let plugin = plugin(r#"{"_match_service_":["llm.svc","x.svc:8000","plain"]}"#);
    let hit = |cluster| chosen(&plugin, &at("", cluster, "")).is_some();
    assert!(hit("outbound|80||llm.svc"));
    assert!(hit("outbound|8000|v1|x.svc"));
    assert!(!hit("outbound|8001|v1|x.svc"));
    assert!(!hit("outbound|80||other.svc"));
    assert!(!hit("outbound|80|llm.svc"));
    assert!(!hit("outbound|80||llm.svc|"));
    assert!(
        hit("plain"),
        "a cluster of stock Envoy goes by its whole name"
    );
    assert!(!hit("plain|"));
    assert!(!hit(""));
}

#[test]
fn route_and_service_both_match() {
    let plugin = plugin(r#"{"_match_route_":["r"],"_match_service_":["s"]}"#);
    assert!(chosen(&plugin, &at("r", "outbound|80||s", "")).is_some());
    assert!(chosen(&plugin, &at("r", "outbound|80||t", "")).is_none());
    assert!(chosen(&plugin, &at("q", "outbound|80||s", "")).is_none());
}

#[test]
fn the_first_kind_of_matcher_counts() {
    let route = plugin(r#"{"_match_domain_":["a.com"],"_match_route_":["r"]}"#);
    assert!(chosen(&route, &at("r", "", "b.com")).is_some());
    assert!(chosen(&route, &at("q", "", "a.com")).is_none());
    let domain = plugin(
        r#"{"_match_domain_":["a.com"],"_match_service_":["s"],"_match_route_prefix_":["r"]}"#,
    );
    assert!(chosen(&domain, &at("q", "", "a.com")).is_some());
    assert!(chosen(&domain, &at("r", "outbound|80||s", "b.com")).is_none());
    let service = plugin(r#"{"_match_service_":["s"],"_match_route_prefix_":["r"]}"#);
    assert!(chosen(&service, &at("q", "outbound|80||s", "")).is_some());
    assert!(chosen(&service, &at("r", "outbound|80||t", "")).is_none());
}

#[test]
fn domains() {
    let hit = |pattern: &str, authority: &str| {
        let plugin = plugin(&format!("{{\"_match_domain_\":[{pattern:?}]}}"));
        chosen(&plugin, &at("", "", authority)).is_some()
    };
    for (pattern, authority, wanted) in [
        ("a.com", "a.com", true),
        ("a.com", "a.com:8080", true),
        ("a.com", "b.a.com", false),
        ("*.a.com", "b.a.com", true),
        ("*.a.com", "c.b.a.com:443", true),
        ("*.a.com", "a.com", false),
        ("*a.com", "a.com", true),
        ("a.*", "a.org", true),
        ("a.*", "aa.org", false),
        ("*", "anything:1", true),
        ("*", "", true),
        ("[::1]", "[::1]:80", true),
        ("[::1]", "[::1]", true),
        ("[::1]", "[::2]:80", false),
        ("A.com", "a.com", false),
    ] {
        assert_eq!(hit(pattern, authority), wanted, "{pattern} {authority}");
    }
}

#[test]
fn route_prefix_and_consumer() {
    let plain = plugin(r#"{"_match_route_prefix_":["batch-","night-"]}"#);
    assert!(chosen(&plain, &at("batch-1", "", "")).is_some());
    assert!(chosen(&plain, &at("night-", "", "")).is_some());
    assert!(chosen(&plain, &at("batch", "", "")).is_none());
    let both = plugin(r#"{"_match_route_prefix_":["batch-"],"_match_consumer_":["z","ann"]}"#);
    let by = |consumer: &'static [u8], route| RequestPlace {
        consumer,
        ..at(route, "", "")
    };
    assert!(chosen(&both, &by(b"ann", "batch-1")).is_some());
    assert!(chosen(&both, &by(b"z", "batch-1")).is_some());
    assert!(chosen(&both, &by(b"bob", "batch-1")).is_none());
    assert!(chosen(&both, &by(b"ann", "chat")).is_none());
}

#[test]
fn bytes_that_are_no_text_match_nothing_by_accident() {
    let plugin =
        plugin(r#"{"_match_route_":["a"],"_match_service_":["s"]},{"_match_domain_":["a.com"]}"#);
    let place = RequestPlace {
        route: b"\xff",
        cluster: b"\xff|\xfe",
        authority: b"\xff:\x00",
        consumer: b"",
    };
    assert_eq!(chosen(&plugin, &place), None);
}
