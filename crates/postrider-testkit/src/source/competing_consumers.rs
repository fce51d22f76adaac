//! Several consumers of one address.

use super::{SourceFixture, helpers::*};
use postrider_core::Ack;
use std::collections::BTreeSet;

/// A live consumer keeps its messages: the other does not receive them.
pub async fn two_consumers_receive_no_duplicates<F: SourceFixture>(fixture: F) {
    if !fixture.features().shares {
        return;
    }
    let address = fixture.address().await;
    let (one, other) = (fixture.source(&address).await, fixture.source(&address).await);
    let batch = orders(40, &address);
    let mut came = Vec::new();
    // Both have joined, since the partitions of a group are assigned with a delay. One of the two may receive nothing by chance.
    fixture.send(&address, batch.clone()).await;
    within_patience("receiving everything", async {
        while came.len() < batch.len() {
            let (source, messages) = tokio::select! {
                messages = one.receive(7) => (&one, messages.unwrap()),
                messages = other.receive(7) => (&other, messages.unwrap()),
            };
            came.extend(identities(&messages));
            ack(&**source, &messages, Ack::Ack).await;
        }
    })
    .await;
    assert_eq!(sorted(came), sorted(ids(&batch)));
    within_patience("closing", async { tokio::join!(one.close(), other.close()) }).await;
    assert_nothing_left(&fixture, &address).await;
}

/// A consumer is dropped without closing: its messages are redelivered to another after a while.
pub async fn messages_of_a_dead_consumer_are_redelivered_to_another<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let dead = fixture.source(&address).await;
    let batch = orders(10, &address);
    fixture.send(&address, batch.clone()).await;
    let had = receive_all(&*dead, 10).await;
    assert_eq!(had.len(), 10);
    drop((dead, had));
    let heir = fixture.source(&address).await;
    let came: BTreeSet<_> = finish(&*heir, &ids(&batch)).await.into_iter().collect();
    assert_eq!(came, ids(&batch).into_iter().collect());
}

/// A consumer that closes gracefully.
pub async fn close_releases_unacked_messages<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let batch = orders(10, &address);
    fixture.send(&address, batch.clone()).await;
    let messages = receive_all(&*source, 10).await;
    // In the order of their lanes: the first ones are acked.
    ack(&*source, &messages[..4], Ack::Ack).await;
    within_patience("closing", source.close()).await;
    let heir = fixture.source(&address).await;
    let wanted = identities(&messages[4..]);
    let came: BTreeSet<_> = finish(&*heir, &wanted).await.into_iter().collect();
    assert_eq!(came, wanted.into_iter().collect());
    within_patience("closing", heir.close()).await;
    assert_nothing_left(&fixture, &address).await;
}
