//! `postrider messages trace`, `postrider timers` and `postrider saga` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{
    FollowUp, MessageBuilder, OnFailure, QueuePolicy, Reason, Reference, audit::verify, inspect::Inspect,
    schema::Schema,
};
use std::time::Duration;
use support::shop::{Shop, id, order, queue, timeless};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn erase(number: u128) -> FollowUp {
    let reference = Reference::new("customer", "cus_17");
    FollowUp::new("customer-17", "payments", "erase", reference).unwrap().with_id(id(number))
}

/// Two messages of a key, of which the first died and was requeued; a copy of it in another queue; a follow-up of its subject.
async fn storied() -> Shop {
    let shop = Shop::open().await;
    shop.store.declare(&queue("orders"), &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    let keyed =
        |builder: MessageBuilder| builder.key("order-17").subject("customer-17").traceparent(TRACEPARENT);
    shop.stage([keyed(order(1)).event_type("order.placed")]).await;
    shop.bury("orders", Reason::Rejected, "no such address: Elm Street 7").await;
    let requeue = ["dead", "requeue", "--queue", "orders", &id(1).to_string(), "--why", "fixed"];
    assert_eq!(shop.run(&requeue).code, Some(0));
    shop.stage([keyed(order(2)).event_type("order.paid")]).await;
    shop.stage([postrider::Message::builder("copies").id(id(2)).key("order-17").json(&2)]).await;
    shop.stage([erase(3)]).await;
    shop
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_is_traced_through_every_queue() {
    let shop = storied().await;
    let output = |arguments: &[&str]| {
        let ended = shop.run(arguments);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}: {ended:?}");
        timeless(&ended.out)
    };
    insta::assert_snapshot!("trace", output(&["messages", "trace", &id(1).to_string()]));
    insta::assert_snapshot!("trace_json", output(&["messages", "trace", &id(1).to_string(), "--json"]));
    insta::assert_snapshot!("trace_of_a_copy", output(&["messages", "trace", &id(2).to_string()]));
    let count = |arguments: &[&str]| {
        let all = [&["messages", "trace", "--json"], arguments].concat();
        shop.run(&all).report()["messages"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--trace", TRACEPARENT]), 2);
    assert_eq!(count(&["--key", "order-17"]), 3);
    assert_eq!(count(&["--key", "order-17", "--queue", "copies"]), 1);
    let fewer = shop.run(&["messages", "trace", "--key", "order-17", "--limit", "1", "--json"]);
    assert_eq!(fewer.report()["more"], true, "{fewer:?}");
    assert!(fewer.err.contains("raise --limit"), "{fewer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivered_message_is_traced_by_its_audit_rows() {
    let shop = storied().await;
    let discard = ["messages", "discard", "--queue", "orders", &id(1).to_string(), "--why", "too late"];
    assert_eq!(shop.run(&discard).code, Some(0));
    let gone = shop.run(&["messages", "trace", &id(1).to_string()]);
    assert_eq!(gone.code, Some(0), "{gone:?}");
    insta::assert_snapshot!("trace_of_a_delivered_message", timeless(&gone.out));
    let unknown = shop.run(&["messages", "trace", &id(99).to_string()]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(4), ""), "{unknown:?}");
    insta::assert_snapshot!("trace_of_nothing", unknown.err);
    for wrong in [&["messages", "trace"][..], &["messages", "trace", "--key", "a", "--trace", TRACEPARENT]] {
        assert_eq!(shop.run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_is_shown_without_its_queue() {
    let shop = storied().await;
    let shown = shop.run(&["messages", "show", &id(1).to_string(), "--json"]);
    assert_eq!(shown.report()["queue"], "orders", "{shown:?}");
    let two = shop.run(&["messages", "show", &id(2).to_string()]);
    assert_eq!(two.code, Some(2), "{two:?}");
    insta::assert_snapshot!("in_two_queues", two.err);
    let missing = shop.run(&["messages", "show", &id(99).to_string()]);
    assert_eq!(missing.code, Some(4), "{missing:?}");
    insta::assert_snapshot!("in_no_queue", missing.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_are_listed_and_cancelled_once() {
    let shop = Shop::open().await;
    let timer = |number, name: &str| {
        order(number).timer(name).due_after(Duration::from_secs(3600)).event_type("remind")
    };
    shop.stage([timer(1, "cart-17"), timer(2, "cart-18")]).await;
    insta::assert_snapshot!("timers", timeless(&shop.run(&["timers", "ls"]).out));
    insta::assert_snapshot!(
        "timers_json",
        timeless(&shop.run(&["timers", "ls", "--queue", "orders", "--json"]).out)
    );
    let cancel = ["timers", "cancel", "--queue", "orders", "cart-17"];
    assert_eq!(shop.run(&cancel).code, Some(2), "without a reason");
    let cancel = [&cancel[..], &["--why", "it was bought"]].concat();
    let cancelled = shop.run(&cancel);
    assert_eq!(
        (cancelled.code, cancelled.out.as_str()),
        (Some(0), "cancelled timer cart-17\n"),
        "{cancelled:?}"
    );
    let again = shop.run(&cancel);
    assert_eq!((again.code, again.out.as_str()), (Some(4), ""), "{again:?}");
    insta::assert_snapshot!("no_timer", again.err);
    assert_eq!(shop.run(&["timers", "ls", "--jsonl"]).report()["name"], "cart-18");
    let rows = shop.store.audit(10).await.unwrap();
    assert_eq!(
        (rows.len(), rows[0].verb.as_str(), rows[0].ids.as_slice()),
        (1, "cancel_timer", &[id(1)][..])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follow_ups_are_requeued_only_by_saga_requeue() {
    let shop = Shop::open().await;
    shop.stage([erase(1), erase(2), erase(4).with_json("secret").unwrap()]).await;
    shop.stage([order(3)]).await;
    shop.bury("follow-ups", Reason::RetriesExhausted, "timeout").await;
    // The runner forgets the payload of what it gives up.
    shop.forget(id(4)).await;
    for verb in ["requeue", "discard"] {
        for command in ["dead", "messages"] {
            let named = shop.run(&[command, verb, "--queue", "follow-ups", &id(1).to_string(), "--why", "x"]);
            assert_eq!((named.code, named.out.as_str()), (Some(1), ""), "{named:?}");
            assert!(named.err.contains("postrider saga"), "{named:?}");
        }
        let all = shop.run(&["dead", verb, "--queue", "follow-ups", "--yes", "--why", "x"]);
        assert_eq!((all.code, all.out.as_str()), (Some(1), ""), "{all:?}");
        insta::assert_snapshot!(format!("refused_{verb}"), all.err);
    }
    assert!(shop.store.audit(10).await.unwrap().is_empty());

    insta::assert_snapshot!("saga_ls", timeless(&shop.run(&["saga", "ls"]).out));
    let requeue = ["saga", "requeue", "--why", "it is back", "--json"];
    let one = shop.run(&[&requeue[..], &[&id(1).to_string()]].concat());
    assert_eq!(one.code, Some(0), "{one:?}");
    insta::assert_snapshot!("saga_requeued_json", one.out);
    let again = shop.run(&[&requeue[..], &[&id(1).to_string()]].concat());
    assert_eq!(again.code, Some(4), "{again:?}");
    insta::assert_snapshot!("saga_not_abandoned", again.err);
    let others = [&requeue[..], &["--all", "--resolver", "mailer", "--yes"]].concat();
    assert_eq!(shop.run(&others).report()["matched"], 0);
    let all = [&requeue[..], &["--all", "--resolver", "payments"]].concat();
    assert_eq!(shop.run(&all).code, Some(2), "stdin is not a terminal");
    assert_eq!(shop.run(&[&all[..], &["--dry-run"]].concat()).report()["matched"], 2);
    let done = shop.run(&[&all[..], &["--yes"]].concat()).report();
    assert_eq!(
        (&done["requeued"], &done["payload_erased"][0]),
        (&1.into(), &id(4).to_string().into()),
        "{done}"
    );

    // Each requeue has an event in the ledger.
    let ledger = shop.store.ledger();
    assert_eq!(verify(&ledger, None).await.unwrap().position, 2);
    insta::assert_snapshot!("saga_show", timeless(&shop.run(&["saga", "show", "customer-17"]).out));
    let shown = shop.run(&["saga", "show", &id(1).to_string(), "--json"]).report();
    assert_eq!(
        (&shown["follow_ups"][0]["status"], &shown["ledger"][0]["kind"]),
        (&"pending".into(), &"requeued".into()),
        "{shown}"
    );
    let unknown = shop.run(&["saga", "show", "customer-18"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(4), ""), "{unknown:?}");
    insta::assert_snapshot!("saga_show_unknown", unknown.err);
}
