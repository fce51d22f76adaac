//! Closing.

use super::{TransportFixture, helpers::*};
use postrider_core::PublishError;

/// Accepted messages arrive, although the transport is closed at once.
pub async fn close_delivers_accepted_messages<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let batch = orders(transport.capacity().batch.min(50), &destination);
    publish_all(&*transport, &batch).await;
    within_patience("closing", transport.close()).await;
    let received = received(&fixture, &destination, batch.len()).await;
    assert_eq!(sorted(identities(&received)), sorted(ids(&batch)));
}

/// Publishing through a closed transport fails as not sent.
pub async fn a_closed_transport_is_unavailable<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    within_patience("closing", transport.close()).await;
    for result in publish(&*transport, &orders(2.min(transport.capacity().batch), &destination)).await {
        assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
    }
}

/// Closing again does nothing, and neither does a concurrent close.
pub async fn close_is_idempotent<F: TransportFixture>(fixture: F) {
    let transport = fixture.transport().await;
    within_patience("closing", async { tokio::join!(transport.close(), transport.close()) }).await;
    within_patience("closing again", transport.close()).await;
}
