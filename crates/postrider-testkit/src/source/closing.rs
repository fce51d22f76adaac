//! Closing.

use super::{SourceFixture, helpers::*};
use postrider_core::SourceError;

/// Receiving from a closed source is refused.
pub async fn a_closed_source_is_down<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(1, &place)).await;
    patiently("closing", source.close()).await;
    let received = patiently("receiving", source.receive(1)).await;
    assert!(matches!(received, Err(SourceError::Down { .. })), "{received:?}");
}

/// An idle consumer stops at once: nobody has to send something first.
pub async fn closing_ends_the_call_that_waits<F: SourceFixture>(fixture: F) {
    let source = fixture.source(&fixture.place().await).await;
    let (received, ()) = patiently("closing", async {
        tokio::join!(source.receive(1), async {
            tokio::task::yield_now().await;
            source.close().await;
        })
    })
    .await;
    assert!(matches!(received, Err(SourceError::Down { .. })), "{received:?}");
}

/// Closing again does nothing, and neither does closing at one moment.
pub async fn closing_twice_is_closing_once<F: SourceFixture>(fixture: F) {
    let source = fixture.source(&fixture.place().await).await;
    patiently("closing", async { tokio::join!(source.close(), source.close()) }).await;
    patiently("closing again", source.close()).await;
}
