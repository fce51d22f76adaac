//! Servers that are not there, connections that break, crashes.

use super::{SourceFixture, helpers::*};
use crate::proxy::Fault;
use postrider_core::{Answer, SourceError};

/// Nobody listens: that is told within a bound, again and again.
pub async fn nobody_there_is_down<F: SourceFixture>(fixture: F) {
    let Some(source) = fixture.nobody_there().await else { return };
    for _ in 0..2 {
        let error = patiently("receiving", source.receive(1)).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::Down { .. }), "{error:?}");
    }
}

/// What was in hand when the connection was cut comes again, and so does everything after it.
pub async fn a_cut_connection_loses_nothing<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let Some((proxy, source)) = fixture.through_proxy(&place).await else { return };
    let batch = orders(30, &place);
    fixture.send(&place, batch.clone()).await;
    let parcels = receive(&*source, 10).await;
    answer(&*source, &parcels[..1], Answer::Done).await;
    proxy.cut();
    hand_back(&*source, &parcels[1..]).await;
    let wanted: Vec<_> = ids(&batch).into_iter().filter(|other| *other != id(&parcels[0])).collect();
    finish(&*source, &wanted).await;
    patiently("closing", source.close()).await;
    // Answers that were on the way when it was cut may be lost.
    nothing_is_left_but(&fixture, &place, &ids(&batch)).await;
}

/// Answers that do not get through, or that nobody knows of, lose nothing; the source goes on. What was done would be in doubt, so
/// all is to come again: then it does, whatever became of the answer.
pub async fn an_answer_into_nowhere_loses_nothing<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let Some((proxy, source)) = fixture.through_proxy(&place).await else { return };
    let batch = orders(10, &place);
    fixture.send(&place, batch.clone()).await;
    let parcels = receive_all(&*source, 10).await;
    proxy.set(Fault::Refuse);
    proxy.cut();
    proxy.until(|counts| counts.open == 0).await;
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), Answer::AT_ONCE)).collect();
    let told = patiently("answering", source.answer(&answers)).await;
    assert_eq!(told.len(), answers.len(), "one result for each answer");
    proxy.set(Fault::None);
    let more = orders(5, &place);
    fixture.send(&place, more.clone()).await;
    finish(&*source, &[ids(&batch), ids(&more)].concat()).await;
}

/// A network that is silent for a while.
pub async fn what_stalls_goes_on<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let Some((proxy, source)) = fixture.through_proxy(&place).await else { return };
    let batch = orders(20, &place);
    fixture.send(&place, batch[..10].to_vec()).await;
    let parcels = receive(&*source, 5).await;
    answer(&*source, &parcels, Answer::Done).await;
    proxy.set(Fault::Stall);
    fixture.send(&place, batch[10..].to_vec()).await;
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(1), source.receive(50)).await;
    proxy.set(Fault::None);
    let mut wanted = ids(&batch);
    wanted.retain(|other| !identities(&parcels).contains(other));
    // What a call gave, just before the silence, is answered like the rest.
    if let Ok(Ok(parcels)) = waiting {
        answer(&*source, &parcels, Answer::Done).await;
        wanted.retain(|other| !identities(&parcels).contains(other));
    }
    finish(&*source, &wanted).await;
}

/// The server dies with messages in hand. They come again, and the source finds its way by itself.
pub async fn a_crash_loses_nothing<F: SourceFixture>(fixture: F) {
    if !fixture.features().survives_restarts {
        return;
    }
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let batch = orders(30, &place);
    fixture.send(&place, batch.clone()).await;
    let parcels = receive(&*source, 10).await;
    answer(&*source, &parcels[..1], Answer::Done).await;
    fixture.kill_and_restart().await;
    hand_back(&*source, &parcels[1..]).await;
    let wanted: Vec<_> = ids(&batch).into_iter().filter(|other| *other != id(&parcels[0])).collect();
    finish(&*source, &wanted).await;
    let after = orders(5, &place);
    fixture.send(&place, after.clone()).await;
    finish(&*source, &ids(&after)).await;
}
