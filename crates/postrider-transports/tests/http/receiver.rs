//! A receiver of webhooks: a real HTTP server that keeps what it gets and answers as it is told.

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

/// A request, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Arrived {
    /// The text of a header, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| std::str::from_utf8(value.as_bytes()).unwrap())
    }
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A whole answer.
    Status(u16),
    /// A whole answer with a header.
    With(u16, &'static str, String),
    /// A whole answer with a body.
    Saying(u16, &'static str),
    /// An answer that never ends.
    Endless(u16),
    /// An answer that ends too soon.
    CutBody(u16),
    /// The connection ends without an answer.
    Cut,
    /// No answer, ever.
    Silence,
    /// 200, as soon as so many wait together.
    Together(Arc<Barrier>),
    /// Whatever it comes to, when it does.
    #[allow(dead_code, reason = "only queues let others wait")]
    Later(Awaited<BoxFuture<'static, Reply>>),
}

type Script = Arc<dyn Fn(&Arrived) -> Reply + Send + Sync>;

/// What the receiver has seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) under_way: usize,
    pub(crate) most_under_way: usize,
}

struct Shared {
    seen: watch::Sender<Seen>,
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
    /// Answers everything with 200.
    pub(crate) async fn start() -> Self {
        Self::with(None).await
    }

    /// The same over TLS.
    pub(crate) async fn with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Mutex::new(Arc::new(|_: &Arrived| Reply::Status(200)) as Script);
        let shared = Arc::new(Shared { seen: watch::Sender::default(), script });
        let serving = Mutex::new(tokio::spawn(serve(listener, Arc::clone(&shared), tls.clone())));
        Self { address, shared, tls, serving }
    }

    /// Answers like this from now on.
    pub(crate) fn answers(&self, script: impl Fn(&Arrived) -> Reply + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// The URL of `path` at this receiver.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it has seen so far.
    pub(crate) fn seen(&self) -> Seen {
        self.shared.seen.borrow().clone()
    }

    /// What came to `path`, once it is so much.
    pub(crate) async fn arrived(&self, path: &str, count: usize) -> Vec<Arrived> {
        let here = |seen: &Seen| -> Vec<Arrived> {
            seen.arrived.iter().filter(|arrived| arrived.path == path).cloned().collect()
        };
        let mut seen = self.shared.seen.subscribe();
        let seen = seen.wait_for(|seen| here(seen).len() >= count).await.unwrap();
        here(&seen)
    }

    /// Ends without a word, with all connections.
    pub(crate) async fn stop(&self) {
        let serving = std::mem::replace(&mut *self.serving.lock().unwrap(), tokio::spawn(async {}));
        serving.abort();
        serving.await.ok();
    }

    /// Listens again on its port. What it kept is still there.
    pub(crate) async fn start_again(&self) {
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
    // Dropped with this task, it ends the connections.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        shared.seen.send_modify(|seen| seen.connections += 1);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            match tls {
                None => converse(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        converse(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request| answer(request, Arc::clone(&shared)));
    // It fails when the script says so, or the client has gone.
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

/// Counts a request as long as it is under way, however it ends.
struct UnderWay<'s>(&'s Shared);

impl<'s> UnderWay<'s> {
    fn begin(shared: &'s Shared, arrived: Arrived) -> Self {
        shared.seen.send_modify(|seen| {
            seen.arrived.push(arrived);
            seen.under_way += 1;
            seen.most_under_way = seen.most_under_way.max(seen.under_way);
        });
        Self(shared)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| seen.under_way -= 1);
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> io::Result<Response<Said>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let arrived = Arrived { method: head.method, path, headers: head.headers, body };
    let script = Arc::clone(&shared.script.lock().unwrap());
    let mut reply = script(&arrived);
    let _under_way = UnderWay::begin(&shared, arrived);
    while let Reply::Later(later) = reply {
        reply = later.await;
    }
    let said = |status: u16, said| Ok(Response::builder().status(status).body(said).unwrap());
    match reply {
        Reply::Status(status) => said(status, Said::Whole("")),
        Reply::Saying(status, text) => said(status, Said::Whole(text)),
        Reply::With(status, name, value) => {
            let mut response = said(status, Said::Whole(""))?;
            let value = HeaderValue::from_str(&value).unwrap();
            response.headers_mut().insert(HeaderName::from_static(name), value);
            Ok(response)
        }
        Reply::Endless(status) => said(status, Said::Endless),
        Reply::CutBody(status) => said(status, Said::CutAfter(3)),
        Reply::Cut => Err(io::Error::other("cut off")),
        Reply::Silence | Reply::Later(_) => pending().await,
        Reply::Together(barrier) => {
            barrier.wait().await;
            said(200, Said::Whole(""))
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
enum Said {
    Whole(&'static str),
    Endless,
    CutAfter(usize),
}

impl Body for Said {
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
            // What was said so far goes out first.
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
