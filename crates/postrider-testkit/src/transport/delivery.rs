//! Messages arrive as they were sent.

use super::{Received, TransportFixture, helpers::*};
use postrider_core::{Format, Message, MessageBuilder};

fn full() -> MessageBuilder {
    Message::builder("orders")
        .event_type("order.placed")
        .key("order 17/ä")
        .tenant("acme")
        .header("color", "blue")
        .header("note", "a b\"c\" %41 ü €")
        .correlation_id("checkout-3")
        .causation_id("click-9")
        .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .content_type("application/octet-stream")
        .payload((0..=255).collect::<Vec<u8>>())
}

/// Every byte and every header arrives unchanged, in CloudEvents binary mode.
pub async fn body_and_headers_arrive_unchanged<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let sent = written(full(), &destination, Format::Binary);
    publish_all(&*transport, std::slice::from_ref(&sent)).await;
    let received = received(&fixture, &destination, 1).await.remove(0);
    assert_eq!(received.body, sent.body);
    assert_eq!(received.content_type.as_deref(), Some("application/octet-stream"));
    let attributes: Vec<_> =
        received.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut expected: Vec<_> = sent.attributes.iter().map(|(name, value)| (*name, value.as_str())).collect();
    expected.sort_unstable();
    assert_eq!(attributes, expected);
    for (name, value) in &sent.headers {
        assert_eq!(received.headers.get(name), Some(value), "header {name}");
    }
    assert_eq!(received.identity(), sent.id.to_string());
    if fixture.features().carries_key {
        assert_eq!(received.key.as_deref(), Some("order 17/ä"));
    }
}

/// The structured, plain and Debezium formats arrive as well, each with the message's identity.
pub async fn every_format_arrives<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    for (index, format) in [Format::Structured, Format::Plain, Format::Debezium].into_iter().enumerate() {
        let sent = written(order(index), &destination, format);
        publish_all(&*transport, std::slice::from_ref(&sent)).await;
        let received: Received = received(&fixture, &destination, index + 1).await.remove(index);
        assert_eq!(received.body, sent.body, "{format:?}");
        assert_eq!(received.content_type.as_deref(), Some(sent.content_type.as_str()), "{format:?}");
        for (name, value) in &sent.headers {
            assert_eq!(received.headers.get(name), Some(value), "{format:?}, header {name}");
        }
    }
}

/// The messages of a key arrive in the order of the batch, and of the batches.
pub async fn messages_of_a_key_arrive_in_order<F: TransportFixture>(fixture: F) {
    if !fixture.features().keeps_order {
        return;
    }
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let sent = orders(200, &destination);
    for batch in sent.chunks(transport.capacity().batch.min(50)) {
        publish_all(&*transport, batch).await;
    }
    let received = received(&fixture, &destination, sent.len()).await;
    for number in 0..5 {
        let key = format!("key-{number}");
        let of_key = |attribute: Option<&String>| attribute.is_some_and(|value| *value == key);
        let arrived = received.iter().filter(|one| of_key(one.attributes.get("partitionkey")));
        let expected = sent.iter().filter(|one| one.key.as_ref().is_some_and(|of| of.as_str() == key));
        let expected: Vec<_> = expected.map(|one| one.id.to_string()).collect();
        assert_eq!(arrived.map(|one| one.identity().to_owned()).collect::<Vec<_>>(), expected, "{key}");
    }
}

/// A batch of the transport's full capacity arrives.
pub async fn a_full_batch_arrives<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let sent = orders(transport.capacity().batch, &destination);
    publish_all(&*transport, &sent).await;
    let received = received(&fixture, &destination, sent.len()).await;
    assert_eq!(sorted(identities(&received)), sorted(ids(&sent)), "each once");
}

/// Empty bodies, control characters and long values arrive unchanged, or are rejected permanently: never altered, never retried
/// endlessly.
pub async fn unusual_values_arrive_or_are_rejected<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let awkward = [
        Message::builder("orders").payload(""),
        Message::builder("orders").payload(vec![0_u8; 3]),
        Message::builder("orders").payload("x").header("empty", ""),
        Message::builder("orders").payload("x").header("long", "v".repeat(4_000)),
        Message::builder("orders").payload("x").header("edges", " white space "),
        Message::builder("orders").payload("x").key("😀 key").header("emoji", "😀"),
    ];
    let sent: Vec<_> =
        awkward.into_iter().map(|builder| written(builder, &destination, Format::Binary)).collect();
    let mut accepted = Vec::new();
    for outgoing in &sent {
        match publish(&*transport, std::slice::from_ref(outgoing)).await.remove(0) {
            Ok(_) => accepted.push(outgoing),
            Err(postrider_core::PublishError::Reject { .. }) => {}
            Err(error) => panic!("neither accepted nor rejected permanently: {error}"),
        }
    }
    let received = received(&fixture, &destination, accepted.len()).await;
    for (sent, received) in accepted.into_iter().zip(&received) {
        assert_eq!(received.body, sent.body);
        for (name, value) in &sent.headers {
            assert_eq!(received.headers.get(name), Some(value), "header {name}");
        }
    }
}
