//! `postrider check` on SQLite, run as a monitoring system runs it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::shop::{Shop, order};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_follow_the_format() {
    let shop = Shop::troubled().await;
    for (limits, ours, theirs, word) in [
        (&["--warn-dead", "4", "--warn-lag", "1h"][..], 0, 0, "OK"),
        (&["--warn-dead", "3", "--crit-dead", "4"], 3, 1, "WARNING"),
        (&["--warn-dead", "1", "--crit-dead", "3"], 1, 2, "CRITICAL"),
        (&["--crit-dead", "3"], 1, 2, "CRITICAL"),
    ] {
        let called = |more: &[&str]| shop.run(&[&["check"], limits, more].concat());
        let (plain, nagios) = (called(&[]), called(&["--format", "nagios"]));
        assert_eq!((plain.code, nagios.code), (Some(ours), Some(theirs)), "{limits:?}: {plain:?} {nagios:?}");
        assert_eq!(plain.out, nagios.out);
        assert!(plain.out.starts_with(&format!("{word} - ")), "{plain:?}");
        assert_eq!(called(&["--format", "prometheus"]).code, Some(ours));
        assert_eq!(called(&["--json"]).code, Some(ours));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_of_each_format_matches_snapshot() {
    let shop = Shop::troubled().await;
    let limits = ["check", "--warn-lag", "1m", "--crit-lag", "5m", "--warn-dead", "1", "--crit-dead", "100"];
    let output = |more: &[&str]| shop.run(&[&limits, more].concat()).out;
    insta::assert_snapshot!("line", output(&[]));
    insta::assert_snapshot!("prometheus", output(&["--format", "prometheus"]));
    insta::assert_snapshot!("json", output(&["--json"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_and_blocked_keys_have_thresholds() {
    let shop = Shop::parked().await;
    let blocked = shop.run(&["check", "--warn-blocked", "1", "--crit-blocked", "2"]);
    assert_eq!(blocked.code, Some(3), "{blocked:?}");
    assert!(blocked.out.starts_with("WARNING - invoices has 1 blocked key | 'invoices lag'="), "{blocked:?}");
    shop.stage([order(1)]).await;
    let late = shop.run(&["check", "--queue", "orders", "--crit-lag", "1ms"]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.out.starts_with("CRITICAL - orders lag is "), "{late:?}");
    assert!(!late.out.contains("invoices"), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_database_is_unknown() {
    let shop = Shop::open().await;
    let nowhere = shop.run(&["check", "--queue", "nowhere"]);
    assert_eq!((nowhere.code, nowhere.out.as_str()), (Some(4), ""), "{nowhere:?}");
    insta::assert_snapshot!("no_such_queue", nowhere.err);
    let gone = ["check", "--db", "gone.db", "--format"];
    let nagios = shop.run(&[&gone[..], &["nagios"]].concat());
    assert_eq!((nagios.code, nagios.err.as_str()), (Some(3), ""), "{nagios:?}");
    assert!(nagios.out.starts_with("UNKNOWN - SQLite in gone.db: "), "{nagios:?}");
    let prometheus = shop.run(&[&gone[..], &["prometheus"]].concat());
    assert_eq!(prometheus.code, Some(1), "{prometheus:?}");
    assert!(prometheus.out.contains("\npostrider_check_up 0\n"), "{prometheus:?}");
}
