//! A receiver of webhooks, which the program under test sends to.

use axum::{Router, body::Bytes, extract::State, http::Uri, routing::post};
use std::net::SocketAddr;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

#[derive(Debug)]
pub(crate) struct Webhooks {
    pub(crate) address: SocketAddr,
    arrived: UnboundedReceiver<String>,
}

impl Webhooks {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, arrived) = unbounded_channel();
        let router = Router::new().route("/{*path}", post(receive)).with_state(tell);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, arrived }
    }

    /// Waits for so many, and tells path and body of each, sorted.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(self.arrived.recv().await.unwrap());
        }
        all.sort();
        all
    }
}

async fn receive(State(tell): State<UnboundedSender<String>>, uri: Uri, body: Bytes) {
    tell.send(format!("{} {}", uri.path(), String::from_utf8_lossy(&body))).ok();
}
