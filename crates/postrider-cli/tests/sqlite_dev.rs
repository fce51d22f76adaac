//! `postrider dev` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use sqlx::{Connection, Row, SqliteConnection};
use std::{
    fs,
    path::{Path, PathBuf},
};
use support::{
    program::{AtWork, postrider, run},
    terminal::{FullScreenOutput, full_screen, on_a_terminal},
};
use tempfile::tempdir;

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn short_run_adds_up_and_deletes_its_file() {
    let folder = tempdir().unwrap();
    // With this seed, one of the first orders is rolled back.
    let ended = run(postrider(&["dev", "--for", "3s", "--json", "--seed", "7"]).env("TMPDIR", folder.path()));
    let report = ended.adds_up();
    assert!(report["rolled_back"].as_u64() > Some(0), "{report}");
    assert!(is_empty(folder.path()), "{ended:?}");
}

#[test]
fn signal_drains_and_run_adds_up() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let folder = tempdir().unwrap();
        let mut at_work = AtWork::start(postrider(&["dev", "--json"]).env("TMPDIR", folder.path()));
        at_work.until("committed");
        at_work.signal(signal);
        let ended = at_work.end();
        ended.adds_up();
        assert!(is_empty(folder.path()), "{ended:?}");
    }
}

/// The path of the temporary file.
fn temporary_file(folder: &Path) -> PathBuf {
    let inner = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    inner.join("shop.db")
}

/// Another connection holds the lock of the file, so that messages in flight cannot finish.
#[tokio::test]
async fn second_signal_exits_at_once() {
    let folder = tempdir().unwrap();
    let mut at_work = AtWork::start(postrider(&["dev", "--json"]).env("TMPDIR", folder.path()));
    at_work.until("committed");
    let path = temporary_file(folder.path());
    let mut holder = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query("begin immediate").execute(&mut holder).await.unwrap();
    at_work.signal(Signal::SIGINT);
    at_work.until("stopping");
    at_work.signal(Signal::SIGINT);
    let ended = at_work.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), ""), "{ended:?}");
    assert!(is_empty(folder.path()), "{ended:?}");
}

#[tokio::test]
async fn kept_file_has_the_orders_of_all_runs() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("kept.db");
    let arguments = ["dev", "--for", "1s", "--json", "--db", path.to_str().unwrap()];
    let mut staged = 0;
    for _ in 0..2 {
        staged += run(&mut postrider(&arguments)).adds_up()["staged"].as_i64().unwrap();
    }
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let row = sqlx::query("select count(*), count(distinct run) from shop_order").fetch_one(&mut connection);
    let row = row.await.unwrap();
    assert_eq!((row.get::<i64, _>(0), row.get::<i64, _>(1)), (staged, 2));
}

fn drawn(no_color: &str) -> String {
    let mut command = postrider(&["dev", "--for", "1s"]);
    command.env("NO_COLOR", no_color);
    let (screen, ended) = on_a_terminal(command);
    assert!(ended.success());
    screen
}

#[test]
fn terminal_is_drawn_on_and_restored() {
    let seen = drawn("");
    let FullScreenOutput { frames, drawn, after } = full_screen(&seen);
    assert!(frames.len() > 1, "{seen:?}");
    for frame in frames {
        for words in ["postrider dev", "pending", "leased", "scheduled", "done", "dead", "p50", "s of 1.0 s"]
        {
            assert!(frame.contains(words) || frame.contains("nothing yet"), "no {words:?} in {frame}");
        }
    }
    assert!(drawn.contains("\x1b[1m") && drawn.contains("\x1b[38;5;2"), "no styles: {drawn:?}");
    assert!(after.contains(" staged = ") && after.contains("It all adds up."), "{after:?}");
}

#[test]
fn summary_on_a_terminal_has_no_log_lines_and_ends_with_next_steps() {
    let mut command = postrider(&["dev", "--for", "1s"]);
    command.env("POSTRIDER_LOG", "debug");
    let (screen, ended) = on_a_terminal(command);
    assert!(ended.success(), "{screen:?}");
    let FullScreenOutput { frames, after, .. } = full_screen(&screen);
    assert!(frames.iter().any(|frame| frame.contains("DEBUG")), "the screen shows no log lines: {screen:?}");
    for level in ["DEBUG", "INFO", "WARN", "ERROR"] {
        assert!(!after.contains(level), "{after:?}");
    }
    let (_, next) = after.split_once("Next:").expect("next steps");
    assert!(next.contains("postrider status --db shop.db"), "{next:?}");
    assert!(next.contains("postrider dead ls --queue shop_orders --db shop.db"), "{next:?}");
    assert!(after.find("It all adds up.") < after.find("Next:"), "{after:?}");
}

#[test]
fn no_color_is_respected() {
    let seen = drawn("1");
    for code in ["\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[38"] {
        assert!(!seen.contains(code), "{seen:?}");
    }
}
