//! What the cases share.

use super::SourceFixture;
pub(super) use crate::transport::helpers::{ids, orders, patiently, sorted, written};
use postrider_core::{Answer, Format, Letter, Message, Outgoing, Parcel, QueueName, Source};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::timeout;

/// Longer than any of the fixtures lets a message be in hand.
const COMES_AGAIN: Duration = Duration::from_secs(20);

/// So many orders without a key: all of them can be in hand at once, wherever the next of a key waits for the one before.
pub(super) fn loose_orders(count: usize, place: &str) -> Vec<Outgoing> {
    let order = |number| Message::builder("orders").event_type("order.placed").json(&number);
    (0..count).map(|number| written(order(number), place, Format::Binary)).collect()
}

/// What a parcel says.
pub(super) fn letter(parcel: &Parcel) -> Letter {
    let queue = QueueName::new("orders").unwrap();
    parcel.incoming.read(&queue).unwrap_or_else(|error| panic!("{:?}: {error}", parcel.incoming))
}

/// The identity of a parcel.
pub(super) fn id(parcel: &Parcel) -> String {
    letter(parcel).id.to_string()
}

pub(super) fn identities(parcels: &[Parcel]) -> Vec<String> {
    parcels.iter().map(id).collect()
}

/// Receives, within a bound.
pub(super) async fn receive(source: &dyn Source, most: usize) -> Vec<Parcel> {
    let received = patiently("receiving", source.receive(most)).await;
    let parcels = received.unwrap_or_else(|error| panic!("receiving: {error}"));
    assert!(
        !parcels.is_empty() && parcels.len() <= most,
        "{} parcels instead of up to {most}",
        parcels.len()
    );
    parcels
}

/// Receives until there are so many different messages; what comes twice is answered with `Done` on the way.
pub(super) async fn receive_all(source: &dyn Source, count: usize) -> Vec<Parcel> {
    let (mut parcels, mut seen) = (Vec::new(), BTreeSet::new());
    while parcels.len() < count {
        for parcel in receive(source, count).await {
            if seen.insert(id(&parcel)) {
                parcels.push(parcel);
            } else {
                answer(source, &[parcel], Answer::Done).await;
            }
        }
    }
    parcels
}

/// Answers all in the same way, which must be possible.
pub(super) async fn answer(source: &dyn Source, parcels: &[Parcel], with: Answer) {
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), with)).collect();
    let told = patiently("answering", source.answer(&answers)).await;
    assert_eq!(told.len(), answers.len(), "one result for each answer");
    for result in told {
        result.unwrap_or_else(|error| panic!("answering with {with:?}: {error}"));
    }
}

/// Where nothing lapses, what is in hand stays there though connections break: it is handed back. Where a connection was all that held it,
/// that is told to be late, and it comes again by itself.
pub(super) async fn hand_back(source: &dyn Source, parcels: &[Parcel]) {
    if source.abilities().holds_for.is_none() {
        let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), Answer::AT_ONCE)).collect();
        patiently("handing back", source.answer(&answers)).await;
    }
}

/// Receives and answers with `Done` until all of `wanted` have been, over connections that may break, and tells what came.
///
/// Nobody knows whether an answer got through that was not confirmed. If such a message does not come again for long, it did.
pub(super) async fn finish(source: &dyn Source, wanted: &[String]) -> Vec<String> {
    let mut came = Vec::new();
    patiently("receiving everything", async {
        let mut missing: BTreeSet<_> = wanted.iter().cloned().collect();
        let mut doubtful = BTreeSet::new();
        while !missing.is_empty() {
            let within = if missing.is_subset(&doubtful) { COMES_AGAIN } else { Duration::MAX };
            let Ok(received) = timeout(within, source.receive(50)).await else { return };
            let Ok(parcels) = received else {
                tokio::task::yield_now().await;
                continue;
            };
            let answers: Vec<_> =
                parcels.iter().map(|parcel| (parcel.ticket.clone(), Answer::Done)).collect();
            for (told, parcel) in source.answer(&answers).await.into_iter().zip(&parcels) {
                came.push(id(parcel));
                if told.is_ok() {
                    missing.remove(&id(parcel));
                } else {
                    doubtful.insert(id(parcel));
                }
            }
        }
    })
    .await;
    came
}

/// Sends one more message, and checks that nothing but it comes: what came before is done with.
pub(super) async fn nothing_is_left<F: SourceFixture>(fixture: &F, place: &str) {
    let source = fixture.source(place).await;
    let last = orders(1, place);
    fixture.send(place, last.clone()).await;
    assert_eq!(identities(&receive_all(&*source, 1).await), ids(&last), "something else came again");
    patiently("closing", source.close()).await;
}

/// Sends one more message, and checks that nothing comes but it and, perhaps, some of `lost`: those whose answers got lost on the way.
pub(super) async fn nothing_is_left_but<F: SourceFixture>(fixture: &F, place: &str, lost: &[String]) {
    let source = fixture.source(place).await;
    let last = orders(1, place);
    fixture.send(place, last.clone()).await;
    let mut came = finish(&*source, &ids(&last)).await;
    came.retain(|id| !lost.contains(id) && *id != last[0].id.to_string());
    assert!(came.is_empty(), "something else came: {came:?}");
    patiently("closing", source.close()).await;
}
