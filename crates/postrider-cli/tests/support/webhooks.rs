//! A webhook receiver that the program under test sends to.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    routing::post,
};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    net::TcpListener,
    sync::{
        OwnedRwLockWriteGuard, RwLock,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

#[derive(Debug)]
pub(crate) struct Webhooks {
    pub(crate) address: SocketAddr,
    arrived: UnboundedReceiver<String>,
    /// Messages that arrived before: late responses cause duplicates.
    seen: BTreeSet<String>,
    responses: Arc<RwLock<()>>,
    /// The headers of the last request.
    pub(crate) headers: Arc<Mutex<HeaderMap>>,
}

#[derive(Clone)]
struct Receiver {
    sender: UnboundedSender<String>,
    responses: Arc<RwLock<()>>,
    headers: Arc<Mutex<HeaderMap>>,
}

impl Webhooks {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, arrived) = unbounded_channel();
        let (responses, headers) = (Arc::default(), Arc::default());
        let receiver = Receiver { sender, responses: Arc::clone(&responses), headers: Arc::clone(&headers) };
        let router = Router::new().route("/{*path}", post(receive)).with_state(receiver);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, arrived, seen: BTreeSet::new(), responses, headers }
    }

    /// Waits for `count` new messages, and returns path and body of each, sorted.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.len() < count {
            let one = self.arrived.recv().await.unwrap();
            if self.seen.insert(one.clone()) {
                all.push(one);
            }
        }
        all.sort();
        all
    }

    /// Whether no further message has arrived.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.arrived.try_recv().is_err()
    }

    /// Holds back all responses until the guard is dropped.
    pub(crate) async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.responses).write_owned().await
    }
}

/// Responds with 200, or with the status in the path: `/hooks/answer-503`.
async fn receive(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    *receiver.headers.lock().unwrap() = headers;
    receiver.sender.send(format!("{} {}", uri.path(), String::from_utf8_lossy(&body))).ok();
    drop(receiver.responses.read().await);
    let status = uri.path().rsplit_once("answer-").and_then(|(_, status)| status.parse().ok());
    status.unwrap_or(StatusCode::OK)
}
