//! An HTTP client that sends a body exactly as planned and tells when the answer's parts came.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Sleep;

/// What is spoken on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
}

/// How a request's body goes out.
#[derive(Debug, Clone, Default)]
pub enum BodyPlan {
    /// None.
    #[default]
    Empty,
    /// In one piece, with `content-length`.
    Whole(Bytes),
    /// Piece by piece without a length: chunks in HTTP/1.1, DATA frames in HTTP/2.
    Frames {
        /// The pieces. HTTP/2 cuts those above its frame size.
        frames: Vec<Bytes>,
        /// Pause before each piece but the first.
        pause: Duration,
        /// Sent after the last piece. HTTP/1.1 needs them named in a `trailer` header.
        trailers: Option<HeaderMap>,
    },
}

impl BodyPlan {
    /// `body` in pieces of `size` bytes, without pause or trailers.
    pub fn chunked(body: &Bytes, size: usize) -> Self {
        let size = size.max(1);
        let starts = (0..body.len()).step_by(size);
        Self::Frames {
            frames: starts
                .map(|at| body.slice(at..body.len().min(at + size)))
                .collect(),
            pause: Duration::ZERO,
            trailers: None,
        }
    }
}

/// One request.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// Path with query.
    pub path: String,
    /// Headers beside `host`.
    pub headers: HeaderMap,
    /// Body.
    pub body: BodyPlan,
}

impl Call {
    /// A `GET`.
    pub fn get(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// A `POST` of JSON in one piece.
    pub fn post_json(path: &str, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            body: BodyPlan::Whole(body.into()),
            ..Self::default()
        }
        .header("content-type", "application/json")
    }

    /// The same with one more header.
    ///
    /// # Panics
    /// The name or the value is none that HTTP allows.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a header name");
        let value = HeaderValue::try_from(value).expect("a header value");
        self.headers.append(name, value);
        self
    }
}

/// A whole answer. Times count from the moment the call was made.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// Trailers.
    pub trailers: HeaderMap,
    /// When the headers were there.
    pub headers_after: Duration,
    /// When the first bytes of the body were there, if there were any.
    pub first_bytes_after: Option<Duration>,
    /// When the last byte was there.
    pub done_after: Duration,
}

impl Answer {
    /// First value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text, bytes outside UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// It is none.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{} {}", self.status, self.text()))
    }
}

/// A client with a pool of connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: hyper_util::client::legacy::Client<HttpConnector, PlannedBody>,
}

impl Client {
    /// A client that speaks `protocol` alone.
    pub fn new(protocol: Protocol) -> Self {
        Self::built(protocol, usize::MAX)
    }

    /// The same, with a new connection for each request.
    pub fn without_reuse(protocol: Protocol) -> Self {
        Self::built(protocol, 0)
    }

    fn built(protocol: Protocol, idle_connections: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let inner = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(idle_connections)
            .http2_only(protocol == Protocol::H2c)
            .build(connector);
        Self { inner }
    }

    /// Sends `call` to `authority` (`host:port`) and reads the answer to its end.
    ///
    /// # Errors
    /// No connection, or the answer broke off.
    pub async fn send(&self, authority: &str, call: &Call) -> anyhow::Result<Answer> {
        let start = Instant::now();
        let response = self.open(authority, call).await?;
        let headers_after = start.elapsed();
        let (head, mut body) = response.into_parts();
        let mut bytes = BytesMut::new();
        let mut trailers = HeaderMap::new();
        let mut first_bytes_after = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.with_context(|| format!("the answer to {} broke off", call.path))?;
            match frame.into_data() {
                Ok(data) => {
                    if !data.is_empty() {
                        first_bytes_after.get_or_insert_with(|| start.elapsed());
                    }
                    bytes.extend_from_slice(&data);
                }
                Err(other) => trailers.extend(other.into_trailers().unwrap_or_default()),
            }
        }
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: bytes.freeze(),
            trailers,
            headers_after,
            first_bytes_after,
            done_after: start.elapsed(),
        })
    }

    /// Sends `call` and returns as soon as the headers are there. An upgraded connection is
    /// reached by [`hyper::upgrade::on`] the response.
    ///
    /// # Errors
    /// No connection, or it broke before the headers came.
    pub async fn open(
        &self,
        authority: &str,
        call: &Call,
    ) -> anyhow::Result<hyper::Response<hyper::body::Incoming>> {
        let mut request = Request::new(PlannedBody::new(&call.body));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = format!("http://{authority}{}", call.path).parse()?;
        *request.headers_mut() = call.headers.clone();
        self.inner
            .request(request)
            .await
            .with_context(|| format!("{} {} to {authority}", call.method, call.path))
    }
}

/// A body that follows a plan.
#[derive(Debug)]
struct PlannedBody {
    frames: std::vec::IntoIter<Bytes>,
    trailers: Option<HeaderMap>,
    pause: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    exact: Option<u64>,
}

impl PlannedBody {
    fn new(plan: &BodyPlan) -> Self {
        let (frames, pause, trailers, exact) = match plan {
            BodyPlan::Empty => (vec![], Duration::ZERO, None, Some(0)),
            BodyPlan::Whole(body) => {
                let length = body.len() as u64;
                (vec![body.clone()], Duration::ZERO, None, Some(length))
            }
            BodyPlan::Frames {
                frames,
                pause,
                trailers,
            } => (frames.clone(), *pause, trailers.clone(), None),
        };
        Self {
            frames: frames.into_iter(),
            trailers,
            pause,
            waiting: None,
            exact,
        }
    }
}

impl Body for PlannedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        let frame = match self.frames.next() {
            Some(data) => {
                if !self.pause.is_zero() && self.frames.len() > 0 {
                    self.waiting = Some(Box::pin(tokio::time::sleep(self.pause)));
                }
                Some(Frame::data(data))
            }
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.len() == 0 && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.exact.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
