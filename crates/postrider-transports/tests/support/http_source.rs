//! Fixtures for receiving webhooks: servers with stable addresses, senders that retry, and a client that sends raw requests.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use super::support::{PATIENCE, client};
use async_trait::async_trait;
use axum::{Router, body::Body, extract::Request, http::StatusCode, response::IntoResponse};
use postrider_core::{Outgoing, PublishError, Source, Transport};
use postrider_testkit::{
    proxy::FaultProxy,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::http::{
    HttpOptions, HttpSource, HttpTransport,
    signature::{ID, SIGNATURE, Secret, TIMESTAMP, sign, timestamp},
};
use std::{
    collections::BTreeMap,
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::SystemTime,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tower_service::Service;

pub(crate) const PATH: &str = "/hooks/orders";

pub(crate) fn secret() -> Secret {
    Secret::new([7; 32]).unwrap()
}

/// A server whose router can be exchanged, so that the next source is found at the same address.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    current: Arc<Mutex<Option<Router>>>,
}

impl Server {
    pub(crate) async fn start(serving: &mut JoinSet<()>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, current) = (listener.local_addr().unwrap(), Arc::<Mutex<Option<Router>>>::default());
        let shown = Arc::clone(&current);
        let app = Router::new().fallback(move |request: Request<Body>| {
            let router = shown.lock().unwrap().clone();
            async move {
                match router {
                    Some(mut router) => router.call(request).await.unwrap(),
                    None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                }
            }
        });
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, current }
    }

    pub(crate) fn show(&self, source: &HttpSource) {
        *self.current.lock().unwrap() = Some(source.router());
    }
}

/// The server of an address, and the address that requests are sent to.
struct Endpoint {
    server: Server,
    sent_to: SocketAddr,
}

pub(crate) struct HttpFixture {
    endpoints: Mutex<BTreeMap<String, Endpoint>>,
    /// Servers and senders; they end with the fixture.
    tasks: Mutex<JoinSet<()>>,
}

pub(crate) fn fixture() -> HttpFixture {
    HttpFixture { endpoints: Mutex::default(), tasks: Mutex::default() }
}

impl HttpFixture {
    fn url(&self, address: &str) -> String {
        format!("http://{}", self.endpoints.lock().unwrap()[address].sent_to)
    }

    /// In the background, because a request waits for the consumer.
    fn send_in_background(&self, sending: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap().spawn(sending);
    }

    fn show(&self, address: &str) -> Arc<dyn Source> {
        let source = HttpSource::new(PATH, secret()).unwrap();
        self.endpoints.lock().unwrap()[address].server.show(&source);
        Arc::new(source)
    }
}

#[async_trait]
impl SourceFixture for HttpFixture {
    fn features(&self) -> SourceFeatures {
        SourceFeatures { keeps_order: false, shares: false, carries_id: true, survives_restarts: false }
    }

    async fn address(&self) -> String {
        let mut tasks = JoinSet::new();
        let server = Server::start(&mut tasks).await;
        let (address, sent_to) = (server.address.to_string(), server.address);
        self.send_in_background(async move { while tasks.join_next().await.is_some() {} });
        self.endpoints.lock().unwrap().insert(address.clone(), Endpoint { server, sent_to });
        address
    }

    async fn send(&self, address: &str, batch: Vec<Outgoing>) {
        let options = HttpOptions::below(client(self.url(address), PATIENCE)).unwrap();
        let options = options.allow_http().allow_host("127.0.0.1").with_secret(secret());
        // As long, and as many at the same time, as a consumer of a test may need.
        let options = options.with_rejected(422).unwrap().with_concurrency(100);
        let transport = HttpTransport::new(options).unwrap();
        for mut outgoing in batch {
            outgoing.destination = PATH.trim_start_matches('/').to_owned();
            let transport = transport.clone();
            self.send_in_background(async move {
                while let Err(error) = transport.publish(std::slice::from_ref(&outgoing)).await.remove(0) {
                    match error {
                        PublishError::Reject { .. } => return,
                        PublishError::Retry { after, .. } => {
                            tokio::time::sleep(after.unwrap_or_default()).await;
                        }
                        _ => tokio::task::yield_now().await,
                    }
                }
            });
        }
    }

    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str) {
        let address = self.endpoints.lock().unwrap()[address].sent_to;
        let request = match id {
            Some(id) => Post::signed(id, body),
            // Webhooks always have an id. This one also claims to be an event, and is not.
            None => Post::signed("A-0", body).with("content-type", "application/cloudevents+json"),
        };
        self.send_in_background(async move {
            while request.send(address).await.is_none_or(|answer| answer.status == 503) {}
        });
    }

    async fn source(&self, address: &str) -> Arc<dyn Source> {
        self.show(address)
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// The proxied connections are those of the senders.
    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        let proxy = FaultProxy::before(address).await;
        self.endpoints.lock().unwrap().get_mut(address).unwrap().sent_to = proxy.address();
        Some((proxy, self.show(address)))
    }

    async fn kill_and_restart(&self) {
        unreachable!("the source ends with the process");
    }
}

/// A request, byte for byte.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) method: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl HttpResponse {
    /// The stable code of the response.
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Post {
    pub(crate) fn plain(body: &str) -> Self {
        Self { method: "POST", headers: vec![("content-type", "text/plain".to_owned())], body: body.into() }
    }

    pub(crate) fn signed(id: &str, body: &str) -> Self {
        Self::plain(body).sign(&[secret()], id, SystemTime::now())
    }

    pub(crate) fn sign(self, secrets: &[Secret], id: &str, at: SystemTime) -> Self {
        let at = timestamp(at);
        let signature = sign(secrets, id, &at, &self.body);
        self.with(ID, id).with(TIMESTAMP, &at).with(SIGNATURE, &signature)
    }

    /// Replaces a header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    fn head(&self) -> String {
        let mut head = format!("{} {PATH} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n", self.method);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head
    }

    /// Sends the request and returns the connection; dropping it disconnects the client.
    pub(crate) async fn begin(&self, address: SocketAddr) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let head = format!("{}content-length: {}\r\n\r\n", self.head(), self.body.len());
        stream.write_all(&[head.as_bytes(), &self.body].concat()).await.ok()?;
        Some(stream)
    }

    /// Only the head, with this said of the body.
    pub(crate) async fn begin_with(&self, address: SocketAddr, said: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("{}{said}\r\n\r\n", self.head()).as_bytes()).await.unwrap();
        stream
    }

    /// The answer, if one came.
    pub(crate) async fn send(&self, address: SocketAddr) -> Option<HttpResponse> {
        answer(self.begin(address).await?).await
    }
}

/// Reads the answer to its end.
pub(crate) async fn answer(mut stream: TcpStream) -> Option<HttpResponse> {
    let mut read = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("the test hangs").ok()?;
    let text = String::from_utf8(read).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(HttpResponse { status, headers: lines.filter_map(header).collect(), body: body.to_owned() })
}
