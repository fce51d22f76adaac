//! A receiver of webhooks, which the program under test sends to.

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
    /// What may come again, as it may where an answer was late.
    seen: BTreeSet<String>,
    answers: Arc<RwLock<()>>,
    /// Of what came last.
    pub(crate) headers: Arc<Mutex<HeaderMap>>,
}

#[derive(Clone)]
struct Receiver {
    tell: UnboundedSender<String>,
    answers: Arc<RwLock<()>>,
    headers: Arc<Mutex<HeaderMap>>,
}

impl Webhooks {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, arrived) = unbounded_channel();
        let (answers, headers) = (Arc::default(), Arc::default());
        let receiver = Receiver { tell, answers: Arc::clone(&answers), headers: Arc::clone(&headers) };
        let router = Router::new().route("/{*path}", post(receive)).with_state(receiver);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, arrived, seen: BTreeSet::new(), answers, headers }
    }

    /// Waits for so many that have not been here yet, and tells path and body of each, sorted.
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

    /// Whether nothing has come that nobody has asked for.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.arrived.try_recv().is_err()
    }

    /// Takes what comes and answers nobody, until this is dropped.
    pub(crate) async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.answers).write_owned().await
    }
}

/// Says yes, or what the path asks for: `/hooks/answer-503`.
async fn receive(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    *receiver.headers.lock().unwrap() = headers;
    receiver.tell.send(format!("{} {}", uri.path(), String::from_utf8_lossy(&body))).ok();
    drop(receiver.answers.read().await);
    let wished = uri.path().rsplit_once("answer-").and_then(|(_, status)| status.parse().ok());
    wished.unwrap_or(StatusCode::OK)
}
