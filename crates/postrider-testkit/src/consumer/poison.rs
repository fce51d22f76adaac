//! What is of no use to try again.

use super::{ConsumerFixture, helpers::*};
use postrider_core::{Format, Message, Reason, inspect::Entry};
use postrider_engine::{Context, Failure};

fn reason(entry: &Entry) -> Option<Reason> {
    entry.reason
}

/// What names no identity cannot be handled once, so it is not handled at all. It is told to be of no use, kept as it came, and
/// keeps nobody waiting.
pub async fn what_cannot_be_read_is_refused_and_kept<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    fixture.send_bare("who am I?").await;
    fixture.send(orders(3, &fixture.place())).await;
    let consumed =
        run_until::<F>(&consumer, |consumed| consumed.processed == 3 && consumed.parked >= 1).await;
    assert_eq!((consumed.parked, consumed.failed), (1, 0));
    let parked = parked(&fixture).await;
    assert_eq!(parked.len(), 1);
    assert_eq!(reason(&parked[0]), Some(Reason::Undecodable));
    assert_eq!(parked[0].message.payload(), "who am I?");
    assert!(parked[0].message.headers().get("postrider-origin").is_some());
}

/// The message can be read, and its payload cannot.
pub async fn a_payload_that_cannot_be_decoded_is_parked<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let text = Message::builder("orders").payload("seventeen");
    let poison = written(text, &fixture.place(), Format::Binary);
    fixture.send(vec![poison.clone()]).await;
    fixture.send(orders(3, &fixture.place())).await;
    run_until::<F>(&consumer, |consumed| consumed.processed == 3 && consumed.parked == 1).await;
    let parked = parked(&fixture).await;
    assert_eq!((parked_ids(&parked), reason(&parked[0])), (vec![poison.id], Some(Reason::Undecodable)));
    assert_eq!(effects(&fixture).await, [0, 1, 2]);
}

/// The handler says that it will never succeed.
pub async fn a_rejected_message_is_parked_with_its_origin<F: ConsumerFixture>(fixture: F) {
    let source = fixture.source().await;
    let origin = format!("{} {}", source.kind(), source.origin());
    let rejecting = |_| Err(Failure::reject("never").named("NoSuchCustomer"));
    let consumer = with_effect(billing_on(&fixture, source), &fixture, rejecting);
    let sent = orders(1, &fixture.place());
    fixture.send(sent.clone()).await;
    run_until::<F>(&consumer, |consumed| consumed.parked == 1).await;
    let parked = parked(&fixture).await;
    assert_eq!((parked_ids(&parked), reason(&parked[0])), (vec![sent[0].id], Some(Reason::Rejected)));
    assert_eq!(parked[0].error.as_deref(), Some("NoSuchCustomer"));
    assert_eq!(parked[0].message.headers().get("postrider-origin"), Some(origin.as_str()));
    assert_eq!(parked[0].message.key(), sent[0].key.as_ref());
    assert!(effects(&fixture).await.is_empty());
}

/// A message runs as often as it may be delivered. Then it is parked, without being run once more.
pub async fn at_the_limit_it_runs_and_above_it_is_parked_unrun<F: ConsumerFixture>(fixture: F) {
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
    let sent = orders(1, &fixture.place());
    fixture.send(sent.clone()).await;
    let consumed = run_until::<F>(&consumer, |consumed| consumed.parked == 1).await;
    assert_eq!((runs.get(), consumed.failed), (3, 3));
    let parked = parked(&fixture).await;
    assert_eq!((parked_ids(&parked), reason(&parked[0])), (vec![sent[0].id], Some(Reason::MaxDeliveries)));
    assert_eq!(parked[0].deliveries, 4);
}

/// No handler is for it, and none will be until somebody writes one.
pub async fn a_message_of_an_unknown_type_is_parked<F: ConsumerFixture>(fixture: F) {
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
        .on(|_: Shipped, _: Lent<F>, _: Context| async { Ok::<(), Failure>(()) })
        .build()
        .unwrap();
    fixture.send(orders(1, &fixture.place())).await;
    run_until::<F>(&consumer, |consumed| consumed.parked == 1).await;
    assert_eq!(parked(&fixture).await[0].error.as_deref(), Some("UnknownType"));
}
