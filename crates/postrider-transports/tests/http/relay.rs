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
