//! `postrider tail` and `postrider gc` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider::{
    ClaimRequest, ClaimedMessage, LeaseSettlement, QueuePolicy, Reason, Settlement, Store, inspect::Inspect,
    schema::Schema,
};
use serde_json::Value;
use std::{fs, time::Duration};
use support::{
    program::{AtWork, postrider, run},
    shop::{Shop, id, order, queue, timeless},
};

async fn claim(shop: &Shop, name: &str) -> ClaimedMessage {
    shop.store.claim(&ClaimRequest::new(queue(name), 1)).await.unwrap().remove(0)
}

async fn settle(shop: &Shop, claimed: &ClaimedMessage, settlement: Settlement) {
    let lease = claimed.lease.clone();
    assert!(shop.store.settle(&[LeaseSettlement { lease, settlement }]).await.unwrap().is_empty());
}

fn start_tail(shop: &Shop, arguments: &[&str]) -> AtWork {
    let all = [&["tail", "--db", "shop.db", "--interval", "10ms", "--jsonl"], arguments].concat();
    let mut tail = AtWork::start(postrider(&all).current_dir(shop.folder.path()));
    tail.until("Watching");
    tail
}

/// The kind of the next event, and the event.
fn next(tail: &mut AtWork) -> (String, Value) {
    let event: Value = serde_json::from_str(&tail.line()).unwrap();
    (event["event"].as_str().unwrap().to_owned(), event)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_prints_every_state_change() {
    let shop = Shop::open().await;
    let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(3600));
    shop.store.declare(&queue("orders"), &keeping).await.unwrap();
    shop.stage([order(9)]).await;
    let mut tail = start_tail(&shop, &["--queue", "orders"]);
    let mut expect = |kind: &str, number: u128| {
        let (event, whole) = next(&mut tail);
        assert_eq!((event.as_str(), &whole["id"]), (kind, &id(number).to_string().into()), "{whole}");
        whole
    };
    // A message that was there before is no event; its changes are.
    let claimed = claim(&shop, "orders").await;
    expect("leased", 9);
    settle(&shop, &claimed, Settlement::Done).await;
    expect("done", 9);
    shop.stage([order(1).event_type("order.placed").key("order-1")]).await;
    assert_eq!(expect("staged", 1)["key"], "order-1");
    let claimed = claim(&shop, "orders").await;
    expect("leased", 1);
    let after = Duration::from_secs(3600);
    settle(&shop, &claimed, Settlement::Retry { after, error: Some("busy".to_owned()) }).await;
    let scheduled = expect("scheduled", 1);
    assert_eq!((&scheduled["error"], &scheduled["attempts"]), (&"busy".into(), &1.into()), "{scheduled}");
    shop.stage([order(2)]).await;
    expect("staged", 2);
    let claimed = claim(&shop, "orders").await;
    expect("leased", 2);
    let dead = Settlement::Dead { reason: Reason::Rejected, error: Some("no such address".to_owned()) };
    settle(&shop, &claimed, dead).await;
    let dead = expect("dead", 2);
    assert_eq!((&dead["reason"], &dead["error"]), (&"rejected".into(), &"no such address".into()), "{dead}");
    // Messages of another queue are not shown.
    shop.stage([postrider::Message::builder("mails").json(&1)]).await;
    shop.run(&["dead", "requeue", "--queue", "orders", &id(2).to_string(), "--why", "fixed"]);
    expect("pending", 2);
    tail.signal(Signal::SIGINT);
    let ended = tail.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_prints_gone_for_messages_that_are_not_kept_and_warns_once() {
    let shop = Shop::open().await;
    shop.stage([order(1)]).await;
    let mut tail = start_tail(&shop, &[]);
    let claimed = claim(&shop, "orders").await;
    assert_eq!(next(&mut tail).0, "leased");
    settle(&shop, &claimed, Settlement::Done).await;
    assert_eq!(next(&mut tail).0, "gone");
    tail.signal(Signal::SIGINT);
    let ended = tail.end();
    assert_eq!(ended.err.matches("queue orders keeps no delivered messages").count(), 1, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_starts_at_since_and_ends_at_count_or_until() {
    let shop = Shop::troubled().await;
    let since = |arguments: &[&str]| {
        let all = [&["tail", "--since", "1h", "--interval", "10ms"], arguments].concat();
        let ended = shop.run(&all);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.out
    };
    let all = since(&["--count", "7"]);
    insta::assert_snapshot!("tail", timeless(&all));
    assert_eq!(since(&["--for", "10ms", "--key", "order-17", "--jsonl"]).lines().count(), 2);
    assert_eq!(since(&["--for", "10ms", &id(3).to_string()]).lines().count(), 2);
    assert_eq!(since(&["--for", "10ms", &id(3).to_string(), "--queue", "mails"]), "");
    // A message that was settled just before is no event, in any poll.
    let nothing = shop.run(&["tail", "--for", "300ms", "--interval", "1ms", "--jsonl"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
}

/// Three kept messages whose time is over, a mark of the inbox, and something that an operator did.
async fn cluttered() -> Shop {
    let shop = Shop::open().await;
    let keeping = QueuePolicy::default().with_keep_for(Duration::from_millis(1));
    shop.store.declare(&queue("orders"), &keeping).await.unwrap();
    shop.stage((1..=3).map(order)).await;
    assert_eq!(shop.deliver("orders").await, 3);
    shop.admit("billing", id(1)).await;
    shop.stage([order(4)]).await;
    let discard = ["messages", "discard", "--queue", "orders", &id(4).to_string(), "--why", "too late"];
    assert_eq!(shop.run(&discard).code, Some(0));
    shop
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gc_deletes_expired_data_on_request() {
    let shop = cluttered().await;
    let dry = shop.run(&["gc", "--dry-run", "--inbox-older-than", "1ms"]);
    assert_eq!((dry.code, dry.err.as_str()), (Some(0), ""), "{dry:?}");
    insta::assert_snapshot!("gc_dry", dry.out);
    assert_eq!(shop.run(&["gc", "--audit-older-than", "1ms"]).code, Some(2), "without a reason");
    let others =
        shop.run(&["gc", "--dry-run", "--json", "--inbox-older-than", "1ms", "--consumer", "shipping"]);
    assert_eq!(others.report()["inbox"], 0, "{others:?}");

    let kept = shop.run(&["gc", "--json"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    insta::assert_snapshot!("gc_json", kept.out);
    let size = || fs::metadata(shop.folder.path().join("shop.db")).unwrap().len();
    let before = size();
    let all = shop.run(&[
        "gc",
        "--inbox-older-than",
        "1ms",
        "--audit-older-than",
        "1ms",
        "--why",
        "kept long enough",
        "--vacuum",
        "--json",
    ]);
    let report = all.report();
    assert_eq!(
        (&report["kept"], &report["inbox"], &report["audit"]),
        (&0.into(), &1.into(), &1.into()),
        "{all:?}"
    );
    assert_eq!(report["vacuumed"], true, "{all:?}");
    assert!(size() <= before);
    let rows = shop.store.audit(10).await.unwrap();
    assert_eq!((rows.len(), rows[0].verb.as_str()), (1, "prune_audit"));
}

#[test]
fn invalid_arguments_exit_with_2() {
    let wrong = run(&mut postrider(&["tail", "--count", "0", "--db", "shop.db"]));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    insta::assert_snapshot!("tail_wrong", wrong.err);
}
