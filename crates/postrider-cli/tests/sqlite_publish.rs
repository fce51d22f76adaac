//! `postrider publish`, `postrider audit ls` and `postrider saga` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{FollowUp, Reason, Reference, State, inspect::Inspect};
use std::{
    fs::File,
    time::{Duration, SystemTime},
};
use support::{
    program::{postrider, run},
    shop::{Shop, id, queue, timeless},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_message_is_stored_as_given() {
    let shop = Shop::open().await;
    let published = shop.run(&[
        "publish",
        "orders",
        "--type",
        "order.placed",
        "--key",
        "order-17",
        "--header",
        "color=blue",
        "--header",
        "note=a=b",
        "--json-body",
        r#"{"total": 12}"#,
        "--after",
        "1h",
    ]);
    assert_eq!((published.code, published.err.as_str()), (Some(0), ""), "{published:?}");
    let entry =
        shop.store.get(&queue("orders"), published.out.trim().parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(entry.state, State::Scheduled);
    assert_eq!(entry.message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(entry.message.key().unwrap().as_str(), "order-17");
    assert_eq!(entry.message.headers().iter().collect::<Vec<_>>(), [("color", "blue"), ("note", "a=b")]);
    assert_eq!(
        (&entry.message.payload()[..], entry.message.content_type()),
        (&br#"{"total": 12}"#[..], "application/json")
    );

    for (bytes, kind) in
        [(&b"[1]"[..], "application/json"), (b"hello", "text/plain"), (b"\xff", "application/octet-stream")]
    {
        let file = shop.folder.path().join("body");
        std::fs::write(&file, bytes).unwrap();
        let published = shop.run_with(&["publish", "mails", "--json"], File::open(&file).unwrap().into());
        let report = published.report();
        assert_eq!((&report["version"], &report["queue"]), (&1.into(), &"mails".into()), "{published:?}");
        let id = report["id"].as_str().unwrap().parse().unwrap();
        let message = shop.store.get(&queue("mails"), id).await.unwrap().unwrap().message;
        assert_eq!((&message.payload()[..], message.content_type()), (bytes, kind));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_message_exits_with_2_and_names_the_cause() {
    let shop = Shop::open().await;
    for (arguments, words) in [
        (&["publish", "orders"][..], "stdin is empty"),
        (&["publish", "orders", "--json-body", "{"], "invalid JSON"),
        (&["publish", "orders", "--header", "color", "--body", "x"], "write NAME=VALUE"),
        (&["publish", "orders", "--body", "x", "--json-body", "1"], "cannot be used with"),
        (&["publish", "orders", "--key", "", "--body", "x"], "key"),
    ] {
        let ended = shop.run(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(words), "{arguments:?}: {ended:?}");
    }
    assert!(shop.store.counts().await.unwrap().is_empty());
    insta::assert_snapshot!("no_body", shop.run(&["publish", "orders"]).err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_actions_are_listed() {
    let shop = Shop::parked().await;
    let none = shop.run(&["audit", "ls"]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(0), "", "No actions found.\n"));
    let release = ["keys", "release", "--queue", "invoices", "ann", "--why", "the account is open again"];
    assert_eq!(shop.run(&release).code, Some(0));
    insta::assert_snapshot!("actions", timeless(&shop.run(&["audit", "ls"]).out));
    insta::assert_snapshot!("actions_json", timeless(&shop.run(&["audit", "ls", "--json"]).out));
    assert_eq!(shop.run(&["audit", "ls", "--jsonl"]).report()["actor"], "nell");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follow_ups_are_counted_and_listed() {
    let shop = Shop::open().await;
    let erase = |number| {
        let reference = Reference::new("customer", "cus_17");
        FollowUp::new("customer-17", "payments", "erase", reference).unwrap().with_id(id(number))
    };
    shop.stage([erase(1)]).await;
    shop.bury("follow-ups", Reason::RetriesExhausted, "timeout").await;
    shop.stage([erase(2).not_before(SystemTime::now() + Duration::from_secs(3600))]).await;
    let output = |arguments: &[&str]| {
        let ended = shop.run(arguments);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}: {ended:?}");
        timeless(&ended.out)
    };
    insta::assert_snapshot!("counts", output(&["saga", "counts"]));
    insta::assert_snapshot!("counts_json", output(&["saga", "counts", "--json"]));
    insta::assert_snapshot!("abandoned", output(&["saga", "abandoned"]));
    insta::assert_snapshot!("abandoned_json", output(&["saga", "abandoned", "--json"]));
    assert!(output(&["saga", "scheduled", "--jsonl"]).contains(&id(2).to_string()));
    assert_eq!(output(&["saga", "overdue", "--older-than", "1ms", "--jsonl"]).lines().count(), 2);
    assert_eq!(shop.run(&["saga", "overdue"]).err, "No follow-ups found.\n");
    let status = shop.run(&["status"]);
    insta::assert_snapshot!("status", status.out);
}

#[test]
fn invalid_duration_exits_with_2() {
    let wrong = run(&mut postrider(&["saga", "overdue", "--older-than", "long", "--db", "shop.db"]));
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("write 10s, 2m, 1h"), "{wrong:?}");
}
