//! Host lists of the gateways: the byte layout, the JSON of one host, Envoy's admin answer.

use warmroute::endpoints::admin_clusters::{self, ListedHost};
use warmroute::endpoints::gateway_hosts::{HostInfo, Hosts, health_of, host_info};
use warmroute::endpoints::load::Health;
use warmroute::endpoints::scan::{scan, scan_escaped};
use warmroute::raw_json::RawJsonStr;

fn layout(hosts: &[(&str, &str)]) -> Vec<u8> {
    let mut out = (hosts.len() as u32).to_le_bytes().to_vec();
    for (key, value) in hosts {
        out.extend((key.len() as u32).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
    }
    for (key, value) in hosts {
        for part in [key, value] {
            out.extend(part.as_bytes());
            out.push(0);
        }
    }
    out
}

#[test]
fn a_list_is_read_in_order() {
    let hosts = [
        ("10.0.0.1:8000", "{}"),
        ("[fd00::2]:8000", "{\"a\": 1}"),
        ("", ""),
    ];
    let bytes = layout(&hosts);
    let read: Vec<_> = Hosts::new(&bytes).collect();
    let expected = hosts.map(|(key, value)| (key.as_bytes(), value.as_bytes()));
    assert_eq!(read, expected);
}

#[test]
fn no_hosts() {
    assert_eq!(Hosts::new(b"").count(), 0);
    assert_eq!(Hosts::new(&[0; 4]).count(), 0);
}

#[test]
fn counts_and_sizes_that_lie() {
    let bytes = layout(&[("10.0.0.1:8000", "{}"), ("10.0.0.2:8000", "{}")]);
    for cut in 0..bytes.len() {
        assert!(Hosts::new(&bytes[..cut]).count() < 2, "cut at {cut}");
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = [0, 0xff, rng.u8(..)][rng.usize(..3)];
        }
        for (key, value) in Hosts::new(&bytes) {
            let _ = (host_info(value), health_of(value), key);
        }
    }
}

#[test]
fn at_most_as_many_hosts_as_a_pool_holds() {
    let hosts = vec![("10.0.0.1:8000", "{}"); 1500];
    assert_eq!(Hosts::new(&layout(&hosts)).count(), 1024);
}

const TEXT: &str =
    "vllm:num_requests_waiting{a=\"b\\\\\",c=\"d\\\"\"} 3\nvllm:num_requests_running 4\n";

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn one_host_in_the_gateways_spelling() {
    for text in [
        TEXT,
        TEXT.trim_end(),
        "",
        "\\",
        "ends in a backslash n\\n",
        "\"",
        "\\\"",
    ] {
        let metrics = quoted(text);
        for json in [
            format!("{{\n \"health_status\": \"Healthy\",\n \"metrics\": {metrics}\n}}\n"),
            format!("{{\n \"metrics\": {metrics},\n \"health_status\": \"Healthy\"\n}}\n"),
            format!("{{\"health_status\":\"Healthy\",\"metrics\":{metrics}}}"),
            format!("{{\"metrics\":{metrics},\"health_status\":\"Healthy\"}}"),
            format!(
                "{{\"x\": [1, {{\"health_status\": \"y\"}}], \"metrics\": {metrics}, \"health_status\": \"Healthy\", \"z\": null}}"
            ),
        ] {
            let inside = &metrics.as_bytes()[1..metrics.len() - 1];
            let expected = HostInfo {
                health: Some(Health::Healthy),
                metrics: Some(RawJsonStr(inside)),
            };
            assert_eq!(host_info(json.as_bytes()), expected, "{json}");
            assert_eq!(health_of(json.as_bytes()), Some(Health::Healthy), "{json}");
        }
        assert_eq!(
            scan_escaped(RawJsonStr(&metrics.as_bytes()[1..metrics.len() - 1])),
            scan(text.as_bytes())
        );
    }
}

#[test]
fn health_words() {
    for (word, health) in [
        ("Healthy", Health::Healthy),
        ("Degraded", Health::Degraded),
        ("Unhealthy", Health::Unhealthy),
        ("Something new", Health::Unhealthy),
    ] {
        let json = format!("{{\n \"health_status\": \"{word}\"\n}}\n");
        let expected = HostInfo {
            health: Some(health),
            metrics: None,
        };
        assert_eq!(host_info(json.as_bytes()), expected);
        assert_eq!(health_of(json.as_bytes()), Some(health));
    }
}

#[test]
fn a_host_that_the_gateway_could_not_describe() {
    for json in [
        "{\"error\": \"Failed to get host info\"}",
        "{}",
        "",
        "[]",
        "{\"health_status\": 3}",
        "null",
    ] {
        assert_eq!(host_info(json.as_bytes()), HostInfo::default(), "{json}");
        assert_eq!(health_of(json.as_bytes()), None, "{json}");
    }
}

#[test]
fn metrics_that_spell_a_health_are_not_taken_for_it() {
    let metrics = quoted("m{a=\"x\"} 1, \"health_status\": \"Unhealthy\"");
    for json in [
        format!("{{\"metrics\": {metrics}}}"),
        format!("{{\"error\": \"x\", \"metrics\": {metrics}}}"),
    ] {
        assert_eq!(health_of(json.as_bytes()), None, "{json}");
        assert_eq!(host_info(json.as_bytes()).health, None, "{json}");
    }
}

#[test]
fn a_host_cut_anywhere_does_no_harm() {
    let json = format!(
        "{{\n \"metrics\": {},\n \"health_status\": \"Healthy\"\n}}\n",
        quoted(TEXT)
    );
    for cut in 0..json.len() {
        let part = &json.as_bytes()[..cut];
        let health = health_of(part);
        assert!(
            matches!(health, None | Some(Health::Healthy)),
            "cut at {cut}"
        );
        assert!(matches!(
            host_info(part).health,
            None | Some(Health::Healthy)
        ));
    }
}

const CLUSTERS: &str = include_str!("fixtures/envoy_clusters.json");

#[test]
fn envoys_admin_answer() {
    let clusters = admin_clusters::parse(CLUSTERS.as_bytes(), |name| name != "admin").unwrap();
    let names: Vec<_> = clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();
    assert_eq!(names, ["models"]);
    let labelled = |address: &str, health, name: &str, sub_zone: &str| ListedHost {
        address: address.to_owned(),
        health,
        name: name.to_owned(),
        sub_zone: sub_zone.to_owned(),
    };
    let host = |address: &str, health| labelled(address, health, "", "");
    assert_eq!(
        clusters[0].hosts,
        [
            host("127.0.0.1:18101", Health::Healthy),
            labelled(
                "127.0.0.1:18102",
                Health::Unhealthy,
                "prefill.svc",
                "prefill"
            ),
            host("[::1]:18103", Health::Unhealthy),
            host("10.0.0.4:8000", Health::Draining),
            host("10.0.0.5:8000", Health::Degraded),
            host("10.0.0.6:8000", Health::Unhealthy),
        ]
    );
}

#[test]
fn an_admin_answer_cut_anywhere_is_an_error() {
    let text = CLUSTERS.trim_end();
    for cut in 0..text.len() {
        assert!(admin_clusters::parse(&text.as_bytes()[..cut], |_| true).is_err());
    }
    let empty = admin_clusters::parse(b"{}", |_| true).unwrap();
    assert!(empty.is_empty());
}
