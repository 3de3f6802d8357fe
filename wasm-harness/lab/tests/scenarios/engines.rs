//! The hosts of a scenario as servers on ports of their own, and a door before Envoy's admin interface.
//!
//! Invariants
//! - a request of the scenario is told by its number in [`REQUEST_HEADER`]; whatever comes without is a
//!   health check or a call of the plugin;
//! - a request is noted from its headers on, frame by frame, at every host that it reaches;
//! - it waits for its answer until [`Engines::answer`] gives one; whoever is not to serve it breaks off.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use warmroute_lab::client::{Call, Client, Protocol};
use warmroute_lab::play::REQUEST_HEADER;
use warmroute_scenario::{Callouts, Health, Host, Response as Answer};

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// A request as it came to one host.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The host.
    pub at: String,
    /// Its headers, `:method` and `:path` among them.
    pub headers: BTreeMap<String, String>,
    /// What came of its body.
    pub body: Vec<u8>,
    /// Nothing more comes.
    pub ended: bool,
}

/// What the servers say and have seen.
#[derive(Debug, Default)]
struct State {
    /// By address; whoever is not in it any more has left.
    hosts: HashMap<String, Host>,
    callouts: Callouts,
    arrivals: HashMap<String, Vec<Arrival>>,
    answers: HashMap<String, Answer>,
    /// Scrapes answered, by address.
    scrapes: HashMap<String, u64>,
    /// Listings that came, and those that were answered.
    listings: (u64, u64),
    admin: Option<SocketAddr>,
}

/// All servers of a scenario; dropping it closes them.
#[derive(Debug)]
pub struct Engines {
    state: Arc<Mutex<State>>,
    servers: JoinSet<()>,
    /// Where the door before the admin interface listens.
    pub door: SocketAddr,
}

impl Engines {
    /// A door without hosts.
    pub async fn start() -> anyhow::Result<Self> {
        let state = Arc::<Mutex<State>>::default();
        let mut servers = JoinSet::new();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let door = listener.local_addr()?;
        servers.spawn(serve(listener, Place::Door, Arc::clone(&state)));
        Ok(Self {
            state,
            servers,
            door,
        })
    }

    /// One more server; gives its address.
    pub async fn add(&mut self) -> anyhow::Result<String> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?.to_string();
        let place = Place::Host(address.clone());
        self.servers
            .spawn(serve(listener, place, Arc::clone(&self.state)));
        Ok(address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whoever is a host from now on, and how it is.
    pub fn set_hosts(&self, hosts: &[Host]) {
        let hosts = hosts
            .iter()
            .map(|host| (host.address.clone(), host.clone()));
        self.state().hosts = hosts.collect();
    }

    /// What becomes of the plugin's own calls from now on.
    pub fn set_callouts(&self, callouts: Callouts) {
        self.state().callouts = callouts;
    }

    /// Where the door leads.
    pub fn set_admin(&self, admin: SocketAddr) {
        self.state().admin = Some(admin);
    }

    /// Gives the request of this number its answer.
    pub fn answer(&self, number: &str, answer: &Answer) {
        self.state()
            .answers
            .insert(number.to_owned(), answer.clone());
    }

    /// Where the request of this number came, in order.
    pub fn arrivals(&self, number: &str) -> Vec<Arrival> {
        self.state()
            .arrivals
            .get(number)
            .cloned()
            .unwrap_or_default()
    }

    /// Whether it came to some host whole.
    pub fn has_whole(&self, number: &str) -> bool {
        let state = self.state();
        let mut arrivals = state.arrivals.get(number).into_iter().flatten();
        arrivals.any(|arrival| arrival.ended)
    }

    /// Listings that came, and those that were answered.
    pub fn listings(&self) -> (u64, u64) {
        self.state().listings
    }

    /// Scrapes that a host has answered.
    pub fn scrapes(&self, address: &str) -> u64 {
        self.state().scrapes.get(address).copied().unwrap_or(0)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
enum Place {
    Door,
    Host(String),
}

async fn serve(listener: TcpListener, place: Place, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (place, state) = (place.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (place, state) = (place.clone(), Arc::clone(&state));
                async move {
                    match place {
                        Place::Door => list(&state).await,
                        Place::Host(address) => answer(request, address, &state).await,
                    }
                }
            });
            // Connections that break off are what some scenarios are about.
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// A connection that ends without an answer.
#[derive(Debug)]
struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off as the scenario says")
    }
}

impl std::error::Error for BrokenOff {}

fn plain(status: u16, body: impl Into<Bytes>) -> Response<Sent> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

/// The admin interface's list of clusters, as far as callouts are answered.
async fn list(state: &Mutex<State>) -> Result<Response<Sent>, BrokenOff> {
    let (callouts, admin) = {
        let mut state = lock(state);
        state.listings.0 += 1;
        (state.callouts, state.admin)
    };
    let response = match (callouts, admin) {
        (Callouts::Never, _) => std::future::pending().await,
        (Callouts::Answered, Some(admin)) => {
            let client = Client::without_reuse(Protocol::Http1);
            let call = Call::get("/clusters?format=json");
            match client.send(&admin.to_string(), &call).await {
                Ok(answer) => plain(answer.status.as_u16(), answer.body),
                Err(_) => plain(503, ""),
            }
        }
        _ => plain(503, "no healthy upstream"),
    };
    lock(state).listings.1 += 1;
    Ok(response)
}

async fn answer(
    request: Request<Incoming>,
    address: String,
    state: &Mutex<State>,
) -> Result<Response<Sent>, BrokenOff> {
    let number = request.headers().get(REQUEST_HEADER);
    let number = number.and_then(|number| number.to_str().ok());
    let Some(number) = number.map(str::to_owned) else {
        return own_call(request.uri().path(), &address, state).await;
    };
    note(request, &address, &number, state).await?;
    let answer = loop {
        if let Some(answer) = lock(state).answers.get(&number) {
            break answer.clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    if answer.served_by.is_some_and(|by| by != address) {
        return Err(BrokenOff);
    }
    let frames: Vec<_> = answer
        .body
        .iter()
        .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk.as_bytes()))))
        .collect();
    let frames = stream::iter(frames);
    let body = if answer.goes_on {
        StreamBody::new(frames.chain(stream::pending())).boxed_unsync()
    } else if answer.body.is_empty() {
        Full::default().boxed_unsync()
    } else {
        StreamBody::new(frames).boxed_unsync()
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status");
    if answer.status == 101 {
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
        for (name, value) in upgrade {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
    }
    for (name, value) in &answer.headers {
        let name = HeaderName::try_from(name).expect("a header name");
        let value = HeaderValue::try_from(value).expect("a header value");
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

/// Health checks, and the plugin's scrapes.
async fn own_call(
    path: &str,
    address: &str,
    state: &Mutex<State>,
) -> Result<Response<Sent>, BrokenOff> {
    let (host, callouts) = {
        let state = lock(state);
        (state.hosts.get(address).cloned(), state.callouts)
    };
    let health = host.as_ref().map(|host| host.health);
    let is_up = health.is_some_and(|health| health != Health::Unhealthy);
    if path == "/health" {
        let mut response = plain(if is_up { 200 } else { 503 }, "");
        if health == Some(Health::Degraded) {
            let degraded = HeaderValue::from_static("true");
            response.headers_mut().insert("x-envoy-degraded", degraded);
        }
        return Ok(response);
    }
    let text = match callouts {
        Callouts::Never => std::future::pending().await,
        Callouts::Refused => None,
        Callouts::Answered => host.filter(|_| is_up),
    };
    *lock(state).scrapes.entry(address.to_owned()).or_default() += 1;
    Ok(match text {
        Some(host) => plain(200, host.metrics_text().unwrap_or_default()),
        None => plain(503, ""),
    })
}

async fn note(
    request: Request<Incoming>,
    address: &str,
    number: &str,
    state: &Mutex<State>,
) -> Result<(), BrokenOff> {
    let (head, mut body) = request.into_parts();
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: BTreeMap<String, String> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect();
    headers.insert(":method".into(), head.method.to_string());
    headers.insert(":path".into(), head.uri.to_string());
    let place = {
        let mut state = lock(state);
        let arrivals = state.arrivals.entry(number.to_owned()).or_default();
        arrivals.push(Arrival {
            at: address.to_owned(),
            headers,
            ..Arrival::default()
        });
        arrivals.len() - 1
    };
    let change = |act: &dyn Fn(&mut Arrival)| {
        let mut state = lock(state);
        let arrivals = state.arrivals.get_mut(number);
        if let Some(arrival) = arrivals.and_then(|arrivals| arrivals.get_mut(place)) {
            act(arrival);
        }
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BrokenOff)?;
        if let Some(data) = frame.data_ref() {
            change(&|arrival| arrival.body.extend_from_slice(data));
        }
    }
    change(&|arrival| arrival.ended = true);
    Ok(())
}
