//! `postrider pause`, `resume` and `paused` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{ClaimRequest, Store};
use support::shop::{Shop, order, queue, timeless};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_queue_is_not_claimed_until_resumed() {
    let shop = Shop::open().await;
    shop.stage([order(1)]).await;
    let claim = async || shop.store.claim(&ClaimRequest::new(queue("orders"), 10)).await.unwrap().len();
    let paused = shop.run(&["pause", "--queue", "orders", "--why", "the warehouse moves", "--json"]);
    assert_eq!(paused.code, Some(0), "{paused:?}");
    insta::assert_snapshot!("pause_json", paused.out);
    assert_eq!(claim().await, 0);
    let status = shop.run(&["status", "--exit-code"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    insta::assert_snapshot!("status_of_a_paused_queue", timeless(&status.err));
    assert_eq!(shop.run(&["status", "--json"]).report()["paused"][0]["queue"], "orders");
    let resumed = shop.run(&["resume", "--queue", "orders", "--why", "it has moved"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "queue orders is resumed\n"), "{resumed:?}");
    assert_eq!(claim().await, 1);
    insta::assert_snapshot!("audit_of_a_pause", timeless(&shop.run(&["audit", "ls", "--json"]).out));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_are_listed_and_changed_once() {
    let shop = Shop::open().await;
    assert_eq!(shop.run(&["paused"]).err, "No pauses found.\n");
    assert_eq!(shop.run(&["pause", "--queue", "orders", "--why", "a move"]).out, "queue orders is paused\n");
    let billing = ["--destination", "billing", "--why", "they asked for it"];
    assert_eq!(shop.run(&[&["pause"], &billing[..]].concat()).code, Some(0));
    insta::assert_snapshot!("paused", timeless(&shop.run(&["paused"]).out));
    insta::assert_snapshot!("paused_json", timeless(&shop.run(&["paused", "--json"]).out));
    let again = shop.run(&[&["pause"], &billing[..]].concat());
    assert_eq!((again.code, again.out.as_str()), (Some(4), ""), "{again:?}");
    insta::assert_snapshot!("paused_already", again.err);
    assert_eq!(shop.run(&[&["resume"], &billing[..]].concat()).code, Some(0));
    let twice = shop.run(&[&["resume"], &billing[..]].concat());
    assert_eq!((twice.code, twice.out.as_str()), (Some(4), ""), "{twice:?}");
    assert!(twice.err.contains("destination billing is not paused"), "{twice:?}");
    assert_eq!(shop.run(&["audit", "ls"]).out.lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_without_subject_or_reason_exits_with_2() {
    let shop = Shop::open().await;
    for arguments in [
        &["pause", "--why", "a move"][..],
        &["pause", "--queue", "orders"],
        &["resume", "--queue", "orders", "--destination", "billing", "--why", "a move"],
        &["pause", "--queue", "my orders", "--why", "a move"],
    ] {
        let ended = shop.run(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
    }
}
