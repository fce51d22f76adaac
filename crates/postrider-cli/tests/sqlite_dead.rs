//! `postrider dead` and `postrider messages` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::{
    pty::{Winsize, openpty},
    sys::signal::Signal,
    unistd::write,
};
use postrider::inspect::Inspect;
use std::{fs, io::Read, process::Stdio};
use support::{
    program::{AtWork, postrider, run},
    shop::{Shop, id, order, queue, timeless},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_grouped_listed_and_shown() {
    let shop = Shop::troubled().await;
    let output = |arguments: &[&str]| {
        let ended = shop.run(arguments);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}: {ended:?}");
        timeless(&ended.out)
    };
    insta::assert_snapshot!("groups", output(&["dead", "groups"]));
    insta::assert_snapshot!("groups_json", output(&["dead", "groups", "--queue", "orders", "--json"]));
    insta::assert_snapshot!("ls", output(&["dead", "ls", "--queue", "orders"]));
    insta::assert_snapshot!(
        "ls_json",
        output(&["dead", "ls", "--queue", "orders", "--reason", "undecodable", "--json"])
    );
    let by_type = output(&["dead", "ls", "--queue", "orders", "--type", "order.placed", "--jsonl"]);
    assert_eq!(by_type.lines().count(), 2, "{by_type}");
    assert!(!by_type.contains("\"payload\""), "{by_type}");
    let by_key = output(&["dead", "ls", "--queue", "orders", "--key", "order-17", "--jsonl", "--payload"]);
    assert!(by_key.contains(r#""payload":"\"2\"""#) && by_key.lines().count() == 1, "{by_key}");
    insta::assert_snapshot!("show", output(&["dead", "show", "--queue", "orders", &id(2).to_string()]));
    insta::assert_snapshot!(
        "show_json",
        output(&["dead", "show", "--queue", "orders", &id(2).to_string(), "--payload", "--json"])
    );
    insta::assert_snapshot!(
        "messages",
        output(&["messages", "ls", "--queue", "orders", "--state", "scheduled"])
    );

    let fewer = shop.run(&["dead", "ls", "--queue", "orders", "--limit", "2", "--json"]);
    assert_eq!(fewer.report()["more"], true, "{fewer:?}");
    assert!(fewer.err.contains("raise --limit"), "{fewer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_message_exits_with_4() {
    let shop = Shop::troubled().await;
    let missing = shop.run(&["messages", "show", "--queue", "orders", &id(9).to_string()]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(4), ""), "{missing:?}");
    insta::assert_snapshot!("missing", missing.err);
    let alive = shop.run(&["dead", "show", "--queue", "orders", &id(4).to_string()]);
    assert_eq!(alive.code, Some(4), "{alive:?}");
    insta::assert_snapshot!("alive", alive.err);
    for verb in ["requeue", "discard"] {
        let ids = [id(1).to_string(), id(4).to_string()];
        let ended =
            shop.run(&["dead", verb, "--queue", "orders", &ids[0], &ids[1], "--why", "fixed", "--dry-run"]);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.err.contains(&ids[1]) && !ended.err.contains(&ids[0]), "{ended:?}");
    }
    assert_eq!(shop.store.counts().await.unwrap()[&queue("orders")].dead.at_least, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_confirmed_counted_and_audited() {
    let shop = Shop::troubled().await;
    let requeue = ["dead", "requeue", "--queue", "orders", "--reason", "rejected", "--why", "fixed"];
    let dry = shop.run(&[&requeue[..], &["--dry-run"]].concat());
    assert_eq!((dry.code, dry.out.as_str()), (Some(0), "2 would be requeued\n"), "{dry:?}");
    let unconfirmed = shop.run(&requeue);
    assert_eq!((unconfirmed.code, unconfirmed.out.as_str()), (Some(2), ""), "{unconfirmed:?}");
    insta::assert_snapshot!("unconfirmed", unconfirmed.err);
    assert!(shop.store.audit(10).await.unwrap().is_empty());

    let done = shop.run(&[&requeue[..], &["--yes", "--json"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    insta::assert_snapshot!("requeued_json", timeless(&done.out));
    let counts = shop.store.counts().await.unwrap()[&queue("orders")];
    assert_eq!((counts.pending.at_least, counts.dead.at_least), (2, 1));

    let third = id(3).to_string();
    let discard = ["dead", "discard", "--queue", "orders", &third, "--why", "only a test", "--actor", "ann"];
    let gone = shop.run(&discard);
    assert_eq!((gone.code, gone.out.as_str(), gone.err.as_str()), (Some(0), "1 discarded\n", ""), "{gone:?}");
    assert_eq!(shop.run(&discard).code, Some(4));
    let fourth = id(4).to_string();
    let timer = shop.run(&["messages", "discard", "--queue", "orders", &fourth, "--why", "too late"]);
    assert_eq!(timer.code, Some(0), "{timer:?}");
    let audit = shop.store.audit(10).await.unwrap();
    let audit: Vec<_> =
        audit.iter().map(|row| (row.action.actor.as_str(), row.verb.as_str(), row.ids.len())).collect();
    assert_eq!(audit, [("nell", "discard", 1), ("ann", "discard", 1), ("nell", "requeue", 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_requeue_writes_one_audit_row_per_chunk() {
    let shop = Shop::open().await;
    shop.stage((1..=2500).map(order)).await;
    shop.bury("orders", postrider::Reason::RetriesExhausted, "timed out").await;
    let done = shop.run(&["dead", "requeue", "--queue", "orders", "--yes", "--why", "it is back", "--json"]);
    assert_eq!(done.report()["changed"], 2500, "{done:?}");
    let audit = shop.store.audit(10).await.unwrap();
    assert_eq!(audit.iter().map(|row| row.ids.len()).collect::<Vec<_>>(), [500, 2000]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeue_by_error_excludes_later_failures() {
    let shop = Shop::troubled().await;
    let listed = shop.run(&["dead", "ls", "--queue", "orders", "--error", "missing", "--jsonl"]);
    assert_eq!(
        (listed.out.lines().count(), &listed.report()["id"]),
        (1, &id(3).to_string().into()),
        "{listed:?}"
    );
    let requeue = ["dead", "requeue", "--queue", "orders", "--why", "fixed", "--yes", "--json"];
    let none = shop.run(&[&requeue[..], &["--error", "no such customer"]].concat());
    assert_eq!((none.code, &none.report()["matched"]), (Some(0), &0.into()), "{none:?}");
    let long_ago = shop.run(&[&requeue[..], &["--until", "1h"]].concat());
    assert_eq!(long_ago.report()["matched"], 0, "{long_ago:?}");
    let later = "2100-01-01T00:00:00Z";
    let not_yet = shop.run(&[&requeue[..], &["--since", later]].concat());
    assert_eq!(not_yet.report()["matched"], 0, "{not_yet:?}");
    let listed = |since: &str| shop.run(&["dead", "ls", "--queue", "orders", "--jsonl", "--since", since]);
    assert_eq!((listed("1h").out.lines().count(), listed(later).out.as_str()), (3, ""));
    let by_position = shop.run(&["messages", "ls", "--queue", "orders", "--since", "1h"]);
    assert_eq!(by_position.code, Some(2), "{by_position:?}");
    let done = shop.run(&[&requeue[..], &["--error", "no such address", "--since", "1h"]].concat());
    assert_eq!((done.code, &done.report()["changed"]), (Some(0), &2.into()), "{done:?}");

    // A second run with the time of the first count excludes messages that failed again.
    let until = done.report()["until"].as_str().unwrap().to_owned();
    shop.bury("orders", postrider::Reason::Rejected, "no such address: again").await;
    let again = shop.run(&[&requeue[..], &["--error", "no such address", "--until", &until]].concat());
    assert_eq!(again.report()["matched"], 0, "{again:?}");
    let wrong = shop.run(&[&requeue[..], &["--until", "soon"]].concat());
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("2026-10-14T12:00:00Z"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_requeue_shows_progress_on_a_terminal() {
    let shop = Shop::open().await;
    shop.stage((1..=2500).map(order)).await;
    shop.bury("orders", postrider::Reason::RetriesExhausted, "timed out").await;
    let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let requeue = ["dead", "requeue", "--queue", "orders", "--yes", "--why", "it is back", "--db", "shop.db"];
    let mut command = postrider(&requeue);
    command.current_dir(shop.folder.path()).env("TERM", "xterm").stdout(Stdio::null()).stderr(pty.slave);
    let mut child = command.spawn().unwrap();
    // The terminal closes with its last writer.
    drop(command);
    let mut screen = Vec::new();
    // Reading fails once the terminal is closed.
    fs::File::from(pty.master).read_to_end(&mut screen).ok();
    assert!(child.wait().unwrap().success());
    let screen = String::from_utf8_lossy(&screen);
    assert!(screen.contains("2,000 of 2,500") && screen.contains("/s"), "{screen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeue_on_a_terminal_asks_for_confirmation() {
    let shop = Shop::troubled().await;
    let requeue = ["dead", "requeue", "--queue", "orders", "--reason", "rejected", "--why", "fixed"];
    for (answer, code, out) in [("n\n", 1, ""), ("\n", 1, ""), ("y\n", 0, "2 requeued\n")] {
        let pty = openpty(None, None).unwrap();
        write(&pty.master, answer.as_bytes()).unwrap();
        let ended = shop.run_with(&requeue, pty.slave.into());
        assert_eq!((ended.code, ended.out.as_str()), (Some(code), out), "{answer:?}: {ended:?}");
        assert!(ended.err.contains("2 messages in queue orders\nShall they be requeued? [y/N]"), "{ended:?}");
    }
    let pty = openpty(None, None).unwrap();
    let mut discard = postrider(&["dead", "discard", "--queue", "orders", "--why", "old", "--db", "shop.db"]);
    let mut at_work = AtWork::start(discard.current_dir(shop.folder.path()).stdin(pty.slave));
    at_work.until("1 message in queue orders");
    at_work.signal(Signal::SIGINT);
    let ended = at_work.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), ""), "{ended:?}");
    assert!(ended.err.contains("Nothing was changed."), "{ended:?}");
    assert_eq!(shop.store.counts().await.unwrap()[&queue("orders")].dead.at_least, 1);
}

#[test]
fn invalid_arguments_exit_with_2() {
    let unsaid = run(&mut postrider(&["dead", "requeue", "--queue", "orders", "--db", "shop.db"]));
    assert_eq!(unsaid.code, Some(2));
    assert!(unsaid.err.contains("--why"), "{unsaid:?}");
    let unknown =
        run(&mut postrider(&["dead", "ls", "--queue", "orders", "--reason", "bad", "--db", "shop.db"]));
    assert!(unknown.err.contains("known are max_deliveries"), "{unknown:?}");
}
