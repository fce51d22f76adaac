//! Several consumers of one place.

use super::{SourceFixture, helpers::*};
use postrider_core::Answer;
use std::collections::BTreeSet;

/// Who is alive keeps what it has: the other does not get it.
pub async fn two_consumers_get_nothing_twice<F: SourceFixture>(fixture: F) {
    if !fixture.features().shares {
        return;
    }
    let place = fixture.place().await;
    let (one, other) = (fixture.source(&place).await, fixture.source(&place).await);
    let batch = orders(40, &place);
    let mut came = Vec::new();
    // Both have joined, as a group's partitions need time to be shared out. One of the two may get nothing by chance.
    fixture.send(&place, batch.clone()).await;
    patiently("receiving everything", async {
        while came.len() < batch.len() {
            let (source, parcels) = tokio::select! {
                parcels = one.receive(7) => (&one, parcels.unwrap()),
                parcels = other.receive(7) => (&other, parcels.unwrap()),
            };
            came.extend(identities(&parcels));
            answer(&**source, &parcels, Answer::Done).await;
        }
    })
    .await;
    assert_eq!(sorted(came), sorted(ids(&batch)));
    patiently("closing", async { tokio::join!(one.close(), other.close()) }).await;
    nothing_is_left(&fixture, &place).await;
}

/// A consumer that is gone without a word: what it had is somebody else's after a while.
pub async fn what_a_dead_consumer_had_comes_to_another<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let dead = fixture.source(&place).await;
    let batch = orders(10, &place);
    fixture.send(&place, batch.clone()).await;
    let had = receive_all(&*dead, 10).await;
    assert_eq!(had.len(), 10);
    drop((dead, had));
    let heir = fixture.source(&place).await;
    let came: BTreeSet<_> = finish(&*heir, &ids(&batch)).await.into_iter().collect();
    assert_eq!(came, ids(&batch).into_iter().collect());
}

/// A consumer that stops in order.
pub async fn closing_gives_back_what_was_not_answered<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let batch = orders(10, &place);
    fixture.send(&place, batch.clone()).await;
    let parcels = receive_all(&*source, 10).await;
    // In the order of their lanes: what is in front is done.
    answer(&*source, &parcels[..4], Answer::Done).await;
    patiently("closing", source.close()).await;
    let heir = fixture.source(&place).await;
    let wanted = identities(&parcels[4..]);
    let came: BTreeSet<_> = finish(&*heir, &wanted).await.into_iter().collect();
    assert_eq!(came, wanted.into_iter().collect());
    patiently("closing", heir.close()).await;
    nothing_is_left(&fixture, &place).await;
}
