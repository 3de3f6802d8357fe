//! The HTTP side: connections, paths, faults, the admin calls.
//!
//! Admin calls (`POST`, answered with 200 and `{}`; parameters in the query)
//! - `/sim/clear_cache`; `/sim/reset`: cache, counters, log and faults;
//! - `/sim/slow?factor=`: every modelled duration times this;
//! - `/sim/fail?status=[&path=]`: that status for paths that start with `path` (`/v1`); 0 ends it;
//! - `/sim/hang[?at=headers|body|off]`: model calls stop there;
//! - `/sim/drain[?on=true|false]`: `/health` answers 503.
//!
//! `GET /sim/log`: `{"counts": ..., "requests": [...]}`, as [`super::LogEntry`] has them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::answer::{self, Answer};
use super::engine::{Engine, Faults, HangAt, LogEntry};
use super::prompt::{self, Ask, Call};

/// A body in one piece, or one that a task feeds.
pub(crate) enum SimBody {
    Whole(Option<Bytes>),
    Fed(mpsc::Receiver<Bytes>),
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Fed(rx) => rx.poll_recv(cx).map(|b| b.map(|b| Ok(Frame::data(b)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Fed(_) => SizeHint::new(),
        }
    }
}

/// Serves connections until it is aborted, and they with it.
pub(crate) async fn accept(listener: tokio::net::TcpListener, engine: Arc<Engine>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, as a rule: some are given back soon.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // Tokens are small; waiting to fill a packet would distort their times.
        let _ = stream.set_nodelay(true);
        let engine = Arc::clone(&engine);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let engine = Arc::clone(&engine);
                async move { Ok::<_, Infallible>(handle(engine, request).await) }
            });
            // A client that breaks off is no error here.
            let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn handle(engine: Arc<Engine>, request: Request<Incoming>) -> Response<SimBody> {
    let path = request.uri().path().to_owned();
    if let Some(command) = path.strip_prefix("/sim/") {
        return admin(&engine, command, request.uri().query().unwrap_or_default());
    }
    let faults = engine.faults();
    match path.as_str() {
        "/metrics" => engine.note(|stats| stats.counts.scrapes += 1),
        "/health" => engine.note(|stats| stats.counts.health_checks += 1),
        _ if wants_websocket(request.headers()) => return upgrade(&engine, request),
        _ => return model_call(engine, faults, request).await,
    }
    if let Some(status) = failing(&faults, &path) {
        return fail(status);
    }
    if path == "/metrics" {
        let body = engine.metrics_text();
        return whole(
            StatusCode::OK,
            "text/plain; version=1.0.0; charset=utf-8",
            body,
        );
    }
    let status = if faults.draining {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    whole(status, "text/plain", Bytes::new())
}

async fn model_call(
    engine: Arc<Engine>,
    faults: Faults,
    request: Request<Incoming>,
) -> Response<SimBody> {
    let (head, body) = request.into_parts();
    let Ok(collected) = body.collect().await else {
        return fail(400);
    };
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let body = collected.to_bytes();
    engine.note(|stats| stats.body_bytes += body.len() as u64);
    let seq = engine.record(entry(&head, &trailers, &body));
    let path = head.uri.path();
    if let Some(status) = failing(&faults, path) {
        return fail(status);
    }
    if head.method == Method::GET && path == "/v1/models" {
        let model = serde_json::json!({"object": "list", "data": [{
            "id": engine.options.model, "object": "model", "owned_by": "vllm",
            "max_model_len": engine.options.num_gpu_blocks * engine.options.block_tokens,
        }]});
        return whole(StatusCode::OK, "application/json", model.to_string());
    }
    let Some(call) = Call::of(path).filter(|_| head.method == Method::POST) else {
        return whole(
            StatusCode::NOT_FOUND,
            "application/json",
            r#"{"detail":"Not Found"}"#,
        );
    };
    let block = engine.options.block_tokens;
    let ask = if head.headers.contains_key(CONTENT_ENCODING) {
        prompt::read_opaque(&body, block)
    } else {
        match prompt::read(call, &body, block) {
            Ok(ask) => ask,
            Err(message) => {
                let body = answer::error(400, &message);
                return whole(StatusCode::BAD_REQUEST, "application/json", body);
            }
        }
    };
    if faults.hang == Some(HangAt::Headers) {
        until_released(&engine).await;
    }
    if ask.stream {
        stream(engine, call, seq, ask)
    } else {
        let orca = head.headers.get("endpoint-load-metrics-format");
        one_piece(&engine, call, seq, ask, orca).await
    }
}

fn stream(engine: Arc<Engine>, call: Call, seq: u64, ask: Ask) -> Response<SimBody> {
    let (tx, rx) = mpsc::channel(16);
    tokio::spawn(async move {
        tokio::select! {
            () = tx.closed() => {}
            _ = write_stream(&engine, call, seq, ask, &tx) => {}
        }
    });
    let mut response = Response::new(SimBody::Fed(rx));
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn write_stream(
    engine: &Arc<Engine>,
    call: Call,
    seq: u64,
    ask: Ask,
    tx: &mpsc::Sender<Bytes>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    if engine.faults().hang == Some(HangAt::Body) {
        until_released(engine).await;
    }
    let length = output_tokens(engine, &ask);
    let answer = Answer::new(call, &engine.options.model, seq, &ask.prompt, length);
    let mut running = engine.compute(seq, ask.prompt).await;
    if let Some(opening) = answer.opening() {
        tx.send(opening).await?;
    }
    let mut due = tokio::time::Instant::now();
    for place in 0..length {
        if place > 0 {
            due += engine.inter_token();
            tokio::time::sleep_until(due).await;
        }
        tx.send(answer.token(place)).await?;
    }
    let usage = ask.include_usage.then(|| {
        let cached = (!engine.options.hide_cached_tokens).then_some(running.cached_tokens);
        answer::usage(running.prompt.tokens, length, cached)
    });
    running.finish(length);
    drop(running);
    tx.send(answer.closing(usage)).await
}

async fn one_piece(
    engine: &Arc<Engine>,
    call: Call,
    seq: u64,
    ask: Ask,
    orca: Option<&HeaderValue>,
) -> Response<SimBody> {
    if engine.faults().hang == Some(HangAt::Body) {
        until_released(engine).await;
    }
    let length = output_tokens(engine, &ask);
    let answer = Answer::new(call, &engine.options.model, seq, &ask.prompt, length);
    let mut running = engine.compute(seq, ask.prompt).await;
    let gaps = u32::try_from(length.saturating_sub(1)).unwrap_or(u32::MAX);
    tokio::time::sleep(engine.inter_token().saturating_mul(gaps)).await;
    let cached = (!engine.options.hide_cached_tokens).then_some(running.cached_tokens);
    let usage = answer::usage(running.prompt.tokens, length, cached);
    running.finish(length);
    drop(running);
    let mut response = whole(StatusCode::OK, "application/json", answer.whole(usage));
    let (waiting, kv_usage) = engine.orca();
    let report = match orca.and_then(|format| format.to_str().ok()) {
        Some("JSON") => format!(
            r#"JSON {{"named_metrics": {{"num_requests_waiting": {waiting:?}.0, "kv_cache_usage_perc": {kv_usage:?}}}}}"#
        ),
        Some("TEXT") => format!(
            "TEXT named_metrics.num_requests_waiting={waiting:?}.0, named_metrics.kv_cache_usage_perc={kv_usage:?}"
        ),
        _ => return response,
    };
    if let Ok(value) = HeaderValue::try_from(report) {
        response
            .headers_mut()
            .insert("endpoint-load-metrics", value);
    }
    response
}

fn output_tokens(engine: &Engine, ask: &Ask) -> usize {
    let asked = ask
        .max_tokens
        .unwrap_or(engine.options.default_output_tokens);
    asked.max(1)
}

/// Returns when the engine no longer hangs.
async fn until_released(engine: &Engine) {
    loop {
        let mut changed = std::pin::pin!(engine.changed.notified());
        // Registered before the look, so that no change is missed.
        changed.as_mut().enable();
        if engine.faults().hang.is_none() {
            return;
        }
        changed.await;
    }
}

fn wants_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(hyper::header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Accepts an upgrade and reads until the client closes; says nothing itself.
fn upgrade(engine: &Engine, mut request: Request<Incoming>) -> Response<SimBody> {
    let upgraded = hyper::upgrade::on(&mut request);
    let (head, _) = request.into_parts();
    engine.record(entry(&head, &HeaderMap::new(), &[]));
    tokio::spawn(async move {
        if let Ok(stream) = upgraded.await {
            let mut stream = TokioIo::new(stream);
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    let mut response = Response::new(SimBody::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(
        hyper::header::CONNECTION,
        HeaderValue::from_static("upgrade"),
    );
    headers.insert(
        hyper::header::UPGRADE,
        HeaderValue::from_static("websocket"),
    );
    response
}

fn admin(engine: &Engine, command: &str, query: &str) -> Response<SimBody> {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    let mut faults = engine.faults();
    match command {
        "log" => {
            let log = serde_json::json!({"counts": engine.counts(), "requests": engine.log()});
            return whole(StatusCode::OK, "application/json", log.to_string());
        }
        "clear_cache" => engine.clear_cache(),
        "reset" => {
            engine.reset();
            faults = Faults::default();
        }
        "slow" => match value("factor").and_then(|f| f.parse::<f64>().ok()) {
            Some(factor) if factor.is_finite() && factor >= 0.0 => faults.slow = factor,
            _ => return fail(400),
        },
        "fail" => match value("status").and_then(|s| s.parse::<u16>().ok()) {
            Some(0) => faults.fail = None,
            Some(status @ 200..=999) => {
                faults.fail = Some((status, value("path").unwrap_or("/v1").to_owned()));
            }
            _ => return fail(400),
        },
        "hang" => match value("at") {
            None | Some("headers") => faults.hang = Some(HangAt::Headers),
            Some("body") => faults.hang = Some(HangAt::Body),
            Some("off") => faults.hang = None,
            Some(_) => return fail(400),
        },
        "drain" => faults.draining = value("on") != Some("false"),
        _ => return fail(404),
    }
    engine.set_faults(faults);
    whole(StatusCode::OK, "application/json", "{}")
}

fn failing(faults: &Faults, path: &str) -> Option<u16> {
    let (status, start) = faults.fail.as_ref()?;
    path.starts_with(start.as_str()).then_some(*status)
}

fn fail(status: u16) -> Response<SimBody> {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = answer::error(status, "the simulator was told to fail");
    whole(code, "application/json", body)
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<SimBody> {
    let mut response = Response::new(SimBody::Whole(Some(body.into())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn entry(head: &hyper::http::request::Parts, trailers: &HeaderMap, body: &[u8]) -> LogEntry {
    LogEntry {
        seq: 0,
        method: head.method.to_string(),
        path: head
            .uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        version: format!("{:?}", head.version),
        headers: pairs(&head.headers),
        trailers: pairs(trailers),
        body_bytes: body.len(),
        body_digest: crate::digest(body),
        prompt_tokens: 0,
        cached_tokens: 0,
    }
}

fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect()
}
