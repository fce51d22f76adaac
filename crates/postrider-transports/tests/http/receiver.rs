//! A receiver of webhooks: a real HTTP server that records requests and sends scripted responses.

use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared as Awaited};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
    header::{HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Barrier, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// A request as it was received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    /// The value of a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| std::str::from_utf8(value.as_bytes()).unwrap())
    }
}

/// The scripted response to a request.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedResponse {
    /// A complete response.
    Status(u16),
    /// A complete response with a header.
    WithHeader(u16, &'static str, String),
    /// A complete response with a body.
    WithBody(u16, &'static str),
    /// A response whose body never ends.
    Endless(u16),
    /// A response whose body is truncated.
    TruncatedBody(u16),
    /// The connection ends without a response.
    Disconnect,
    /// No response, ever.
    NoResponse,
    /// 200, as soon as enough requests wait at the barrier.
    AfterBarrier(Arc<Barrier>),
    /// The response of a future.
    #[allow(dead_code, reason = "only the SQS server delays responses")]
    Later(Awaited<BoxFuture<'static, ScriptedResponse>>),
}

type Script = Arc<dyn Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync>;

/// The connections and requests that a receiver got.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLog {
    pub(crate) connections: usize,
    pub(crate) arrived: Vec<ReceivedRequest>,
    pub(crate) in_flight: usize,
    pub(crate) max_in_flight: usize,
}

struct Shared {
    log: watch::Sender<RequestLog>,
    script: Mutex<Script>,
}

/// Listens on a port of its own until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    serving: Mutex<JoinHandle<()>>,
}

impl Receiver {
    /// Responds to every request with 200.
    pub(crate) async fn start() -> Self {
        Self::with(None).await
    }

    /// The same, over TLS if an acceptor is given.
    pub(crate) async fn with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Mutex::new(Arc::new(|_: &ReceivedRequest| ScriptedResponse::Status(200)) as Script);
        let shared = Arc::new(Shared { log: watch::Sender::default(), script });
        let serving = Mutex::new(tokio::spawn(serve(listener, Arc::clone(&shared), tls.clone())));
        Self { address, shared, tls, serving }
    }

    /// Responds by this script from now on.
    pub(crate) fn respond_with(
        &self,
        script: impl Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// The URL of `path` at this receiver.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The connections and requests so far.
    pub(crate) fn log(&self) -> RequestLog {
        self.shared.log.borrow().clone()
    }

    /// The requests to `path`, once there are `count` of them.
    pub(crate) async fn arrived(&self, path: &str, count: usize) -> Vec<ReceivedRequest> {
        let here = |log: &RequestLog| -> Vec<ReceivedRequest> {
            log.arrived.iter().filter(|arrived| arrived.path == path).cloned().collect()
        };
        let mut log = self.shared.log.subscribe();
        let log = log.wait_for(|log| here(log).len() >= count).await.unwrap();
        here(&log)
    }

    /// Stops abruptly, and drops all connections.
    pub(crate) async fn stop(&self) {
        let serving = std::mem::replace(&mut *self.serving.lock().unwrap(), tokio::spawn(async {}));
        serving.abort();
        serving.await.ok();
    }

    /// Listens on the same port again. The log is kept.
    pub(crate) async fn restart(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let serving = tokio::spawn(serve(listener, Arc::clone(&self.shared), self.tls.clone()));
        *self.serving.lock().unwrap() = serving;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.lock().unwrap().abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    // Dropped with this task, which ends the connections.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        shared.log.send_modify(|log| log.connections += 1);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            match tls {
                None => serve_connection(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve_connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request| respond(request, Arc::clone(&shared)));
    // This fails if the script says so, or the client has disconnected.
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

/// Counts a request while it is in flight, however it ends.
struct InFlightRequest<'s>(&'s Shared);

impl<'s> InFlightRequest<'s> {
    fn begin(shared: &'s Shared, arrived: ReceivedRequest) -> Self {
        shared.log.send_modify(|log| {
            log.arrived.push(arrived);
            log.in_flight += 1;
            log.max_in_flight = log.max_in_flight.max(log.in_flight);
        });
        Self(shared)
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.0.log.send_modify(|log| log.in_flight -= 1);
    }
}

async fn respond(request: Request<Incoming>, shared: Arc<Shared>) -> io::Result<Response<ResponseBody>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let arrived = ReceivedRequest { method: head.method, path, headers: head.headers, body };
    let script = Arc::clone(&shared.script.lock().unwrap());
    let mut response = script(&arrived);
    let _in_flight = InFlightRequest::begin(&shared, arrived);
    while let ScriptedResponse::Later(later) = response {
        response = later.await;
    }
    let build = |status: u16, body| Ok(Response::builder().status(status).body(body).unwrap());
    match response {
        ScriptedResponse::Status(status) => build(status, ResponseBody::Whole("")),
        ScriptedResponse::WithBody(status, text) => build(status, ResponseBody::Whole(text)),
        ScriptedResponse::WithHeader(status, name, value) => {
            let mut response = build(status, ResponseBody::Whole(""))?;
            let value = HeaderValue::from_str(&value).unwrap();
            response.headers_mut().insert(HeaderName::from_static(name), value);
            Ok(response)
        }
        ScriptedResponse::Endless(status) => build(status, ResponseBody::Endless),
        ScriptedResponse::TruncatedBody(status) => build(status, ResponseBody::CutAfter(3)),
        ScriptedResponse::Disconnect => Err(io::Error::other("cut off")),
        ScriptedResponse::NoResponse | ScriptedResponse::Later(_) => pending().await,
        ScriptedResponse::AfterBarrier(barrier) => {
            barrier.wait().await;
            build(200, ResponseBody::Whole(""))
        }
    }
}

/// The body of a response.
#[derive(Debug)]
enum ResponseBody {
    Whole(&'static str),
    Endless,
    CutAfter(usize),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = |bytes: &'static [u8]| Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(bytes)))));
        match &mut *self {
            Self::Whole("") => Poll::Ready(None),
            Self::Whole(text) => frame(std::mem::take(text).as_bytes()),
            Self::Endless => frame(&[b'x'; 1024]),
            // The frames so far are sent first.
            Self::CutAfter(1) => {
                *self = Self::CutAfter(0);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Self::CutAfter(0) => Poll::Ready(Some(Err(io::Error::other("cut off")))),
            Self::CutAfter(frames) => {
                *frames -= 1;
                frame(b"half a sent")
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(text) => SizeHint::with_exact(text.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
