//! What becomes of a message after it was answered.

use super::{SourceFixture, helpers::*};
use postrider_core::Answer;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// What is done is done with, for every consumer.
pub async fn what_is_done_never_comes_again<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, loose_orders(20, &place)).await;
    answer(&*source, &receive_all(&*source, 20).await, Answer::Done).await;
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// The same message comes again, and is counted where that is known.
pub async fn what_is_to_come_again_does<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let batch = orders(1, &place);
    fixture.send(&place, batch.clone()).await;
    for times in 1..4 {
        let received = receive(&*source, 10).await;
        assert_eq!(identities(&received), ids(&batch));
        assert_eq!(letter(&received[0]).message.payload(), &batch[0].body);
        assert_eq!(received[0].deliveries, source.abilities().counts.then_some(times));
        answer(&*source, &received, Answer::AT_ONCE).await;
    }
    finish(&*source, &ids(&batch)).await;
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// Where the other side can delay, a message does not come again before its time.
pub async fn a_delay_is_kept<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    if source.abilities().delays.is_none() {
        return;
    }
    fixture.send(&place, orders(1, &place)).await;
    let received = receive(&*source, 1).await;
    let after = Duration::from_secs(2);
    let answered = Instant::now();
    answer(&*source, &received, Answer::Again { after }).await;
    let again = receive(&*source, 1).await;
    assert!(answered.elapsed() >= after, "it came after {:?}", answered.elapsed());
    assert_eq!(identities(&again), identities(&received));
    answer(&*source, &again, Answer::Done).await;
}

/// What is refused is gone from here.
pub async fn what_is_refused_never_comes_again<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(5, &place)).await;
    answer(&*source, &receive_all(&*source, 5).await, Answer::Refuse).await;
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// Answers of several kinds in one batch do not run into each other.
pub async fn every_answer_is_for_its_own_message<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, loose_orders(12, &place)).await;
    let parcels = receive_all(&*source, 12).await;
    let kinds = [Answer::Done, Answer::AT_ONCE, Answer::Refuse];
    // By lane, so that nothing comes again in front of what is done.
    let mut lanes = Vec::new();
    let answers: Vec<_> = parcels
        .iter()
        .enumerate()
        .map(|(number, parcel)| {
            let lane = parcel.lane.map_or(number as u64, postrider_core::Lane::number);
            let place = lanes.iter().position(|known| *known == lane).unwrap_or_else(|| {
                lanes.push(lane);
                lanes.len() - 1
            });
            (parcel.ticket.clone(), kinds[place % 3])
        })
        .collect();
    for told in patiently("answering", source.answer(&answers)).await {
        told.unwrap();
    }
    let again = |(parcel, (_, answer)): (_, &(_, Answer))| (*answer == Answer::AT_ONCE).then(|| id(parcel));
    let wanted: Vec<_> = parcels.iter().zip(&answers).filter_map(again).collect();
    assert!(!wanted.is_empty() && wanted.len() < 12);
    let came: BTreeSet<_> = finish(&*source, &wanted).await.into_iter().collect();
    assert_eq!(came, wanted.into_iter().collect(), "others came again, too");
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// One by one and from the last to the first, as handlers end.
pub async fn answers_may_come_in_any_order<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, loose_orders(20, &place)).await;
    let mut parcels = receive_all(&*source, 20).await;
    parcels.reverse();
    for parcel in parcels {
        answer(&*source, &[parcel], Answer::Done).await;
    }
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// The second answer is told to be late, or does nothing. Others that are in hand stay there, and go on as if nothing had happened.
pub async fn answering_twice_harms_nobody<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(10, &place)).await;
    let parcels = receive_all(&*source, 10).await;
    let (done, others) = parcels.split_at(5);
    answer(&*source, done, Answer::Done).await;
    for with in [Answer::Done, Answer::AT_ONCE, Answer::Refuse] {
        let answers: Vec<_> = done.iter().map(|parcel| (parcel.ticket.clone(), with)).collect();
        let told = patiently("answering", source.answer(&answers)).await;
        assert_eq!(told.len(), answers.len());
    }
    answer(&*source, others, Answer::Done).await;
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// Where messages are lent for a time only, more can be had.
pub async fn what_is_extended_is_still_ours<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(3, &place)).await;
    let parcels = receive_all(&*source, 3).await;
    let tickets: Vec<_> = parcels.iter().map(|parcel| parcel.ticket.clone()).collect();
    for _ in 0..3 {
        let told = patiently("extending", source.extend(&tickets)).await;
        assert_eq!(told.len(), tickets.len());
        for result in told {
            result.unwrap();
        }
    }
    answer(&*source, &parcels, Answer::Done).await;
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}

/// Nothing to say is nothing to fail at.
pub async fn no_answers_are_no_trouble<F: SourceFixture>(fixture: F) {
    let source = fixture.source(&fixture.place().await).await;
    assert!(patiently("answering", source.answer(&[])).await.is_empty());
    assert!(patiently("extending", source.extend(&[])).await.is_empty());
}
