//! One answer for each message, and each the right one.

use super::{TransportFixture, helpers::*};
use postrider_core::{Format, Message, PublishError};

/// Good and bad ones mixed: each has its own answer, at its own place, and the good ones arrive.
pub async fn every_message_has_its_own_answer<F: TransportFixture>(fixture: F) {
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
    let answers = publish(&*transport, &batch).await;
    let mut good = Vec::new();
    for (number, (answer, outgoing)) in answers.iter().zip(&batch).enumerate() {
        assert_eq!(answer.is_ok(), number % 3 != 1, "message {number}: {answer:?}");
        if answer.is_ok() {
            good.push(outgoing.id.to_string());
        }
    }
    let received = received(&fixture, &destination, good.len()).await;
    assert_eq!(sorted(identities(&received)), sorted(good));
}

/// Publishing to what does not exist fails, first and last, alone and many times.
pub async fn a_missing_destination_is_never_a_success<F: TransportFixture>(fixture: F) {
    if !fixture.features().knows_destinations {
        return;
    }
    let (transport, missing) = (fixture.transport().await, fixture.missing_destination());
    for round in 0..5 {
        let batch = orders(transport.capacity().batch.min(40), &missing);
        for answer in publish(&*transport, &batch).await {
            assert!(answer.is_err(), "round {round}");
        }
    }
    let destination = fixture.destination().await;
    publish_all(&*transport, &orders(1, &destination)).await;
}

/// What is too large is refused for good; its neighbours arrive.
pub async fn what_is_too_large_is_refused_for_good<F: TransportFixture>(fixture: F) {
    let Some(too_large) = fixture.features().too_large else { return };
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let large = Message::builder("orders").payload(vec![b'x'; too_large]);
    let mut batch = orders(3, &destination);
    batch[1] = written(large, &destination, Format::Binary);
    // One after the other where they cannot go together.
    let size = transport.capacity().batch.min(batch.len());
    let mut answers = Vec::new();
    for part in batch.chunks(size) {
        answers.extend(publish(&*transport, part).await);
    }
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{:?}", answers[1]);
    assert_eq!(received(&fixture, &destination, 2).await.len(), 2);
}

/// A retry sends the same id again: that is accepted, whether or not the other side tells the two apart.
pub async fn the_same_message_again_is_accepted<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let batch = orders(1, &destination);
    for _ in 0..3 {
        publish_all(&*transport, &batch).await;
    }
    let received = received(&fixture, &destination, 1).await;
    assert!(received.iter().all(|one| one.identity() == batch[0].id.to_string()));
}

/// Nothing in, nothing out.
pub async fn an_empty_batch_has_no_answers<F: TransportFixture>(fixture: F) {
    assert!(publish(&*fixture.transport().await, &[]).await.is_empty());
}
