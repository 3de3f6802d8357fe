//! One request of a scenario over a connection of its own, sent piece by piece as steps say.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use warmroute_lab::play::REQUEST_HEADER;
use warmroute_scenario::Request as Asked;

use crate::bootstrap::WAY_HEADER;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The first pieces of a body go out apart from each other, so that they do not come as one.
const APART: usize = 8;

/// What the client has got.
#[derive(Clone, Debug, Default)]
pub struct Got {
    /// Status, once the headers are there.
    pub status: Option<u16>,
    /// Headers.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: Vec<u8>,
    /// The answer is whole.
    pub ended: bool,
    /// Why there is no more of it.
    pub error: Option<String>,
}

/// An open request; dropping it breaks its connection.
#[derive(Debug)]
pub struct Wire {
    /// Its number, by which hosts know it.
    pub number: String,
    /// Body bytes sent so far.
    pub sent: usize,
    body: Vec<u8>,
    pieces: Option<UnboundedSender<Frame<Bytes>>>,
    got: Arc<Mutex<Got>>,
    _tasks: JoinSet<()>,
}

impl Wire {
    /// Sends the headers of a request that takes the way `way` through the gateway at the other end.
    pub fn open(
        gateway: TcpStream,
        asked: &Asked,
        number: String,
        way: &str,
    ) -> anyhow::Result<Self> {
        let body = asked.body.as_ref().map(warmroute_scenario::Body::bytes);
        let has_more = body.as_ref().is_some_and(|body| !body.is_empty());
        let (pieces, coming) = unbounded_channel();
        let pieces = (has_more || asked.trailers.is_some()).then_some(pieces);
        let sending = if pieces.is_some() {
            planned(coming)
        } else {
            Empty::new().boxed_unsync()
        };
        let is_http2 = asked.http2 || asked.trailers.is_some();
        let mut request = Request::new(sending);
        *request.method_mut() = Method::from_bytes(asked.method.as_bytes())?;
        *request.uri_mut() = if is_http2 {
            format!("http://{}{}", asked.authority(), asked.path).parse()?
        } else {
            asked.path.parse()?
        };
        let length = body.as_ref().filter(|_| !asked.chunked).map(Vec::len);
        *request.headers_mut() = headers(asked, &number, way, length, is_http2)?;
        let got = Arc::<Mutex<Got>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(converse(gateway, request, is_http2, Arc::clone(&got)));
        Ok(Self {
            number,
            sent: 0,
            body: body.unwrap_or_default(),
            pieces,
            got,
            _tasks: tasks,
        })
    }

    /// Sends body pieces by the request's plan: all that is left when `rest`, else up to where it holds.
    pub async fn send(&mut self, asked: &Asked, rest: bool) {
        let Some(pieces) = &self.pieces else {
            return;
        };
        let plan = asked.plan(self.sent, self.body.len(), rest);
        for (place, (range, _)) in plan.into_iter().enumerate() {
            self.sent = range.end;
            let piece = self.body.get(range).unwrap_or_default();
            // Nobody takes it where the gateway has answered already.
            let _ = pieces.send(Frame::data(Bytes::copy_from_slice(piece)));
            if place < APART {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        if self.sent < self.body.len() {
            return;
        }
        if let Some(trailers) = &asked.trailers {
            let trailers = trailers.iter().map(|(name, value)| {
                let name = HeaderName::try_from(name).expect("a trailer's name");
                (name, HeaderValue::try_from(value).expect("its value"))
            });
            let _ = pieces.send(Frame::trailers(trailers.collect()));
        }
        self.pieces = None;
    }

    /// Whether all of the request is sent.
    pub fn is_whole(&self) -> bool {
        self.pieces.is_none()
    }

    /// The body's bytes that were sent.
    pub fn sent_body(&self) -> &[u8] {
        self.body.get(..self.sent).unwrap_or_default()
    }

    /// What has come back.
    pub fn got(&self) -> Got {
        lock(&self.got).clone()
    }
}

fn lock(got: &Mutex<Got>) -> MutexGuard<'_, Got> {
    got.lock().unwrap_or_else(PoisonError::into_inner)
}

fn planned(coming: UnboundedReceiver<Frame<Bytes>>) -> Body {
    let frames = stream::unfold(coming, |mut coming| async move {
        let frame = coming.recv().await?;
        Some((Ok(frame), coming))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn headers(
    asked: &Asked,
    number: &str,
    way: &str,
    length: Option<usize>,
    is_http2: bool,
) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in asked
        .headers
        .iter()
        .filter(|(name, _)| !name.starts_with(':'))
    {
        headers.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
    }
    headers.insert(REQUEST_HEADER, HeaderValue::try_from(number)?);
    headers.insert(WAY_HEADER, HeaderValue::try_from(way)?);
    if !is_http2 {
        headers.insert("host", HeaderValue::try_from(asked.authority())?);
    }
    if let Some(length) = length {
        headers.insert("content-length", HeaderValue::from(length));
    }
    Ok(headers)
}

async fn converse(
    gateway: TcpStream,
    request: Request<Body>,
    is_http2: bool,
    got: Arc<Mutex<Got>>,
) {
    let ended = exchange(gateway, request, is_http2, &got).await;
    let mut got = lock(&got);
    match ended {
        Ok(()) => got.ended = true,
        Err(error) => got.error = Some(format!("{error:#}")),
    }
}

async fn exchange(
    gateway: TcpStream,
    request: Request<Body>,
    is_http2: bool,
    got: &Mutex<Got>,
) -> anyhow::Result<()> {
    gateway.set_nodelay(true)?;
    let stream = TokioIo::new(gateway);
    // Ends with this function, and the socket with it.
    let mut connection = JoinSet::new();
    let response = if is_http2 {
        let (mut sender, driver) = http2::handshake(TokioExecutor::new(), stream).await?;
        connection.spawn(async move { driver.await.map_err(anyhow::Error::from) });
        sender.send_request(request).await?
    } else {
        let (mut sender, driver) = http1::handshake(stream).await?;
        connection.spawn(async move { driver.await.map_err(anyhow::Error::from) });
        sender.send_request(request).await?
    };
    read(response, got).await
}

async fn read(response: Response<Incoming>, got: &Mutex<Got>) -> anyhow::Result<()> {
    let (head, mut body) = response.into_parts();
    {
        let mut got = lock(got);
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let pairs = head.headers.iter();
        got.headers = pairs
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect();
        got.status = Some(head.status.as_u16());
    }
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.context("the answer broke off")?.data_ref() {
            lock(got).body.extend_from_slice(data);
        }
    }
    Ok(())
}
