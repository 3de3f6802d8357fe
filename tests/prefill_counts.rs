//! Disaggregated requests: whatever happens to them, in whatever order, both endpoints get back what was
//! counted there, once.

use warmroute::clock::Millis;
use warmroute::config::Plugin;
use warmroute::endpoints::own::Ending;
use warmroute::engine::Engine;
use warmroute::pool::Served;
use warmroute::request::BodyEnd;
use warmroute::session::{Head, Session, Step};
use warmroute::telemetry::Counter;

const CLUSTER: &str = "engines";
const CONFIG: &str = r#"{
    "endpoints": {"static": ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"]},
    "disaggregation": {"prefill": ["10.0.0.3:80", "10.0.0.4:80"], "minUncachedTokens": 200}
}"#;

fn engine() -> Engine {
    let plugin = Plugin::parse(CONFIG.as_bytes()).expect("a configuration");
    Engine::new(plugin.global.expect("a global part"), 7)
}

/// A request that was decided; whether its prompt is computed elsewhere. `None` = all cool down.
fn sent(engine: &mut Engine, topic: u64, streams: bool, now: Millis) -> Option<(Session, bool)> {
    let text = format!("topic {topic} ").repeat(300);
    let body = format!(
        r#"{{"model":"m","stream":{streams},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    let head = Head {
        method: b"POST",
        path: b"/v1/chat/completions",
        ..Head::default()
    };
    let mut session = Session::default();
    assert_eq!(session.head(engine, CLUSTER, &head), Step::Hold);
    session.body(body.as_bytes());
    match session.decide(engine, BodyEnd::Complete, now, |_, _| {}) {
        Step::Steer { prefill, .. } => Some((session, prefill.is_some())),
        _ => None,
    }
}

/// Requests in flight by endpoint, and uncached tokens before all of them.
fn levels(engine: &mut Engine, now: Millis) -> (Vec<(String, u32)>, f64) {
    let (pool, ..) = engine.pool(CLUSTER).expect("a pool");
    let tokens = pool.table().iter().map(|(_, one)| one.prefill_tokens(now));
    let tokens = tokens.sum();
    let inflight = pool.table().iter();
    let inflight = inflight.map(|(_, one)| (one.address.to_string(), one.own.inflight));
    (inflight.collect(), tokens)
}

fn inflight(engine: &mut Engine, now: Millis) -> u32 {
    levels(engine, now).0.iter().map(|(_, count)| count).sum()
}

#[test]
fn the_prompts_endpoint_is_busy_until_the_answer_begins() {
    let mut engine = engine();
    let now = Millis(1_000);
    let (mut session, is_elsewhere) = sent(&mut engine, 1, true, now).expect("steered");
    assert!(is_elsewhere);
    let (before, tokens) = levels(&mut engine, now);
    assert_eq!(before.iter().filter(|(_, count)| *count == 1).count(), 2);
    assert!(tokens > 500.0, "{tokens}: counted where they are computed");
    let served = Served {
        status: 200,
        by: None,
        attempts: None,
    };
    session.response_head(&mut engine, &served, true, now);
    assert_eq!(inflight(&mut engine, now), 2, "headers come before");
    session.response_body(&mut engine, b"data: {}\n\n", false, now.plus(90));
    let (during, tokens) = levels(&mut engine, now.plus(90));
    assert_eq!((inflight(&mut engine, now.plus(90)), tokens), (1, 0.0));
    let answering = during.iter().find(|(_, count)| *count == 1).expect("one");
    assert!(["10.0.0.1:80", "10.0.0.2:80"].contains(&&*answering.0));
    session.end(&mut engine, Ending::Served, now.plus(200));
    assert_eq!(inflight(&mut engine, now.plus(200)), 0);
    // Both hold it now: neither has to be asked again.
    let (mut again, is_elsewhere) = sent(&mut engine, 1, true, now.plus(300)).expect("steered");
    assert!(!is_elsewhere);
    again.end(&mut engine, Ending::Unknown, now.plus(300));
}

#[test]
fn counts_are_given_back_once_in_any_order_of_events() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut engine = engine();
    let mut now = Millis(1_000);
    let mut open: Vec<Session> = Vec::new();
    let mut elsewhere = 0;
    for _ in 0..20_000 {
        now = now.plus(rng.u64(..500));
        if open.len() < 8 && rng.u8(..3) == 0 {
            if let Some((session, is_elsewhere)) =
                sent(&mut engine, rng.u64(..400), rng.bool(), now)
            {
                elsewhere += u32::from(is_elsewhere);
                open.push(session);
            }
        } else if !open.is_empty() {
            let place = rng.usize(..open.len());
            let session = &mut open[place];
            let by = format!("10.0.0.{}:80", rng.u8(1..6));
            match rng.u8(..6) {
                0 | 1 => {
                    let served = Served {
                        status: [200, 200, 404, 429, 500, 503][rng.usize(..6)],
                        by: rng.bool().then_some(&*by),
                        attempts: Some(rng.u32(1..3)),
                    };
                    session.response_head(&mut engine, &served, rng.bool(), now);
                }
                2 | 3 => session.response_body(&mut engine, b"{}", rng.bool(), now),
                4 => session.steer_failed(&mut engine, now),
                _ => {
                    let endings = [Ending::Served, Ending::Failed, Ending::Unknown];
                    open.swap_remove(place)
                        .end(&mut engine, endings[rng.usize(..3)], now);
                }
            }
        }
        let most = 2 * u32::try_from(open.len()).expect("few");
        assert!(inflight(&mut engine, now) <= most);
    }
    assert!(elsewhere > 300, "{elsewhere}");
    for mut session in open {
        session.end(&mut engine, Ending::Unknown, now);
    }
    let (counts, tokens) = levels(&mut engine, now);
    assert!(counts.iter().all(|(_, count)| *count == 0), "{counts:?}");
    assert_eq!(tokens, 0.0);
    let mut counted = 0;
    let place = Counter::all().position(|one| one == Counter::Prefills);
    engine.telemetry.drain(
        |at, by| counted += if Some(at) == place { by } else { 0 },
        |_, _| {},
    );
    assert_eq!(counted, u64::from(elsewhere));
}
