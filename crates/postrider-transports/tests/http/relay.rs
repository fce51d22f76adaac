//! The relay in front of webhooks.

use crate::{receiver::*, *};
use postrider_core::{OutboxExt, RetryStrategy};
use postrider_engine::{
    Report,
    relay::{Destination, Relay, Route},
};
use postrider_stores::memory::MemoryStore;

/// Stages `count` orders of a tenant.
async fn stage(store: &MemoryStore, tenant: &str, count: usize) {
    let mut tx = store.begin();
    for number in 0..count {
        let order = Message::builder("orders").event_type("order.placed").tenant(tenant).json(&number);
        store.stage(&mut tx, order).await.unwrap();
    }
    tx.commit();
}

async fn relay(store: &MemoryStore, transport: HttpTransport, address: &str) -> Report {
    let never_now = RetryStrategy::constant(Duration::from_secs(3600));
    let relay = Relay::builder(store.clone(), "/shop")
        .destination(Destination::new("webhooks", transport).timeout(Duration::from_secs(50)))
        .route(Route::new("orders").to("webhooks", address).retry(never_now));
    within_timeout(relay.build().unwrap().run_until_idle()).await.unwrap()
}

/// One tenant's receiver is unreachable, and its messages are the oldest. The other tenants get theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_receiver_of_a_tenant_delays_no_other() {
    let (receiver, missing) = (Receiver::start().await, closed_port().await);
    let store = MemoryStore::new();
    stage(&store, &missing.to_string(), 100).await;
    stage(&store, &receiver.address.port().to_string(), 100).await;
    let report = relay(&store, transport(open()), "http://127.0.0.1:{tenant}/in").await;
    assert_eq!((report.delivered, report.retried, report.unstarted), (100, 100, 0), "{report:?}");
    assert_eq!(receiver.arrived("/in", 100).await.len(), 100);
}

/// While the only receiver is unreachable, its messages wait, and no attempt is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_uses_no_attempts() {
    let receiver = Receiver::start().await;
    let store = MemoryStore::new();
    stage(&store, "acme", 100).await;
    let transport = || {
        let options =
            HttpOptions::below(receiver.url("/hooks")).unwrap().allow_http().allow_host("127.0.0.1");
        transport(options)
    };
    receiver.stop().await;
    let report = relay(&store, transport(), "{type}").await;
    assert_eq!((report.delivered, report.retried, report.dead), (0, 0, 0), "{report:?}");
    receiver.restart().await;
    let report = relay(&store, transport(), "{type}").await;
    assert_eq!((report.delivered, report.retried), (100, 0), "{report:?}");
    assert_eq!(receiver.arrived("/hooks/order.placed", 100).await.len(), 100);
}

/// The only URL refuses every message, for example because its route is not deployed yet: after ten different messages that is an outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_that_refuses_every_message_is_an_outage() {
    for status in [401, 404, 503] {
        let (receiver, store) = (Receiver::start().await, MemoryStore::new());
        receiver.respond_with(move |_| ScriptedResponse::Status(status));
        stage(&store, "acme", 50).await;
        let transport = transport(open());
        let first = relay(&store, transport.clone(), &receiver.url("/in")).await;
        assert!(first.retried <= 10 && first.dead == 0, "{status}: {first:?}");
        receiver.respond_with(|_| ScriptedResponse::Status(200));
        let second = relay(&store, transport, &receiver.url("/in")).await;
        assert!(second.delivered >= 35 && second.retried == 0, "{status}: {second:?}");
    }
}

/// One of several URLs refuses every message: its messages fail, and the others arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_that_refuses_every_message_stops_no_other() {
    let (receiver, store) = (Receiver::start().await, MemoryStore::new());
    receiver.respond_with(|arrived| ScriptedResponse::Status(if arrived.path == "/bad" { 404 } else { 200 }));
    for _ in 0..20 {
        stage(&store, "bad", 2).await;
        stage(&store, "good", 2).await;
    }
    let options = HttpOptions::below(receiver.url("/")).unwrap().allow_http().allow_host("127.0.0.1");
    let report = relay(&store, transport(options), "{tenant}").await;
    assert_eq!((report.delivered, report.retried, report.dead), (40, 40, 0), "{report:?}");
}
