//! The effect of an ack, nack or reject.

use super::{SourceFixture, helpers::*};
use postrider_core::Ack;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// An acked message is settled for every consumer.
pub async fn an_acked_message_is_not_redelivered<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, loose_orders(20, &address)).await;
    ack(&*source, &receive_all(&*source, 20).await, Ack::Ack).await;
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// A nacked message is redelivered, and counted if the source counts deliveries.
pub async fn a_nacked_message_is_redelivered<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let batch = orders(1, &address);
    fixture.send(&address, batch.clone()).await;
    for times in 1..4 {
        let received = receive(&*source, 10).await;
        assert_eq!(identities(&received), ids(&batch));
        assert_eq!(decoded(&received[0]).message.payload(), &batch[0].body);
        assert_eq!(received[0].deliveries, source.capabilities().counts_deliveries.then_some(times));
        ack(&*source, &received, Ack::REDELIVER_NOW).await;
    }
    finish(&*source, &ids(&batch)).await;
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// If the source supports delays, a message is not redelivered before its time.
pub async fn a_nack_delay_is_kept<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    if source.capabilities().max_delay.is_none() {
        return;
    }
    fixture.send(&address, orders(1, &address)).await;
    let received = receive(&*source, 1).await;
    let after = Duration::from_secs(2);
    let answered = Instant::now();
    ack(&*source, &received, Ack::Nack { after }).await;
    let again = receive(&*source, 1).await;
    assert!(answered.elapsed() >= after, "it came after {:?}", answered.elapsed());
    assert_eq!(identities(&again), identities(&received));
    ack(&*source, &again, Ack::Ack).await;
}

/// A rejected message is gone from this address.
pub async fn a_rejected_message_is_not_redelivered<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(5, &address)).await;
    ack(&*source, &receive_all(&*source, 5).await, Ack::Reject).await;
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// Acks of several kinds in one batch do not interfere.
pub async fn every_ack_applies_to_its_own_message<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, loose_orders(12, &address)).await;
    let messages = receive_all(&*source, 12).await;
    let kinds = [Ack::Ack, Ack::REDELIVER_NOW, Ack::Reject];
    // By lane, so that no message is redelivered ahead of an acked one.
    let mut lanes = Vec::new();
    let acks: Vec<_> = messages
        .iter()
        .enumerate()
        .map(|(number, message)| {
            let lane = message.lane.map_or(number as u64, postrider_core::LaneId::number);
            let address = lanes.iter().position(|known| *known == lane).unwrap_or_else(|| {
                lanes.push(lane);
                lanes.len() - 1
            });
            (message.ack_handle.clone(), kinds[address % 3])
        })
        .collect();
    for reported in within_patience("acking", source.ack(&acks)).await {
        reported.unwrap();
    }
    let again = |(message, (_, ack)): (_, &(_, Ack))| (*ack == Ack::REDELIVER_NOW).then(|| id(message));
    let wanted: Vec<_> = messages.iter().zip(&acks).filter_map(again).collect();
    assert!(!wanted.is_empty() && wanted.len() < 12);
    let came: BTreeSet<_> = finish(&*source, &wanted).await.into_iter().collect();
    assert_eq!(came, wanted.into_iter().collect(), "others came again, too");
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// One by one and from the last to the first, as handlers finish.
pub async fn acks_work_in_any_order<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, loose_orders(20, &address)).await;
    let mut messages = receive_all(&*source, 20).await;
    messages.reverse();
    for message in messages {
        ack(&*source, &[message], Ack::Ack).await;
    }
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// The second ack is reported as late, or does nothing. Other messages in flight stay in flight and are unaffected.
pub async fn a_second_ack_is_harmless<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(10, &address)).await;
    let messages = receive_all(&*source, 10).await;
    let (done, others) = messages.split_at(5);
    ack(&*source, done, Ack::Ack).await;
    for with in [Ack::Ack, Ack::REDELIVER_NOW, Ack::Reject] {
        let acks: Vec<_> = done.iter().map(|message| (message.ack_handle.clone(), with)).collect();
        let reported = within_patience("acking", source.ack(&acks)).await;
        assert_eq!(reported.len(), acks.len());
    }
    ack(&*source, others, Ack::Ack).await;
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// If there is an ack deadline, it can be extended.
pub async fn an_extended_message_is_not_redelivered<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(3, &address)).await;
    let messages = receive_all(&*source, 3).await;
    let tickets: Vec<_> = messages.iter().map(|message| message.ack_handle.clone()).collect();
    for _ in 0..3 {
        let reported = within_patience("extending", source.extend(&tickets)).await;
        assert_eq!(reported.len(), tickets.len());
        for result in reported {
            result.unwrap();
        }
    }
    ack(&*source, &messages, Ack::Ack).await;
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}

/// An empty batch succeeds.
pub async fn an_empty_ack_batch_succeeds<F: SourceFixture>(fixture: F) {
    let source = fixture.source(&fixture.address().await).await;
    assert!(within_patience("acking", source.ack(&[])).await.is_empty());
    assert!(within_patience("extending", source.extend(&[])).await.is_empty());
}
