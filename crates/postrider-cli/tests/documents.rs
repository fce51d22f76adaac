//! Every `postrider …` command within a sentence of README or guides is run, on a database that has something to show for it.
//!
//! The commands of blocks are run by `postgres_guides.rs`, and those of walkthroughs by `daemon_walkthrough.rs` and
//! `sqlite_readme.rs`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider_testkit::documents::{self, PrintedCommand};
use std::fs;
use support::{
    program::AtWork,
    shop::{ID_IN_GUIDES, Shop},
};

/// The arguments of a command as a reader completes them: with a value for each placeholder, and with the arguments that the
/// sentence leaves out.
fn completed(command: &PrintedCommand) -> Vec<String> {
    let is = |begin: &[&str]| {
        command.words[1..].starts_with(&begin.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    };
    let queue = if is(&["keys"]) { "invoices" } else { "orders" };
    let mut arguments: Vec<String> = Vec::new();
    for word in &command.words[1..] {
        let value = match (word.as_str(), arguments.last().map(String::as_str)) {
            ("…" | "URL", Some("--db")) => "shop.db",
            ("…", Some("--queue")) => queue,
            ("…", Some("--destination")) => "hooks",
            ("…", Some("--why")) => "a reason",
            ("…", _) => continue,
            ("ID", _) => ID_IN_GUIDES,
            ("KEY", _) => "ann",
            (word, _) => word,
        };
        arguments.push(value.to_owned());
    }
    let left_out: &[&str] = match () {
        () if is(&["keys", "release"]) => &["--queue", "invoices", "--why", "a reason", "ann"],
        () if is(&["dead", "requeue"]) => &["--queue", "orders", "--why", "a reason", "--yes"],
        () if is(&["messages", "discard"]) => &["--queue", "orders", "--why", "a reason", "--yes"],
        () if is(&["saga", "requeue"]) => &["--why", "a reason", "--yes", ID_IN_GUIDES],
        () if is(&["resume"]) => &["--queue", "orders", "--why", "a reason"],
        () if is(&["tail"]) => &["--for", "100ms"],
        () if is(&["dev"]) => &["--for", "500ms"],
        () if is(&["bench"]) => &["--for", "100ms", "--messages", "100"],
        () if is(&["run"]) => &["--listen", "127.0.0.1:0"],
        () => &[],
    };
    let mut left_out = left_out.iter();
    while let Some(&word) = left_out.next() {
        let value = (word.starts_with("--") && word != "--yes").then(|| left_out.next().unwrap());
        if !arguments.iter().any(|given| given == word) {
            arguments.push(word.to_owned());
            arguments.extend(value.map(|&value| value.to_owned()));
        }
    }
    arguments
}

/// Runs the daemon until it is ready, and stops it as an operator does.
fn run_daemon(shop: &Shop, arguments: &[&str]) -> Result<(), String> {
    let mut daemon = AtWork::start(&mut shop.command(arguments));
    daemon.until(": ready");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    if ended.code == Some(0) { Ok(()) } else { Err(format!("{ended:?}")) }
}

async fn run(command: &PrintedCommand) -> Result<(), String> {
    let arguments = completed(command);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let shop = Shop::of_the_guides().await;
    match arguments[0] {
        "run" => return run_daemon(&shop, &arguments),
        // Only a paused queue can be resumed.
        "resume" => {
            let pause: Vec<&str> = ["pause"].into_iter().chain(arguments[1..].iter().copied()).collect();
            assert_eq!(shop.run(&pause).code, Some(0));
        }
        // The reader has no file yet.
        "config" if arguments[1] == "init" => {
            fs::remove_file(shop.folder.path().join("postrider.toml")).unwrap();
        }
        _ => {}
    }
    let ended = shop.run(&arguments);
    let has_findings = ["doctor", "check"].contains(&arguments[0]) && matches!(ended.code, Some(1..=3));
    let has_error = ended.err.contains("error:") || ended.out.contains("error:");
    if (ended.code == Some(0) || has_findings) && !has_error { Ok(()) } else { Err(format!("{ended:?}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_within_sentences_work_as_printed() {
    let mut commands: Vec<_> = documents::commands("postrider")
        .into_iter()
        .filter(|command| command.is_inline && command.words.len() > 1)
        .collect();
    commands.sort_by(|one, other| one.words.cmp(&other.words));
    commands.dedup_by(|one, other| one.words == other.words);
    assert!(commands.len() > 30, "only {} commands were found", commands.len());
    let mut failed = Vec::new();
    for command in commands {
        if let Err(ended) = run(&command).await {
            failed.push(format!("{command}\n  {ended}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
