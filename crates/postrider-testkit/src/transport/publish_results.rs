//! One correct publish result for each message.

use super::{TransportFixture, helpers::*};
use postrider_core::{Format, Message, PublishError};

/// Valid and invalid messages in one batch: each has its own result at its own index, and the valid ones arrive.
pub async fn every_message_has_its_own_result<F: TransportFixture>(fixture: F) {
    let features = fixture.features();
    if !features.knows_destinations && features.too_large.is_none() {
        return;
    }
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let missing = fixture.missing_destination();
    let size = transport.capacity().batch.min(60);
    let mut batch = orders(size, &destination);
    for (number, outgoing) in batch.iter_mut().enumerate().filter(|(number, _)| number % 3 == 1) {
        match features.too_large {
            Some(bytes) if !features.knows_destinations => outgoing.body = vec![b'x'; bytes].into(),
            _ => outgoing.destination.clone_from(&missing),
        }
        assert_eq!(number % 3, 1);
    }
    let results = publish(&*transport, &batch).await;
    let mut good = Vec::new();
    for (number, (result, outgoing)) in results.iter().zip(&batch).enumerate() {
        assert_eq!(result.is_ok(), number % 3 != 1, "message {number}: {result:?}");
        if result.is_ok() {
            good.push(outgoing.id.to_string());
        }
    }
    let received = received(&fixture, &destination, good.len()).await;
    assert_eq!(sorted(identities(&received)), sorted(good));
}

/// Publishing to a missing destination fails every time, alone and in batches.
pub async fn a_missing_destination_is_never_a_success<F: TransportFixture>(fixture: F) {
    if !fixture.features().knows_destinations {
        return;
    }
    let (transport, missing) = (fixture.transport().await, fixture.missing_destination());
    for round in 0..5 {
        let batch = orders(transport.capacity().batch.min(40), &missing);
        for result in publish(&*transport, &batch).await {
            assert!(result.is_err(), "round {round}");
        }
    }
    let destination = fixture.destination().await;
    publish_all(&*transport, &orders(1, &destination)).await;
}

/// An oversized message is rejected permanently; the others of its batch arrive.
pub async fn an_oversized_message_is_rejected_permanently<F: TransportFixture>(fixture: F) {
    let Some(too_large) = fixture.features().too_large else { return };
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let large = Message::builder("orders").payload(vec![b'x'; too_large]);
    let mut batch = orders(3, &destination);
    batch[1] = written(large, &destination, Format::Binary);
    // One after the other if they cannot be in one batch.
    let size = transport.capacity().batch.min(batch.len());
    let mut results = Vec::new();
    for part in batch.chunks(size) {
        results.extend(publish(&*transport, part).await);
    }
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{:?}", results[1]);
    assert_eq!(received(&fixture, &destination, 2).await.len(), 2);
}

/// A retry sends the same id again: it is accepted, whether or not the destination deduplicates.
pub async fn a_repeated_message_is_accepted<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let batch = orders(1, &destination);
    for _ in 0..3 {
        publish_all(&*transport, &batch).await;
    }
    let received = received(&fixture, &destination, 1).await;
    assert!(received.iter().all(|one| one.identity() == batch[0].id.to_string()));
}

/// An empty batch has no results.
pub async fn an_empty_batch_has_no_results<F: TransportFixture>(fixture: F) {
    assert!(publish(&*fixture.transport().await, &[]).await.is_empty());
}
