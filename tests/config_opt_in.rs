//! What is off until it is configured: what each key turns on.

use warmroute::config::{Config, Plugin, Profile, Weights};
use warmroute::endpoints::role::Role;

fn parse(text: &str) -> Config {
    let plugin = Plugin::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    plugin.global.expect("a global part")
}

#[test]
fn limits_without_the_mode_turn_nobody_away() {
    for text in [
        r#"{"overload":{}}"#,
        r#"{"overload":{"mode":"none"}}"#,
        r#"{"overload":{"queueDepth":1,"kvUse":0.1}}"#,
    ] {
        assert_eq!(parse(text).overload, None, "{text}");
    }
    let options = parse(r#"{"overload":{"mode":"shed","kvUse":1,"priorityHeader":"X-Tier"}}"#);
    let options = options.overload.expect("on");
    assert_eq!(
        (
            options.queue_depth,
            options.kv_use,
            &*options.priority_header
        ),
        (5, 1.0, "x-tier")
    );
}

#[test]
fn an_allowed_profile_is_the_configuration_with_another_rule() {
    let config = parse(
        r#"{"profiles":{"allow":["cost","balanced"]},"picker":{"tieTokens":7},"cooldown":{"failures":9}}"#,
    );
    let choice = config.profiles.expect("on");
    assert_eq!(choice.header, "x-warmroute-profile");
    let [(cost, by_cost), (balanced, by_weight)] = &choice.allow[..] else {
        panic!("{choice:?}")
    };
    assert_eq!((*cost, *balanced), ("cost", "balanced"));
    assert_eq!(by_cost, &config.pick);
    assert_eq!(by_weight.profile, Profile::Weighted(Weights::default()));
    assert_eq!((by_weight.tie_tokens, by_weight.cooldown_failures), (7, 9));

    // Own weights are meant where there are any.
    let config = parse(r#"{"weights":{"queue":9},"profiles":{"allow":["default","cost"]}}"#);
    let choice = config.profiles.expect("on");
    assert_eq!(choice.allow[0].1.profile, config.pick.profile);
    assert_eq!(choice.allow[1].1.profile, Profile::Cost);
}

#[test]
fn roles_go_by_the_lists() {
    let role = |text: &str, address: &str| {
        parse(text)
            .disaggregation
            .expect("on")
            .role(&[address, "", ""])
    };
    let of = |decodes, prefills| Role { decodes, prefills };
    let one = r#"{"disaggregation":{"prefill":["10.0.0.1:80","[::1]:80"]}}"#;
    assert_eq!(role(one, "10.0.0.1:80"), of(false, true));
    assert_eq!(role(one, "[::1]:80"), of(false, true));
    assert_eq!(role(one, "10.0.0.2:80"), of(true, false));
    let two =
        r#"{"disaggregation":{"prefill":["10.0.0.1:80","10.0.0.2:80"],"decode":["10.0.0.2:80"]}}"#;
    assert_eq!(role(two, "10.0.0.1:80"), of(false, true));
    assert_eq!(role(two, "10.0.0.2:80"), of(true, true));
    assert_eq!(role(two, "10.0.0.3:80"), of(false, false));
}
