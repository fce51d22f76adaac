//! Messages that a retry cannot fix.

use super::{ConsumerFixture, helpers::*};
use postrider_core::{Format, Message, Reason, inspect::MessageRow};
use postrider_engine::{Context, Failure, worker::ErrorText};
use std::sync::Arc;

fn reason(entry: &MessageRow) -> Option<Reason> {
    entry.reason
}

/// A message without an identity cannot be deduplicated, so it is not handled at all. It is rejected, stored as it was received,
/// and blocks no other.
pub async fn an_unreadable_message_is_rejected_and_dead_lettered<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    fixture.send_bare("who am I?").await;
    fixture.send(orders(3, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 3 && report.dead >= 1).await;
    assert_eq!((report.dead, report.retried), (1, 0));
    let dead_letters = dead_letters(&fixture).await;
    assert_eq!(dead_letters.len(), 1);
    assert_eq!(reason(&dead_letters[0]), Some(Reason::Undecodable));
    assert_eq!(dead_letters[0].message.payload(), "who am I?");
    assert!(dead_letters[0].message.headers().get("postrider-origin").is_some());
}

/// The message can be read, but its payload cannot be decoded.
pub async fn an_undecodable_payload_is_dead_lettered<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let text = Message::builder("orders").payload("seventeen");
    let poison = written(text, &fixture.address(), Format::Binary);
    fixture.send(vec![poison.clone()]).await;
    fixture.send(orders(3, &fixture.address())).await;
    run_until::<F>(&consumer, |report| report.delivered == 3 && report.dead == 1).await;
    let dead_letters = dead_letters(&fixture).await;
    assert_eq!(
        (dead_letter_ids(&dead_letters), reason(&dead_letters[0])),
        (vec![poison.id], Some(Reason::Undecodable))
    );
    assert_eq!(effects(&fixture).await, [0, 1, 2]);
}

/// The handler rejects the message permanently.
pub async fn a_rejected_message_is_dead_lettered_with_its_origin<F: ConsumerFixture>(fixture: F) {
    let source = fixture.source().await;
    let origin = format!("{} {}", source.kind(), source.origin());
    let rejecting = |_| Err(Failure::reject("never").named("NoSuchCustomer"));
    let consumer = with_effect(billing_on(&fixture, source), &fixture, rejecting);
    let sent = orders(1, &fixture.address());
    fixture.send(sent.clone()).await;
    run_until::<F>(&consumer, |report| report.dead == 1).await;
    let dead_letters = dead_letters(&fixture).await;
    assert_eq!(
        (dead_letter_ids(&dead_letters), reason(&dead_letters[0])),
        (vec![sent[0].id], Some(Reason::Rejected))
    );
    assert_eq!(dead_letters[0].error.as_deref(), Some("NoSuchCustomer"));
    assert_eq!(dead_letters[0].message.headers().get("postrider-origin"), Some(origin.as_str()));
    assert_eq!(dead_letters[0].message.key(), sent[0].key.as_ref());
    assert!(effects(&fixture).await.is_empty());
}

/// The whole text of the error is stored, and it quotes binary data: the dead letter is written, and the message is acked.
pub async fn an_error_text_with_binary_data_is_dead_lettered<F: ConsumerFixture>(fixture: F) {
    let rejecting = |_| Err(Failure::reject("unknown code \"A\0B\"").named("NoSuchCode"));
    let full = ErrorText::Full(Arc::new(str::to_owned));
    let consumer = with_effect(billing(&fixture).await.error_text(full), &fixture, rejecting);
    fixture.send(orders(1, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.dead + report.retried > 0).await;
    assert_eq!((report.dead, report.retried), (1, 0));
    let dead_letters = dead_letters(&fixture).await;
    let error = dead_letters[0].error.as_deref().unwrap();
    assert!(error.starts_with("NoSuchCode: unknown code") && error.ends_with("B\""), "{error:?}");
}

/// A message is handled up to its delivery limit. Then it is dead-lettered, without being handled again.
pub async fn a_message_above_the_delivery_limit_is_dead_lettered_unhandled<F: ConsumerFixture>(fixture: F) {
    let runs = Times::default();
    let decide = {
        let runs = runs.clone();
        move |_| {
            runs.once_more();
            Err(Failure::retry("always"))
        }
    };
    let builder = billing(&fixture).await.max_deliveries(3);
    let consumer = with_effect(builder, &fixture, decide);
    let sent = orders(1, &fixture.address());
    fixture.send(sent.clone()).await;
    let report = run_until::<F>(&consumer, |report| report.dead == 1).await;
    assert_eq!((runs.get(), report.retried), (3, 3));
    let dead_letters = dead_letters(&fixture).await;
    assert_eq!(
        (dead_letter_ids(&dead_letters), reason(&dead_letters[0])),
        (vec![sent[0].id], Some(Reason::MaxDeliveries))
    );
    assert_eq!(dead_letters[0].deliveries, 4);
}

/// The type has no handler.
pub async fn a_message_of_an_unknown_type_is_dead_lettered<F: ConsumerFixture>(fixture: F) {
    struct Shipped;
    impl serde::Serialize for Shipped {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }
    impl<'de> serde::Deserialize<'de> for Shipped {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            <() as serde::Deserialize>::deserialize(deserializer).map(|()| Self)
        }
    }
    impl postrider_core::Event for Shipped {
        const TYPE: &'static str = "order.shipped";
        const QUEUE: &'static str = "orders";
        type Codec = postrider_core::Json;
    }
    let consumer = billing(&fixture)
        .await
        .on(|_: Shipped, _: HandlerTx<F>, _: Context| async { Ok::<(), Failure>(()) })
        .build()
        .unwrap();
    fixture.send(orders(1, &fixture.address())).await;
    run_until::<F>(&consumer, |report| report.dead == 1).await;
    assert_eq!(dead_letters(&fixture).await[0].error.as_deref(), Some("UnknownType"));
}
