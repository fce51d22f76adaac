//! `postrider status` and `postrider keys` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{
    program::{AtWork, postrider, run},
    shop::{Shop, order},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_lists_queues_and_warnings() {
    let shop = Shop::troubled().await;
    let status = shop.run(&["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    insta::assert_snapshot!("status", status.out);
    insta::assert_snapshot!("status_warnings", status.err);
    let json = shop.run(&["status", "--json", "--exit-code"]);
    assert_eq!((json.code, json.err.as_str()), (Some(1), ""), "{json:?}");
    insta::assert_snapshot!("status_json", json.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_of_one_queue() {
    let shop = Shop::troubled().await;
    shop.stage([postrider::Message::builder("bills").json(&1)]).await;
    let status = |queue: &str| shop.run(&["status", "--exit-code", "--json", "--queue", queue]);
    let (orders, bills) = (status("orders"), status("bills"));
    assert_eq!((orders.code, bills.code), (Some(1), Some(0)), "{orders:?} {bills:?}");
    let report = bills.report();
    assert_eq!(
        (&report["queues"][0]["queue"], &report["queues"][1]),
        (&"bills".into(), &().into()),
        "{report}"
    );
    let missing = status("ordres");
    assert_eq!((missing.code, missing.out.as_str()), (Some(4), ""), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_code_reports_warnings() {
    let shop = Shop::open().await;
    assert_eq!(shop.run(&["status", "--exit-code"]).code, Some(0));
    shop.stage([order(1)]).await;
    assert_eq!(shop.run(&["status", "--exit-code", "--max-lag", "1h"]).code, Some(0));
    let late = shop.run(&["status", "--exit-code", "--max-lag", "1ms"]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.err.contains("lag"), "{late:?}");
    let alone = shop.run(&["status", "--max-lag", "1ms"]);
    assert_eq!(alone.code, Some(2), "{alone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_returns_when_nothing_is_due_or_in_flight() {
    let shop = Shop::open().await;
    shop.stage([order(1)]).await;
    let waited = shop.run(&["status", "--wait", "1ms"]);
    assert_eq!(waited.code, Some(1), "{waited:?}");
    assert!(waited.err.contains("not idle within 1ms: orders"), "{waited:?}");

    let waiting = AtWork::start(&mut shop.command(&["status", "--wait", "1h"]));
    shop.run(&["messages", "discard", "--queue", "orders", "--yes", "--why", "a test"]);
    let ended = waiting.end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmigrated_database_fails_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop.db"), "").unwrap();
    let ended = run(postrider(&["status", "--db", "shop.db"]).current_dir(folder.path()));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    insta::assert_snapshot!("no_tables", ended.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_key_is_released_once() {
    let shop = Shop::parked().await;
    let status = shop.run(&["status", "--exit-code"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.err.contains("invoices: 1 blocked key"), "{status:?}");
    let blocked = ["keys", "blocked", "--queue", "invoices"];
    insta::assert_snapshot!("blocked", shop.run(&blocked).out);
    insta::assert_snapshot!("blocked_json", shop.run(&[&blocked[..], &["--json"]].concat()).out);
    assert_eq!(shop.run(&[&blocked[..], &["--jsonl"]].concat()).report()["key"], "ann");
    let release = ["keys", "release", "--queue", "invoices", "ann"];
    let without_reason = shop.run(&release);
    assert_eq!(without_reason.code, Some(2), "{without_reason:?}");
    let release = [&release[..], &["--why", "the account is open again"]].concat();
    let released = shop.run(&release);
    assert_eq!((released.code, released.out.as_str()), (Some(0), "released key ann\n"), "{released:?}");
    let again = shop.run(&release);
    assert_eq!((again.code, again.out.as_str()), (Some(4), ""), "{again:?}");
    insta::assert_snapshot!("not_blocked", again.err);
    assert_eq!(shop.run(&blocked).err, "No keys found.\n");
}

#[test]
fn completions_and_manual_pages_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&mut postrider(&["completions", shell]));
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
        assert!(ended.out.contains("postrider") && ended.out.contains("migrate"), "{shell}");
    }
    let manual = run(&mut postrider(&["man"]));
    assert!(manual.out.contains(".TH postrider 1"), "{}", manual.out);
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let ended = run(&mut postrider(&["man", "--dir", pages.to_str().unwrap()]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    for page in ["postrider.1", "postrider-status.1", "postrider-migrate-up.1"] {
        assert!(pages.join(page).is_file(), "{page}");
    }
}
