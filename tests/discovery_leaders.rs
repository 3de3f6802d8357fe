//! The VM that discovers may change, and change back: what it knew when it last led is not taken for news.

use warmroute::clock::Millis;
use warmroute::config::{Config, EndpointSource, StaticEndpoint};
use warmroute::discovery::{Answer, Call, Discovery};
use warmroute::endpoints::load::Load;
use warmroute::endpoints::own::Ending;
use warmroute::engine::Engine;
use warmroute::request::BodyEnd;
use warmroute::session::{Head, Session, Step};
use warmroute::telemetry::{Counter, Telemetry};

const CLUSTER: &str = "inference";
const ENGINE: &str = "10.0.0.1:8000";

fn config() -> Config {
    Config {
        endpoints: EndpointSource::Static(vec![StaticEndpoint {
            address: ENGINE.into(),
        }]),
        ..Config::default()
    }
}

fn metrics(prompt_tokens: u64) -> String {
    format!(
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n\
         vllm:num_requests_waiting 0\nvllm:prefix_cache_queries_total {prompt_tokens}\n\
         vllm:prefix_cache_hits_total 0\n"
    )
}

/// Asks at `asked_at` what is due; the engine's answer is there at `answered_at`.
fn scrape(leader: &mut Discovery, prompt_tokens: u64, asked_at: u64, answered_at: u64) {
    leader.lead(Millis(asked_at));
    leader.watch(CLUSTER);
    let calls = leader.due(Millis(asked_at));
    assert!(matches!(&*calls, [Call::Scrape { .. }]), "{calls:?}");
    let text = metrics(prompt_tokens);
    let answer = Answer::Body {
        status: 200,
        body: text.as_bytes(),
    };
    leader.answer(
        &calls[0],
        answer,
        &mut Telemetry::default(),
        Millis(answered_at),
    );
}

/// Hands on what the leader publishes; whether it publishes anything.
fn publish(leader: &mut Discovery, engine: &mut Engine, now: u64) -> bool {
    let news = leader.news();
    for (cluster, bytes) in &news {
        assert!(engine.take_snapshot(cluster, bytes, Millis(now)));
    }
    !news.is_empty()
}

fn restarts(engine: &mut Engine) -> u64 {
    let place = Counter::all().position(|counter| counter == Counter::Restarts);
    let mut found = 0;
    let counted = |at, by| found += if Some(at) == place { by } else { 0 };
    engine.telemetry.drain(counted, |_, _| {});
    found
}

fn queries(engine: &mut Engine) -> Option<f64> {
    let (pool, ..) = engine.pool(CLUSTER)?;
    let slot = pool.table().slot_of(ENGINE)?;
    pool.table().get(slot)?.load.prefix_queries
}

#[test]
fn who_leads_again_publishes_nothing_old() {
    let mut engine = Engine::new(config(), 1);
    let [mut first, mut second] = [Discovery::new(&config()), Discovery::new(&config())];
    scrape(&mut first, 10_000, 1_000, 1_010);
    assert!(publish(&mut first, &mut engine, 1_010));
    // Its answer comes when another leads already.
    scrape(&mut first, 11_000, 2_000, 2_900);
    scrape(&mut second, 40_000, 5_000, 5_010);
    assert!(publish(&mut second, &mut engine, 5_010));
    assert_eq!(queries(&mut engine), Some(40_000.0));

    first.lead(Millis(9_000));
    assert!(!publish(&mut first, &mut engine, 9_000), "nothing is new");
    scrape(&mut first, 50_000, 9_000, 9_010);
    assert!(publish(&mut first, &mut engine, 9_010));
    assert_eq!(queries(&mut engine), Some(50_000.0));
    assert_eq!(restarts(&mut engine), 0);
}

#[test]
fn an_answer_that_lay_about_is_as_old_as_its_question() {
    let mut engine = Engine::new(config(), 1);
    let [mut first, mut second] = [Discovery::new(&config()), Discovery::new(&config())];
    scrape(&mut second, 40_000, 2_000, 2_010);
    assert!(publish(&mut second, &mut engine, 2_010));
    // Asked before, answered and published after.
    scrape(&mut first, 10_000, 1_900, 2_500);
    assert!(publish(&mut first, &mut engine, 2_500));
    assert_eq!(queries(&mut engine), Some(40_000.0));
    assert_eq!(restarts(&mut engine), 0);

    // An engine that restarted is noticed.
    scrape(&mut second, 100, 3_000, 3_010);
    assert!(publish(&mut second, &mut engine, 3_010));
    assert_eq!(restarts(&mut engine), 1);
    // A clock that was set back ends no reading.
    let mut late = Discovery::new(&config());
    scrape(&mut late, 300, 600, 610);
    assert!(publish(&mut late, &mut engine, 610));
    assert_eq!(queries(&mut engine), Some(300.0));
}

/// The admin interface's word on the cluster.
fn hear(leader: &mut Discovery, hosts: &[&str], now: u64) {
    let hosts = hosts.iter().map(|address| {
        let (ip, port) = address.split_once(':').unwrap();
        format!(r#"{{"address":{{"socket_address":{{"address":"{ip}","port_value":{port}}}}}}}"#)
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let body =
        format!(r#"{{"cluster_statuses":[{{"name":"{CLUSTER}","host_statuses":[{hosts}]}}]}}"#);
    let answer = Answer::Body {
        status: 200,
        body: body.as_bytes(),
    };
    let call = Call::List {
        cluster: "admin".into(),
    };
    leader.answer(&call, answer, &mut Telemetry::default(), Millis(now));
}

fn endpoints(engine: &mut Engine) -> u32 {
    engine
        .pool(CLUSTER)
        .map_or(0, |(pool, ..)| pool.table().len())
}

#[test]
fn who_leads_knows_the_endpoints_before_it_tells_of_them() {
    let config = Config {
        endpoints: EndpointSource::Admin {
            cluster: "admin".to_owned(),
            of: Vec::new(),
        },
        ..Config::default()
    };
    let mut engine = Engine::new(config.clone(), 1);
    let [mut first, mut second] = [Discovery::new(&config), Discovery::new(&config)];
    for leader in [&mut first, &mut second] {
        leader.watch(CLUSTER);
    }
    first.lead(Millis(1_000));
    hear(&mut first, &[], 1_010);
    publish(&mut first, &mut engine, 1_010);
    assert_eq!(endpoints(&mut engine), 0);

    second.lead(Millis(5_000));
    assert!(!publish(&mut second, &mut engine, 5_000), "not asked yet");
    hear(&mut second, &[ENGINE], 5_010);
    assert!(publish(&mut second, &mut engine, 5_010));
    assert_eq!(endpoints(&mut engine), 1);

    let mut third = Discovery::new(&config);
    third.watch(CLUSTER);
    third.lead(Millis(8_000));
    publish(&mut third, &mut engine, 8_000);
    assert_eq!(endpoints(&mut engine), 1, "nobody has left");

    // It knows of nobody, as when it last led; others have told of one since.
    first.lead(Millis(12_000));
    hear(&mut first, &[], 12_010);
    publish(&mut first, &mut engine, 12_010);
    assert_eq!(endpoints(&mut engine), 0);

    // An engine answers the one that leads again before the admin interface does.
    hear(&mut first, &[ENGINE, "10.0.0.2:8000"], 13_000);
    publish(&mut first, &mut engine, 13_000);
    assert_eq!(endpoints(&mut engine), 2);
    second.lead(Millis(20_000));
    let call = Call::Scrape {
        cluster: CLUSTER.into(),
        address: ENGINE.into(),
    };
    let text = metrics(5);
    let answer = Answer::Body {
        status: 200,
        body: text.as_bytes(),
    };
    second.answer(&call, answer, &mut Telemetry::default(), Millis(20_010));
    publish(&mut second, &mut engine, 20_010);
    assert_eq!(endpoints(&mut engine), 2, "nobody has left");
}

#[test]
fn a_clock_that_was_set_back_stops_no_discovery() {
    let mut leader = Discovery::new(&config());
    scrape(&mut leader, 10_000, 100_000_000, 100_000_010);
    scrape(&mut leader, 20_000, 50_000_000, 50_000_010);
    // Nor does it while an answer is awaited.
    assert_eq!(leader.due(Millis(50_001_000)).len(), 1);
    assert_eq!(leader.due(Millis(50_001_001)).len(), 0);
    assert_eq!(leader.due(Millis(20_000_000)).len(), 1);
}

/// A request that an engine answers with its load in the headers.
fn request(engine: &mut Engine, load: &Load, now: u64) {
    let now = Millis(now);
    let mut session = Session::default();
    let head = Head {
        method: b"POST",
        path: b"/v1/completions",
        ..Head::default()
    };
    assert_eq!(session.head(engine, CLUSTER, &head), Step::Hold);
    session.body(br#"{"model":"m","prompt":"Some words."}"#);
    let step = session.decide(engine, BodyEnd::Complete, now, |_, _| {});
    assert!(matches!(step, Step::Steer { .. }), "{step:?}");
    session.response_load(engine, load, now);
    session.end(engine, Ending::Served, now);
}

#[test]
fn engines_are_read_while_responses_tell_of_their_load() {
    let mut engine = Engine::new(config(), 1);
    let mut leader = Discovery::new(&config());
    let load = Load {
        waiting: Some(2.0),
        ..Load::default()
    };
    for counted in 1..5 {
        let at = counted * 1_000;
        scrape(&mut leader, counted, at, at + 5);
        request(&mut engine, &load, at + 20);
        assert!(publish(&mut leader, &mut engine, at + 50));
        assert_eq!(queries(&mut engine), Some(counted as f64));
    }
}
