//! Closing.

use super::{SourceFixture, helpers::*};
use postrider_core::SourceError;

/// Receiving from a closed source fails.
pub async fn a_closed_source_is_unavailable<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(1, &address)).await;
    within_patience("closing", source.close()).await;
    let received = within_patience("receiving", source.receive(1)).await;
    assert!(matches!(received, Err(SourceError::Unavailable { .. })), "{received:?}");
}

/// A waiting receive ends at once: it does not wait for the next message.
pub async fn close_ends_a_waiting_receive<F: SourceFixture>(fixture: F) {
    let source = fixture.source(&fixture.address().await).await;
    let (received, ()) = within_patience("closing", async {
        tokio::join!(source.receive(1), async {
            tokio::task::yield_now().await;
            source.close().await;
        })
    })
    .await;
    assert!(matches!(received, Err(SourceError::Unavailable { .. })), "{received:?}");
}

/// Closing again does nothing, and neither does a concurrent close.
pub async fn close_is_idempotent<F: SourceFixture>(fixture: F) {
    let source = fixture.source(&fixture.address().await).await;
    within_patience("closing", async { tokio::join!(source.close(), source.close()) }).await;
    within_patience("closing again", source.close()).await;
}
