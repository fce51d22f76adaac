//! A message exists if and only if the transaction that staged it committed (promise 1).

use super::helpers::*;
use crate::Fixture;
use bytes::Bytes;
use postrider_core::{
    Codec, CodecError, Error, Event, FollowUp, FollowUpExt, IntoMessage, Message, Outbox, OutboxExt, Problem,
    Reference, StageOutcome, StageReport, TenantId, follow_up, inspect::StateFilter,
};

/// Promises 1 and 2: a rolled-back message is in no state and is never delivered.
pub async fn a_rolled_back_message_never_exists<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().stage_all(&mut tx, &numbered("orders", 3)).await.unwrap();
    assert_eq!(staged.new_messages(), 3);
    fixture.rollback(tx).await;

    assert_nothing_due(&fixture.store(), "orders").await;
    assert_empty(&fixture, "orders").await;
}

/// Promises 1 and 2: a committed message exists once, and is delivered once.
pub async fn a_committed_message_exists_exactly_once<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, message("orders")).await;

    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Ready).await), [id]);
    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
    assert_empty(&fixture, "orders").await;
}

/// Promise 1: a message cannot be claimed before the commit, not even while the transaction is open.
pub async fn an_uncommitted_message_cannot_be_claimed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut tx = fixture.begin().await;
    let id = fixture.outbox().stage(&mut tx, message("orders")).await.unwrap().id();
    assert_nothing_due(&store, "orders").await;
    fixture.commit(tx).await;

    assert_eq!(Some(claim_one(&store, "orders").await.id()), id);
}

/// Promise 1: rolling back to a savepoint removes the messages staged after it, and nothing else.
pub async fn a_rolled_back_savepoint_removes_only_later_messages<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let mut tx = fixture.begin().await;
    outbox.stage(&mut tx, message("orders").payload("before")).await.unwrap();
    fixture.savepoint(&mut tx).await;
    outbox.stage(&mut tx, message("orders").payload("undone")).await.unwrap();
    fixture.rollback_to_savepoint(&mut tx).await;
    outbox.stage(&mut tx, message("orders").payload("after")).await.unwrap();
    fixture.commit(tx).await;

    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["before", "after"]);
}

/// Promise 1: rolling back the whole transaction removes messages from before and after a kept savepoint.
pub async fn a_rolled_back_transaction_rolls_back_its_savepoints<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let mut tx = fixture.begin().await;
    outbox.stage(&mut tx, message("orders")).await.unwrap();
    fixture.savepoint(&mut tx).await;
    outbox.stage(&mut tx, message("orders")).await.unwrap();
    fixture.rollback(tx).await;

    assert_empty(&fixture, "orders").await;
}

/// Promise 1: one call stages messages of several queues, and reports them in the order given.
pub async fn one_call_stages_messages_of_several_queues<F: Fixture>(fixture: F) {
    let names = ["orders", "invoices", "orders", "letters", "invoices"];
    let messages = names.map(|name| message(name).build().unwrap());
    let staged = stage(&fixture, &messages).await;

    let store = fixture.store();
    assert_eq!(drain(&store, "orders").await, [staged[0], staged[2]]);
    assert_eq!(drain(&store, "invoices").await, [staged[1], staged[4]]);
    assert_eq!(drain(&store, "letters").await, [staged[3]]);
}

/// Promise 1: an empty batch returns an empty report and leaves the transaction as it was.
pub async fn an_empty_batch_does_nothing<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let mut tx = fixture.begin().await;
    assert_eq!(outbox.stage_all(&mut tx, &[]).await.unwrap(), StageReport::default());
    let id = outbox.stage(&mut tx, message("orders")).await.unwrap().id().unwrap();
    assert_eq!(outbox.stage_all(&mut tx, &[]).await.unwrap(), StageReport::default());
    fixture.commit(tx).await;

    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
}

/// Promise 2: a batch of any size is delivered completely, once, and in staging order.
pub async fn batches_of_1_100_and_5000_are_staged_completely<F: Fixture>(fixture: F) {
    for size in [1, 100, 5_000] {
        let staged = stage(&fixture, &numbered("orders", size)).await;
        let claimed = claim_all(&fixture.store(), "orders").await;
        assert_eq!(ids(&claimed), staged);
        assert_eq!(payloads(&claimed), (0..size).map(|number| number.to_string()).collect::<Vec<_>>());
        done(&fixture.store(), &claimed).await;
    }
    assert_empty(&fixture, "orders").await;
}

/// Decision "identity": a given identity is kept, and a message without one gets its own.
pub async fn every_message_has_an_identity<F: Fixture>(fixture: F) {
    let given = fresh_id();
    let messages = [message("orders"), message("orders").id(given), message("orders")];
    let staged = stage(&fixture, &messages.map(|each| each.build().unwrap())).await;

    assert_eq!(staged[1], given);
    assert!(staged[0] != given && staged[2] != given && staged[0] != staged[2]);
    assert_eq!(ids(&claim_all(&fixture.store(), "orders").await), staged);
}

/// Promise 1: a typed event is staged as its codec encodes it, with its type, queue, key and subject.
pub async fn a_typed_event_is_stored_as_its_codec_encoded_it<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    let event = OrderPlaced { order: 17 };
    let staged = fixture.outbox().stage(&mut tx, &event).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(staged.new_messages(), 1);

    let claimed = claim_one(&fixture.store(), "orders").await;
    assert_eq!(Some(claimed.id()), staged.id());
    assert_eq!(Decimal::decode(claimed.message.payload()).unwrap(), event);
    assert_eq!(claimed.message.content_type(), "text/x-decimal");
    assert_eq!(claimed.message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(claimed.message.key().unwrap().as_str(), "order-17");
    assert_eq!(claimed.message.subject().unwrap().as_str(), "customer-17");
}

/// Promise 1: an event, a message and its builder are staged alike.
pub async fn an_event_a_message_and_a_builder_are_staged_alike<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let event = OrderPlaced { order: 17 };
    let mut tx = fixture.begin().await;
    outbox.stage(&mut tx, &event).await.unwrap();
    outbox.stage(&mut tx, event.message()).await.unwrap();
    outbox.stage(&mut tx, event.message().build().unwrap()).await.unwrap();
    outbox.stage(&mut tx, &event.into_message().unwrap()).await.unwrap();
    fixture.commit(tx).await;

    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["17"; 4]);
}

/// Promise 7: an oversized payload is rejected by name, alone and in a batch, stages nothing, and leaves the transaction usable.
pub async fn an_oversized_payload_is_rejected_and_stages_nothing<F: Fixture>(fixture: F) {
    const LIMIT: usize = 16 << 20;
    let outbox = fixture.outbox();
    let oversized = message("orders").payload(vec![7; LIMIT + 1]).build().unwrap();
    let good = message("orders").payload("good").build().unwrap();
    let expected = Problem::TooLong { actual: LIMIT + 1, limit: LIMIT };

    let mut tx = fixture.begin().await;
    let Err(Error::Invalid(invalid)) = outbox.stage(&mut tx, &oversized).await else {
        panic!("an oversized payload is refused")
    };
    assert_eq!((invalid.field(), invalid.problem()), ("payload", &expected));
    let Err(Error::Invalid(invalid)) = outbox.stage_all(&mut tx, &[good.clone(), oversized]).await else {
        panic!("a batch with an oversized payload is refused")
    };
    assert_eq!((invalid.field(), invalid.problem()), ("message 1: payload", &expected));
    assert_eq!(outbox.stage(&mut tx, good).await.unwrap().outcomes()[0].1, StageOutcome::New);
    fixture.commit(tx).await;

    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["good"]);
}

/// Promise 7: an invalid builder is rejected before anything is staged, and the error names the field.
pub async fn an_invalid_builder_is_rejected_and_stages_nothing<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().stage(&mut tx, Message::builder("two words")).await;
    let Err(Error::Invalid(invalid)) = staged else { panic!("an invalid name is refused") };
    assert_eq!(invalid.field(), "queue");
    fixture.commit(tx).await;

    assert_empty(&fixture, "orders").await;
}

#[derive(Debug, PartialEq)]
struct OrderPlaced {
    order: u32,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Decimal;

    fn key(&self) -> Option<String> {
        Some(format!("order-{}", self.order))
    }

    fn subject(&self) -> Option<String> {
        Some(format!("customer-{}", self.order))
    }
}

enum Decimal {}

impl Codec<OrderPlaced> for Decimal {
    const CONTENT_TYPE: &'static str = "text/x-decimal";

    fn encode(event: &OrderPlaced) -> Result<Bytes, CodecError> {
        Ok(event.order.to_string().into())
    }

    fn decode(bytes: &[u8]) -> Result<OrderPlaced, CodecError> {
        let text = str::from_utf8(bytes).map_err(CodecError::decode)?;
        Ok(OrderPlaced { order: text.parse().map_err(CodecError::decode)? })
    }
}

/// Follow-ups are messages: staged with the change that they follow, rolled back with it, and read as they were staged.
pub async fn follow_ups_are_staged_like_any_message<F: Fixture>(fixture: F) {
    let reference = Reference::new("customer", "cus_1 \"ä\"").with("region", "eu");
    let erase = FollowUp::new("customer-17", "payments", "erase", reference.clone()).unwrap();
    let rectify = FollowUp::new("customer-17", "mailer", "rectify", reference).unwrap();
    let rectify = rectify.with_json("new name").unwrap().of_tenant(TenantId::new("acme").unwrap());
    let mut undone = fixture.begin().await;
    fixture.outbox().follow_up(&mut undone, [erase.clone()]).await.unwrap();
    fixture.rollback(undone).await;
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().follow_up(&mut tx, [erase.clone(), rectify.clone()]).await.unwrap();
    fixture.commit(tx).await;
    let claimed = claim_all(&fixture.store(), follow_up::QUEUE).await;
    let read: Vec<FollowUp> =
        claimed.iter().map(|claimed| FollowUp::read(&claimed.message).unwrap()).collect();
    let ids: Vec<_> = staged.outcomes().iter().map(|(id, _)| *id).collect();
    assert_eq!(read, [erase.with_id(ids[0]), rectify.with_id(ids[1])]);
}
