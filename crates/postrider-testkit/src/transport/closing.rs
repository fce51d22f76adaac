//! Closing.

use super::{TransportFixture, helpers::*};
use postrider_core::PublishError;

/// What was accepted arrives, though the transport is closed at once.
pub async fn closing_lets_what_was_accepted_arrive<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let batch = orders(transport.capacity().batch.min(50), &destination);
    publish_all(&*transport, &batch).await;
    patiently("closing", transport.close()).await;
    let received = received(&fixture, &destination, batch.len()).await;
    assert_eq!(sorted(identities(&received)), sorted(ids(&batch)));
}

/// Publishing through a closed transport is refused, and says that nothing arrived.
pub async fn a_closed_transport_is_down<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    patiently("closing", transport.close()).await;
    for answer in publish(&*transport, &orders(2.min(transport.capacity().batch), &destination)).await {
        assert!(matches!(answer, Err(PublishError::Down { .. })), "{answer:?}");
    }
}

/// Closing again does nothing, and neither does closing at one moment.
pub async fn closing_twice_is_closing_once<F: TransportFixture>(fixture: F) {
    let transport = fixture.transport().await;
    patiently("closing", async { tokio::join!(transport.close(), transport.close()) }).await;
    patiently("closing again", transport.close()).await;
}
