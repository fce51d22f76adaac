//! Receiving.

use super::{SourceFixture, helpers::*};
use crate::transport::helpers::drop_after;
use postrider_core::{Ack, Format, Hlc, Message};

/// Every field that the relay sends is received in every format: payload, type, key, tenant, trail and headers.
pub async fn a_sent_message_is_received_unchanged<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
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
        let sent = written(message.clone(), &address, format);
        fixture.send(&address, vec![sent.clone()]).await;
        let received = receive_all(&*source, 1).await;
        let decoded = decoded(&received[0]);
        assert_eq!((decoded.id, decoded.source.as_deref()), (sent.id, Some("/shop")), "{format:?}");
        let (read, wanted) = (decoded.message, message.build().unwrap());
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
        ack(&*source, &received, Ack::Ack).await;
    }
}

/// Binary payloads are unchanged.
pub async fn binary_payloads_are_received_unchanged<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let message = Message::builder("orders").content_type("image/png").payload(bytes.clone());
    fixture.send(&address, vec![written(message, &address, Format::Binary)]).await;
    let received = receive_all(&*source, 1).await;
    assert_eq!(decoded(&received[0]).message.payload(), &bytes);
    assert_eq!(decoded(&received[0]).message.content_type(), "image/png");
    ack(&*source, &received, Ack::Ack).await;
}

/// A call returns no more messages than its limit, and the rest later.
pub async fn receive_returns_at_most_its_limit<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let batch = orders(20, &address);
    fixture.send(&address, batch.clone()).await;
    let mut came = Vec::new();
    while came.len() < batch.len() {
        let messages = receive(&*source, 3).await;
        ack(&*source, &messages, Ack::Ack).await;
        came.extend(identities(&messages));
    }
    assert_eq!(sorted(came), sorted(ids(&batch)));
}

/// A call on an empty address waits, and returns the next message.
pub async fn a_waiting_receive_returns_when_a_message_arrives<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let batch = orders(1, &address);
    let (received, ()) = tokio::join!(receive(&*source, 10), async {
        tokio::task::yield_now().await;
        fixture.send(&address, batch.clone()).await;
    });
    assert_eq!(identities(&received), ids(&batch));
    ack(&*source, &received, Ack::Ack).await;
}

/// A call that is cancelled at any await loses nothing.
pub async fn a_cancelled_receive_loses_nothing<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    let mut wanted = Vec::new();
    for polls in 1..8 {
        let batch = orders(3, &address);
        fixture.send(&address, batch.clone()).await;
        wanted.extend(ids(&batch));
        if let Some(Ok(messages)) = drop_after(source.receive(2), polls).await {
            ack(&*source, &messages, Ack::REDELIVER_NOW).await;
        }
    }
    finish(&*source, &wanted).await;
}

/// A message of a sender that does not know Postrider is received, if the protocol has a field for an identity.
pub async fn a_message_without_metadata_has_the_identity_of_its_wire<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send_bare(&address, fixture.features().carries_id.then_some("A-1"), "17").await;
    let received = receive(&*source, 10).await;
    assert_eq!(received[0].incoming.body, "17");
    if fixture.features().carries_id {
        assert_eq!(received[0].incoming.id.as_deref(), Some("A-1"));
        assert_eq!(decoded(&received[0]).message.payload(), "17");
    }
    ack(&*source, &received, Ack::Reject).await;
}

/// If deliveries are counted, the first is number one.
pub async fn the_first_delivery_has_count_one<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(1, &address)).await;
    let received = receive(&*source, 1).await;
    assert_eq!(received[0].deliveries, source.capabilities().counts_deliveries.then_some(1));
    ack(&*source, &received, Ack::Ack).await;
}
