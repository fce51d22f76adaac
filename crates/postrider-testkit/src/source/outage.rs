//! Unreachable servers, broken connections, crashes.

use super::{SourceFixture, helpers::*};
use crate::proxy::Fault;
use postrider_core::{Ack, SourceError};

/// No server listens: every call returns an error in bounded time.
pub async fn an_unreachable_server_is_unavailable<F: SourceFixture>(fixture: F) {
    let Some(source) = fixture.nobody_there().await else { return };
    for _ in 0..2 {
        let error = within_patience("receiving", source.receive(1)).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::Unavailable { .. }), "{error:?}");
    }
}

/// Messages in flight when the connection is cut are redelivered, and so are all later ones.
pub async fn a_cut_connection_loses_nothing<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let Some((proxy, source)) = fixture.through_proxy(&address).await else { return };
    let batch = orders(30, &address);
    fixture.send(&address, batch.clone()).await;
    let messages = receive(&*source, 10).await;
    ack(&*source, &messages[..1], Ack::Ack).await;
    proxy.cut();
    release(&*source, &messages[1..]).await;
    let wanted: Vec<_> = ids(&batch).into_iter().filter(|other| *other != id(&messages[0])).collect();
    finish(&*source, &wanted).await;
    within_patience("closing", source.close()).await;
    // Acks in flight when the connection was cut may be lost.
    assert_only_left(&fixture, &address, &ids(&batch)).await;
}

/// Acks that fail, or whose result is unknown, lose no message; the source continues. An ack would be in doubt, so all messages are
/// nacked: then each is redelivered, whatever the result of the call.
pub async fn an_ack_on_a_dead_connection_loses_nothing<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let Some((proxy, source)) = fixture.through_proxy(&address).await else { return };
    let batch = orders(10, &address);
    fixture.send(&address, batch.clone()).await;
    let messages = receive_all(&*source, 10).await;
    proxy.set(Fault::Refuse);
    proxy.cut();
    proxy.until(|counts| counts.open == 0).await;
    let acks: Vec<_> =
        messages.iter().map(|message| (message.ack_handle.clone(), Ack::REDELIVER_NOW)).collect();
    let reported = within_patience("acking", source.ack(&acks)).await;
    assert_eq!(reported.len(), acks.len(), "one result for each ack");
    proxy.set(Fault::None);
    let more = orders(5, &address);
    fixture.send(&address, more.clone()).await;
    finish(&*source, &[ids(&batch), ids(&more)].concat()).await;
}

/// A network that stalls for a while.
pub async fn a_stalled_connection_recovers<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let Some((proxy, source)) = fixture.through_proxy(&address).await else { return };
    let batch = orders(20, &address);
    fixture.send(&address, batch[..10].to_vec()).await;
    let messages = receive(&*source, 5).await;
    ack(&*source, &messages, Ack::Ack).await;
    proxy.set(Fault::Stall);
    fixture.send(&address, batch[10..].to_vec()).await;
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(1), source.receive(50)).await;
    proxy.set(Fault::None);
    let mut wanted = ids(&batch);
    wanted.retain(|other| !identities(&messages).contains(other));
    // Messages received just before the stall are acked like the rest.
    if let Ok(Ok(messages)) = waiting {
        ack(&*source, &messages, Ack::Ack).await;
        wanted.retain(|other| !identities(&messages).contains(other));
    }
    finish(&*source, &wanted).await;
}

/// The server crashes with messages in flight. They are redelivered, and the source reconnects by itself.
pub async fn a_server_crash_loses_nothing<F: SourceFixture>(fixture: F) {
    if !fixture.features().survives_restarts {
        return;
    }
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let batch = orders(30, &address);
    fixture.send(&address, batch.clone()).await;
    let messages = receive(&*source, 10).await;
    ack(&*source, &messages[..1], Ack::Ack).await;
    fixture.kill_and_restart().await;
    release(&*source, &messages[1..]).await;
    let wanted: Vec<_> = ids(&batch).into_iter().filter(|other| *other != id(&messages[0])).collect();
    finish(&*source, &wanted).await;
    let after = orders(5, &address);
    fixture.send(&address, after.clone()).await;
    finish(&*source, &ids(&after)).await;
}
