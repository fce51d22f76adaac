//! `postrider top` and `postrider bench`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use support::{
    program::{postrider, run},
    terminal::{FullScreenOutput, full_screen, interrupted_on_a_terminal, on_a_terminal},
};
use tempfile::{TempDir, tempdir};

/// A database with one message that is due.
fn shop() -> (TempDir, String) {
    let folder = tempdir().unwrap();
    let db = folder.path().join("shop.db").to_str().unwrap().to_owned();
    std::fs::File::create(&db).unwrap();
    assert_eq!(run(&mut postrider(&["migrate", "up", "--db", &db])).code, Some(0));
    let publish = ["publish", "orders", "--json-body", "17", "--db", &db];
    assert_eq!(run(&mut postrider(&publish)).code, Some(0));
    (folder, db)
}

#[test]
fn each_sample_is_a_json_object() {
    let (_folder, db) = shop();
    let ended = run(&mut postrider(&["top", "--db", &db, "--every", "1ms", "--count", "3", "--jsonl"]));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let samples: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(samples.len(), 3);
    for sample in &samples {
        assert_eq!(sample["version"], 1);
        assert_eq!(sample["queues"][0]["queue"], "orders");
        assert_eq!(sample["queues"][0]["pending"]["count"], 1);
    }
    assert!(samples[0]["queues"][0]["pending_per_second"].is_null(), "{}", samples[0]);
    assert_eq!(samples[1]["queues"][0]["pending_per_second"], 0.0);
}

#[test]
fn terminal_is_drawn_on_and_restored() {
    let (_folder, db) = shop();
    let mut command = postrider(&["top", "--db", &db, "--every", "1ms", "--count", "2"]);
    command.env("NO_COLOR", "1");
    let (seen, ended) = on_a_terminal(command);
    assert!(ended.success(), "{seen:?}");
    let FullScreenOutput { frames, drawn, after } = full_screen(&seen);
    assert_eq!((frames.len(), after.as_str()), (2, ""), "{seen:?}");
    for frame in frames {
        assert!(frame.starts_with("postrider top  SQLite in"), "{frame}");
        assert!(frame.contains("orders") && frame.contains("PENDING"), "{frame}");
    }
    assert!(!drawn.contains("\x1b[1m"), "{drawn:?}");
}

#[test]
fn interrupt_restores_the_terminal() {
    let (_folder, db) = shop();
    let (seen, ended) = interrupted_on_a_terminal(postrider(&["top", "--db", &db]));
    assert_eq!(ended.code(), Some(130), "{seen:?}");
    let FullScreenOutput { frames, after, .. } = full_screen(&seen);
    assert!(frames[0].contains("Ctrl-C to quit") && after.is_empty(), "{seen:?}");
}

#[test]
fn sample_that_is_not_on_a_full_screen_is_text() {
    let (_folder, db) = shop();
    let top = ["top", "--db", &db, "--count", "1"];
    let piped = run(&mut postrider(&top)).out;
    let mut command = postrider(&top);
    command.env("TERM", "dumb");
    let (on_a_dumb_terminal, _) = on_a_terminal(command);
    assert!(!on_a_dumb_terminal.contains('\x1b'), "{on_a_dumb_terminal:?}");
    let lines: Vec<_> = piped.lines().collect();
    assert!(lines[0].starts_with("postrider top  SQLite in") && lines[1].is_empty(), "{piped}");
    assert_eq!(lines[2], "QUEUE   PENDING  LEASED  SCHEDULED  DEAD  BLOCKED  LAG", "{piped}");
    assert!(lines[3].starts_with("orders  1        0       0          0     0        "), "{piped}");
    assert_eq!(on_a_dumb_terminal.lines().nth(2), Some(lines[2]));
}

#[test]
fn table_is_cut_to_the_width_of_the_terminal() {
    let (_folder, db) = shop();
    let why = format!("注文 {}", "a long reason ".repeat(20));
    let pause = ["pause", "--queue", "orders", "--why", &why, "--db", &db];
    assert_eq!(run(&mut postrider(&pause)).code, Some(0));
    let paused = ["paused", "--db", &db];
    let piped = run(&mut postrider(&paused));
    assert!(piped.out.contains(why.trim_end()), "{piped:?}");
    let (seen, ended) = on_a_terminal(postrider(&paused));
    assert!(ended.success(), "{seen:?}");
    let lines: Vec<_> = seen.lines().collect();
    assert_eq!(lines.len(), piped.out.lines().count(), "{seen:?}");
    // Two characters occupy two columns each.
    assert_eq!(lines[1].chars().count(), 88, "{seen:?}");
    assert!(lines[1].ends_with('…'), "{seen:?}");
}

#[test]
fn unmigrated_database_fails_with_advice() {
    let folder = tempdir().unwrap();
    let db = folder.path().join("empty.db").to_str().unwrap().to_owned();
    std::fs::File::create(&db).unwrap();
    for command in [&["top", "--count", "1", "--db", &db][..], &["bench", "--db", &db]] {
        let ended = run(&mut postrider(command));
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.err.starts_with("error[schema]: "), "{ended:?}");
        assert!(ended.err.contains("postrider migrate up"), "{ended:?}");
    }
}

#[test]
fn bench_measures_each_phase_and_leaves_no_messages() {
    let (_folder, db) = shop();
    let bench = ["bench", "--db", &db, "--messages", "250", "--batch", "100", "--for", "200ms", "--json"];
    let ended = run(&mut postrider(&bench));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.report();
    assert_eq!(report["version"], 1);
    assert_eq!(report["staged_in_batches"]["messages"], 300);
    let singly = report["staged_singly"]["messages"].as_u64().unwrap();
    assert_eq!(report["delivered"]["messages"], singly + 300);
    for part in ["staged_singly", "staged_in_batches", "delivered"] {
        assert!(report[part]["per_second"].as_f64().unwrap() > 0.0, "{report}");
    }
    let latency = &report["latency_ms"];
    let [p50, p95, p99] = ["p50", "p95", "p99"].map(|name| latency[name].as_f64().unwrap());
    assert!(latency["messages"].as_u64() > Some(0) && p50 > 0.0 && p50 <= p95 && p95 <= p99, "{report}");

    let left = run(&mut postrider(&["status", "--db", &db, "--json"])).report();
    let queues = left["queues"].as_array().unwrap();
    let bench = queues.iter().find(|queue| queue["queue"] == "postrider-bench");
    for state in ["pending", "leased", "scheduled", "dead"] {
        assert!(bench.is_none_or(|bench| bench[state]["count"] == 0), "{left}");
    }
}

#[test]
fn bench_refuses_a_queue_that_is_not_empty() {
    let (_folder, db) = shop();
    let publish = ["publish", "postrider-bench", "--json-body", "17", "--db", &db];
    assert_eq!(run(&mut postrider(&publish)).code, Some(0));
    let ended = run(&mut postrider(&["bench", "--db", &db]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    insta::assert_snapshot!(ended.err);
}
