//! Assertions pass when they should, and fail with the promised message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_core::{ClaimRequest, Event, Message, OutboxExt, Reason, Store};
use postrider_testing::{Assert, TestStore};
use std::{fmt::Write, future::Future, time::Duration};
use support::{MailWanted, OrderPlaced, place};

/// Two orders, one of them retried; a scheduled mail, a timer, two messages that are not JSON, and a dead letter.
async fn full_store() -> TestStore {
    let store = TestStore::new();
    place(&store, &[1, 2, 3]).await;
    let claimed = store.claim(&ClaimRequest::new("orders".parse().unwrap(), 3)).await.unwrap();
    let (retry, dead) = (Duration::from_secs(30), Reason::Rejected);
    let settlements = [
        claimed[0].lease.release(),
        claimed[1].lease.retry(retry, "Timeout"),
        claimed[2].lease.dead(dead, "NoSuchCustomer"),
    ];
    store.settle(&settlements).await.unwrap();
    let mail = MailWanted { to: "ann".into() };
    let messages = [
        mail.message().due_after(Duration::from_secs(3600)),
        Message::builder("reminders")
            .event_type("order.unpaid")
            .timer("unpaid-1")
            .due_after(Duration::from_secs(60)),
        Message::builder("texts").payload("not JSON").content_type("text/plain"),
        Message::builder("texts").payload(vec![0xff; 5]).content_type("application/octet-stream"),
    ];
    let mut tx = store.begin();
    for message in messages {
        store.stage(&mut tx, message).await.unwrap();
    }
    tx.commit();
    store
}

#[tokio::test]
async fn assertions_that_hold_pass() {
    let store = full_store().await;
    assert_eq!(
        store.assert_staged::<OrderPlaced>(2).await,
        [OrderPlaced { order: 1 }, OrderPlaced { order: 2 }]
    );
    assert_eq!(store.staged::<MailWanted>().await, [MailWanted { to: "ann".into() }]);
    assert_eq!(store.assert_staged_where(|event: &OrderPlaced| event.order > 1).await.order, 2);
    store.assert_staged_in("orders", 2).await;
    store.assert_staged_in("nowhere", 0).await;
    let all = ["order.placed", "(no type)", "order.placed", "mail.wanted", "(no type)", "order.unpaid"];
    store.assert_only_staged(&all).await;
    let letter = store.assert_dead::<OrderPlaced>(Reason::Rejected).await;
    assert_eq!((letter.error.as_deref(), letter.attempts), (Some("NoSuchCustomer"), 1));
    assert_eq!(store.dead_letters().await, [letter]);

    let empty = TestStore::new();
    empty.assert_empty().await;
    empty.assert_none_dead().await;
    empty.assert_not_staged::<OrderPlaced>().await;
    empty.assert_only_staged(&[]).await;
}

#[tokio::test]
async fn a_rolled_back_or_uncommitted_message_is_not_staged() {
    let store = TestStore::new();
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 1 }).await.unwrap();
    store.assert_empty().await;
    tx.rollback();
    store.assert_empty().await;
}

#[tokio::test]
async fn assertions_read_every_page() {
    let store = TestStore::new();
    let orders: Vec<u32> = (0..2_345).collect();
    place(&store, &orders).await;
    store.assert_staged::<OrderPlaced>(2_345).await;
}

#[tokio::test]
async fn assertions_work_on_every_inspectable_store() {
    let store: std::sync::Arc<dyn postrider_core::inspect::Inspect> = std::sync::Arc::new(full_store().await);
    store.assert_staged::<MailWanted>(1).await;
}

/// The message of a failing assertion, without the line in this file.
async fn failure_of(assertion: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(assertion).await.expect_err("the assertion should fail").into_panic();
    let text = panic.downcast::<String>().unwrap();
    let mut cleaned = String::new();
    for line in text.lines() {
        match line.split_once("assertions.rs:") {
            Some((before, position)) => {
                assert!(position.split(':').all(|number| number.parse::<u32>().is_ok()), "{line}");
                writeln!(cleaned, "{before}assertions.rs").unwrap();
            }
            None => writeln!(cleaned, "{line}").unwrap(),
        }
    }
    cleaned
}

#[tokio::test]
async fn a_failing_assertion_prints_the_messages_of_the_store() {
    let store = full_store().await;
    let mut report = String::new();
    macro_rules! record {
        ($store:ident, $($assertion:tt)*) => {{
            let store = $store.clone();
            let text = failure_of(async move { let _ = store.$($assertion)*.await; }).await;
            writeln!(report, "## {}\n\n{text}", stringify!($($assertion)*)).unwrap();
        }};
    }
    record!(store, assert_staged::<OrderPlaced>(3));
    record!(store, assert_staged_where(|event: &OrderPlaced| event.order == 9));
    record!(store, assert_not_staged::<MailWanted>());
    record!(store, assert_only_staged(&["order.placed", "order.paid"]));
    record!(store, assert_staged_in("orders", 0));
    record!(store, assert_dead::<OrderPlaced>(Reason::Undecodable));
    record!(store, assert_none_dead());
    record!(store, assert_empty());
    let empty = TestStore::new();
    record!(empty, assert_staged::<OrderPlaced>(1));
    let mut tx = empty.begin();
    let wrong = Message::builder("orders").event_type(OrderPlaced::TYPE).json(&"not an order");
    empty.stage(&mut tx, wrong).await.unwrap();
    tx.commit();
    record!(empty, assert_staged::<OrderPlaced>(1));
    insta::assert_snapshot!("failure_messages", report);
}
