//! An engine that answers as a test says, part by part.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// One part of an answer's body.
#[derive(Debug, Clone)]
pub enum Part {
    /// A frame.
    Data(Bytes),
    /// Nothing goes on before it is notified.
    Wait(Arc<Notify>),
    /// The connection breaks.
    Break,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Script {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Waited for before the headers go out.
    pub held: Option<Arc<Notify>>,
    /// Body.
    pub parts: Vec<Part>,
}

impl Script {
    /// A 200 of this content type and these frames.
    pub fn ok(content_type: &str, frames: &[&str]) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), content_type.into())],
            held: None,
            parts: frames
                .iter()
                .map(|frame| Part::Data(Bytes::copy_from_slice(frame.as_bytes())))
                .collect(),
        }
    }
}

/// What a request was.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Method.
    pub method: Method,
    /// Path with query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

type Answering = dyn Fn(&Asked) -> Script + Send + Sync;

/// A server that answers by a function; dropping it closes every socket.
pub struct ScriptedEngine {
    /// Where it listens.
    pub addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    accept: tokio::task::JoinHandle<()>,
}

impl std::fmt::Debug for ScriptedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedEngine")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl ScriptedEngine {
    /// Binds `listen` (port 0 takes a free one) and answers by `answering`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(
        listen: SocketAddr,
        answering: impl Fn(&Asked) -> Script + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let accept = tokio::spawn(accept(listener, Arc::clone(&asked), Arc::new(answering)));
        Ok(Self {
            addr,
            asked,
            accept,
        })
    }

    /// What it was asked but for health and metrics, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked
            .iter()
            .filter(|asked| !matches!(asked.path.as_str(), "/health" | "/metrics"))
            .cloned()
            .collect()
    }
}

impl Drop for ScriptedEngine {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    asked: Arc<Mutex<Vec<Asked>>>,
    answering: Arc<Answering>,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let _ = stream.set_nodelay(true);
        let (asked, answering) = (Arc::clone(&asked), Arc::clone(&answering));
        connections.spawn(async move {
            let service = service_fn(move |request| {
                answer(request, Arc::clone(&asked), Arc::clone(&answering))
            });
            // A connection that breaks is what some tests are about.
            let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    all: Arc<Mutex<Vec<Asked>>>,
    answering: Arc<Answering>,
) -> Result<Response<ScriptBody>, hyper::Error> {
    let (head, body) = request.into_parts();
    let asked = Asked {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await?.to_bytes(),
    };
    let script = answering(&asked);
    all.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(asked);
    if let Some(held) = &script.held {
        held.notified().await;
    }
    let mut response = Response::new(ScriptBody {
        parts: script.parts.into(),
        waiting: None,
    });
    *response.status_mut() =
        StatusCode::from_u16(script.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &script.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}

struct ScriptBody {
    parts: VecDeque<Part>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// What a broken connection is to hyper: a body that fails.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken as the script says")
    }
}

impl std::error::Error for Broken {}

impl Body for ScriptBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                std::task::ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            match self.parts.pop_front() {
                None => return Poll::Ready(None),
                Some(Part::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Part::Break) => return Poll::Ready(Some(Err(Broken))),
                Some(Part::Wait(gate)) => {
                    self.waiting = Some(Box::pin(async move { gate.notified().await }));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.waiting.is_none()
    }
}
