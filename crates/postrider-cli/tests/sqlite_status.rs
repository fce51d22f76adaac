//! `postrider status` and `postrider keys` on SQLite, run as somebody runs them.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{
    program::{AtWork, postrider, run},
    shop::{Shop, order},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_queue_is_told_with_what_needs_a_hand() {
    let shop = Shop::troubled().await;
    let told = shop.run(&["status"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    insta::assert_snapshot!("status", told.out);
    insta::assert_snapshot!("status_trouble", told.err);
    let json = shop.run(&["status", "--json", "--exit-code"]);
    assert_eq!((json.code, json.err.as_str()), (Some(1), ""), "{json:?}");
    insta::assert_snapshot!("status_for_programs", json.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_queue_is_told_alone() {
    let shop = Shop::troubled().await;
    shop.stage([postrider::Message::builder("bills").json(&1)]).await;
    let status = |queue: &str| shop.run(&["status", "--exit-code", "--json", "--queue", queue]);
    let (orders, bills) = (status("orders"), status("bills"));
    assert_eq!((orders.code, bills.code), (Some(1), Some(0)), "{orders:?} {bills:?}");
    let told = bills.report();
    assert_eq!((&told["queues"][0]["queue"], &told["queues"][1]), (&"bills".into(), &().into()), "{told}");
    let missing = status("ordres");
    assert_eq!((missing.code, missing.out.as_str()), (Some(4), ""), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_tells_whether_all_is_well() {
    let shop = Shop::open().await;
    assert_eq!(shop.run(&["status", "--exit-code"]).code, Some(0));
    shop.stage([order(1)]).await;
    assert_eq!(shop.run(&["status", "--exit-code", "--max-lag", "1h"]).code, Some(0));
    let late = shop.run(&["status", "--exit-code", "--max-lag", "1ms"]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.err.contains("lags"), "{late:?}");
    let alone = shop.run(&["status", "--max-lag", "1ms"]);
    assert_eq!(alone.code, Some(2), "{alone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_waits_until_everything_that_is_due_is_done() {
    let shop = Shop::open().await;
    shop.stage([order(1)]).await;
    let waited = shop.run(&["status", "--wait", "1ms"]);
    assert_eq!(waited.code, Some(1), "{waited:?}");
    assert!(waited.err.contains("not done within 1ms: orders"), "{waited:?}");

    let waiting = AtWork::start(&mut shop.command(&["status", "--wait", "1h"]));
    shop.run(&["messages", "discard", "--queue", "orders", "--yes", "--why", "it waits for this"]);
    let ended = waiting.end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_tables_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop.db"), "").unwrap();
    let ended = run(postrider(&["status", "--db", "shop.db"]).current_dir(folder.path()));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    insta::assert_snapshot!("no_tables", ended.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_key_is_released_once() {
    let shop = Shop::parked().await;
    let status = shop.run(&["status", "--exit-code"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.err.contains("invoices: 1 blocked"), "{status:?}");
    let blocked = ["keys", "blocked", "--queue", "invoices"];
    insta::assert_snapshot!("blocked", shop.run(&blocked).out);
    insta::assert_snapshot!("blocked_for_programs", shop.run(&[&blocked[..], &["--json"]].concat()).out);
    assert_eq!(shop.run(&[&blocked[..], &["--jsonl"]].concat()).report()["key"], "ann");
    let release = ["keys", "release", "--queue", "invoices", "ann"];
    let nobody_knows_why = shop.run(&release);
    assert_eq!(nobody_knows_why.code, Some(2), "{nobody_knows_why:?}");
    let release = [&release[..], &["--why", "the account is open again"]].concat();
    let released = shop.run(&release);
    assert_eq!((released.code, released.out.as_str()), (Some(0), "ann runs again\n"), "{released:?}");
    let again = shop.run(&release);
    assert_eq!((again.code, again.out.as_str()), (Some(4), ""), "{again:?}");
    insta::assert_snapshot!("not_blocked", again.err);
    assert_eq!(shop.run(&blocked).err, "There are no such keys.\n");
}

#[test]
fn shells_and_manuals_get_theirs() {
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
