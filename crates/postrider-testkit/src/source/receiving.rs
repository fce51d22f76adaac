//! What is received, and when.

use super::{SourceFixture, helpers::*};
use crate::transport::helpers::drop_after;
use postrider_core::{Answer, Format, Hlc, Message};

/// Whatever the relay sends arrives in every format: payload, type, key, tenant, trail and headers.
pub async fn what_was_sent_is_read_as_it_was<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    for format in [Format::Binary, Format::Structured, Format::Plain] {
        let message = Message::builder("orders")
            .event_type("order.placed")
            .key("order-17")
            .tenant("acme")
            .subject("customer 3")
            .correlation_id("request-1")
            .causation_id("message-0")
            .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
            .hlc(Hlc::from_bits(1_784_021_400_123 << 16 | 7))
            .header("color", "blue")
            .json(&17);
        let sent = written(message.clone(), &place, format);
        fixture.send(&place, vec![sent.clone()]).await;
        let received = receive_all(&*source, 1).await;
        let letter = letter(&received[0]);
        assert_eq!((letter.id, letter.source.as_deref()), (sent.id, Some("/shop")), "{format:?}");
        let (read, wanted) = (letter.message, message.build().unwrap());
        assert_eq!(read.payload(), wanted.payload(), "{format:?}");
        assert_eq!(read.content_type(), wanted.content_type(), "{format:?}");
        assert_eq!(read.event_type(), wanted.event_type(), "{format:?}");
        assert_eq!(
            (read.key(), read.tenant(), read.subject()),
            (wanted.key(), wanted.tenant(), wanted.subject())
        );
        assert_eq!(read.trail(), wanted.trail(), "{format:?}");
        // Brokers add headers of their own.
        assert_eq!(read.headers().get("color"), Some("blue"), "{format:?}");
        assert_eq!(received[0].incoming.origin, source.origin(), "{format:?}");
        answer(&*source, &received, Answer::Done).await;
    }
}

/// Bytes that are no text stay as they are.
pub async fn bytes_arrive_as_they_were<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let message = Message::builder("orders").content_type("image/png").payload(bytes.clone());
    fixture.send(&place, vec![written(message, &place, Format::Binary)]).await;
    let received = receive_all(&*source, 1).await;
    assert_eq!(letter(&received[0]).message.payload(), &bytes);
    assert_eq!(letter(&received[0]).message.content_type(), "image/png");
    answer(&*source, &received, Answer::Done).await;
}

/// However much there is, a call gives no more than it was asked for, and the rest comes later.
pub async fn no_more_comes_than_was_asked_for<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let batch = orders(20, &place);
    fixture.send(&place, batch.clone()).await;
    let mut came = Vec::new();
    while came.len() < batch.len() {
        let parcels = receive(&*source, 3).await;
        answer(&*source, &parcels, Answer::Done).await;
        came.extend(identities(&parcels));
    }
    assert_eq!(sorted(came), sorted(ids(&batch)));
}

/// A call waits where there is nothing, and gives what then comes.
pub async fn waiting_ends_when_something_comes<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let batch = orders(1, &place);
    let (received, ()) = tokio::join!(receive(&*source, 10), async {
        tokio::task::yield_now().await;
        fixture.send(&place, batch.clone()).await;
    });
    assert_eq!(identities(&received), ids(&batch));
    answer(&*source, &received, Answer::Done).await;
}

/// A call that is dropped at any await takes nothing along.
pub async fn a_dropped_call_loses_nothing<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    let mut wanted = Vec::new();
    for polls in 1..8 {
        let batch = orders(3, &place);
        fixture.send(&place, batch.clone()).await;
        wanted.extend(ids(&batch));
        if let Some(Ok(parcels)) = drop_after(source.receive(2), polls).await {
            answer(&*source, &parcels, Answer::AT_ONCE).await;
        }
    }
    finish(&*source, &wanted).await;
}

/// Somebody who knows nothing of events can be received, too, if the wire has a place for an identity.
pub async fn a_bare_message_has_the_identity_of_its_wire<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send_bare(&place, fixture.features().carries_id.then_some("A-1"), "17").await;
    let received = receive(&*source, 10).await;
    assert_eq!(received[0].incoming.body, "17");
    if fixture.features().carries_id {
        assert_eq!(received[0].incoming.id.as_deref(), Some("A-1"));
        assert_eq!(letter(&received[0]).message.payload(), "17");
    }
    answer(&*source, &received, Answer::Refuse).await;
}

/// Where deliveries are counted, the first is number one.
pub async fn the_first_delivery_is_counted_as_one<F: SourceFixture>(fixture: F) {
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(1, &place)).await;
    let received = receive(&*source, 1).await;
    assert_eq!(received[0].deliveries, source.abilities().counts.then_some(1));
    answer(&*source, &received, Answer::Done).await;
}
