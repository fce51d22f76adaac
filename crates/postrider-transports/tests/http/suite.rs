//! The transport suite.

use crate::{closed_port, open, receiver::*, secret};
use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use postrider_core::Transport;
use postrider_testkit::{
    proxy::FaultProxy,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::http::{HttpOptions, HttpTransport};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};
use tokio::sync::Barrier;

const TOO_LARGE: usize = 1_000_000;

struct HttpFixture {
    receiver: Receiver,
    dies_next: Arc<AtomicBool>,
    destinations: AtomicUsize,
}

async fn fixture() -> HttpFixture {
    let receiver = Receiver::start().await;
    let dies_next = Arc::new(AtomicBool::new(false));
    let dies = Arc::clone(&dies_next);
    receiver.respond_with(move |arrived| match arrived {
        _ if dies.swap(false, Ordering::Relaxed) => ScriptedResponse::Disconnect,
        _ if arrived.path.contains("missing") => ScriptedResponse::Status(404),
        _ if arrived.body.len() >= TOO_LARGE => ScriptedResponse::Status(413),
        _ => ScriptedResponse::Status(204),
    });
    HttpFixture { receiver, dies_next, destinations: AtomicUsize::new(0) }
}

fn below(port: u16) -> Arc<dyn Transport> {
    let options = HttpOptions::below(format!("http://127.0.0.1:{port}/hooks")).unwrap();
    let options = options.allow_http().allow_host("127.0.0.1").with_secret(secret());
    Arc::new(HttpTransport::new(options).unwrap())
}

#[async_trait]
impl TransportFixture for HttpFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: false,
            survives_restarts: true,
            too_large: Some(TOO_LARGE),
            carries_key: false,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        below(self.receiver.address.port())
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        below(closed_port().await)
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let proxy = FaultProxy::before(&self.receiver.address.to_string()).await;
        let transport = below(proxy.address().port());
        Some((proxy, transport))
    }

    async fn destination(&self) -> String {
        format!("orders/{}", self.destinations.fetch_add(1, Ordering::Relaxed))
    }

    fn missing_destination(&self) -> String {
        "missing".to_owned()
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        let arrived = self.receiver.arrived(&format!("/hooks/{destination}"), count).await;
        // The receiver does not have messages that it refused.
        arrived.iter().filter(|arrived| arrived.body.len() < TOO_LARGE).map(undo).collect()
    }

    async fn kill_and_restart(&self) {
        self.receiver.stop().await;
        // The restart is too quick to be noticed between two batches. So one request fails as if the receiver died in it.
        self.dies_next.store(true, Ordering::Relaxed);
        self.receiver.restart().await;
    }
}

fn undo(arrived: &ReceivedRequest) -> Received {
    let text = |name: &str| arrived.headers.get(name).map(|_| arrived.header(name).to_owned());
    let mut received = Received {
        id: text("webhook-id"),
        content_type: text("content-type"),
        body: arrived.body.clone(),
        ..Received::default()
    };
    for name in arrived.headers.keys().map(hyper::header::HeaderName::as_str) {
        let value = arrived.header(name).to_owned();
        match name.strip_prefix("ce-") {
            Some(attribute) => {
                let value = percent_decode_str(&value).decode_utf8().unwrap().into_owned();
                received.attributes.insert(attribute.to_owned(), value);
            }
            None => drop(received.headers.insert(name.to_owned(), value)),
        }
    }
    received
}

postrider_testkit::transport_suite!(fixture);

#[tokio::test]
async fn close_waits_for_requests_in_flight() {
    let receiver = Receiver::start().await;
    let answered = Arc::new(Barrier::new(2));
    let held = Arc::clone(&answered);
    receiver.respond_with(move |_| ScriptedResponse::AfterBarrier(Arc::clone(&held)));
    let transport = HttpTransport::new(open().with_client(crate::within(Duration::from_secs(50)))).unwrap();
    let (url, sender) = (receiver.url("/"), transport.clone());
    let sending = tokio::spawn(async move { crate::publish_one(&sender, &url).await });
    crate::within_timeout(receiver.arrived("/", 1)).await;
    let mut closing = transport.close();
    assert!(closing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it waits");
    crate::within_timeout(answered.wait()).await;
    crate::within_timeout(closing).await;
    sending.await.unwrap().unwrap();
}

/// The exact request of a message.
#[tokio::test]
async fn message_is_one_post() {
    let receiver = Receiver::start().await;
    let transport = HttpTransport::new(open()).unwrap();
    crate::publish_one(&transport, &receiver.url("/in?a=b")).await.unwrap();
    let arrived = receiver.arrived("/in?a=b", 1).await.remove(0);
    assert_eq!(arrived.method, "POST");
    assert_eq!(arrived.body, "17");
    assert_eq!(arrived.header("user-agent"), concat!("postrider/", env!("CARGO_PKG_VERSION")));
    assert_eq!(arrived.header("content-type"), "application/json");
    assert_eq!(arrived.header("content-length"), "2");
    assert_eq!(arrived.header("ce-specversion"), "1.0");
    assert_eq!(arrived.header("webhook-signature"), "", "without a secret there is no signature");
}
