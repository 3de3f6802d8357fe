//! The lab's gateway without the plugin: a real Envoy in front of simulated engines.

use warmroute_lab::client::{Call, Client, Protocol};
use warmroute_lab::engine_sim::{EngineSim, SimOptions};
use warmroute_lab::envoy::{
    Envoy, EnvoyOptions, PICK_HEADER, Routing, SERVED_HEADER, bootstrap, find_binary,
    plugin_configuration, validate,
};

const CHAT: &str = "/v1/chat/completions";
const BODY: &str = r#"{"messages":[{"role":"user","content":"hello"}],"max_tokens":1}"#;

async fn engines(count: usize) -> Vec<EngineSim> {
    let mut sims = Vec::new();
    for _ in 0..count {
        sims.push(EngineSim::start(SimOptions::default()).await.unwrap());
    }
    sims
}

fn addresses(sims: &[EngineSim]) -> Vec<String> {
    sims.iter().map(|sim| sim.addr.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_reaches_every_engine_and_ends_with_its_owner() {
    let sims = engines(3).await;
    let options = EnvoyOptions::new(addresses(&sims), Routing::RoundRobin);
    let envoy = Envoy::start(&options).await.unwrap();
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let client = Client::new(protocol);
        for _ in 0..3 {
            let answer = client
                .send(&envoy.authority(), &Call::post_json(CHAT, BODY))
                .await;
            assert_eq!(answer.unwrap().status, 200);
        }
    }
    for sim in &sims {
        assert_eq!(sim.log().len(), 2);
        assert_eq!(
            sim.log()[0].body_digest,
            warmroute_lab::digest(BODY.as_bytes())
        );
    }
    let stats = envoy.stats().await.unwrap();
    assert_eq!(stats["cluster.inference.upstream_rq_200"], 6);
    let (authority, admin) = (envoy.authority(), envoy.admin_addr.to_string());
    drop(envoy);
    let client = Client::new(Protocol::Http1);
    for gone in [authority, admin] {
        assert!(client.send(&gone, &Call::get("/")).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pick_in_the_header_is_followed_and_kept_from_the_engine() {
    let sims = engines(3).await;
    let options = EnvoyOptions::new(addresses(&sims), Routing::PickHeader);
    let envoy = Envoy::start(&options).await.unwrap();
    let client = Client::new(Protocol::Http1);
    let picked = sims[1].addr.to_string();
    for _ in 0..4 {
        let call = Call::post_json(CHAT, BODY).header(PICK_HEADER, &picked);
        let answer = client.send(&envoy.authority(), &call).await.unwrap();
        assert_eq!(answer.header(SERVED_HEADER), Some(picked.as_str()));
    }
    let log = sims[1].log();
    assert_eq!(log.len(), 4);
    assert_eq!(log[0].header(PICK_HEADER), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_configuration_says_why() {
    let options = EnvoyOptions::new(vec!["127.0.0.1:1".into()], Routing::LeastRequest);
    let broken = |config: &mut serde_json::Value| config["static_resources"] = 7.into();
    let error = Envoy::start_edited(&options, broken).await.unwrap_err();
    assert!(
        format!("{error:#}").contains("static_resources"),
        "{error:#}"
    );
}

#[test]
fn every_routing_validates() {
    let admin = "127.0.0.1:19901".parse().unwrap();
    for routing in [
        Routing::RoundRobin,
        Routing::LeastRequest,
        Routing::PickHeader,
    ] {
        let hosts = vec!["localhost:8001".into(), "127.0.0.1:8002".into()];
        let options = EnvoyOptions::new(hosts, routing);
        validate(
            &find_binary().unwrap(),
            &bootstrap(&options, admin).unwrap(),
        )
        .unwrap();
    }
    let configuration = plugin_configuration().unwrap();
    assert_eq!(configuration["endpoints"]["admin"]["of"][0], "inference");
}
