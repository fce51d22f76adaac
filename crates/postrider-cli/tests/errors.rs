//! Error output: drawn on a terminal, two lines otherwise.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;
use support::{
    program::{postrider, run},
    terminal::on_a_terminal,
};
use tempfile::{TempDir, tempdir};

fn folder_with_a_typo() -> TempDir {
    let folder = tempdir().unwrap();
    let text = "source = \"/shop\"\n\n[databases.shop]\nurll = \"postgres://nell:clover@db/shop\"\n\n\
                [destinations.lines]\nkind = \"stdout\"\n\n[[routes]]\nqueue = \"orders\"\n\
                to = [{ destination = \"lines\", address = \"orders\" }]\n";
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    folder
}

/// The error shows the line, but not the password under a mistyped key.
#[test]
fn terminal_error_shows_the_line_without_secrets() {
    let folder = folder_with_a_typo();
    let mut command = postrider(&["config", "check"]);
    command.current_dir(folder.path()).env("NO_COLOR", "1");
    let (seen, ended) = on_a_terminal(command);
    assert_eq!(ended.code(), Some(1));
    insta::assert_snapshot!(seen.replace('\r', ""));
    assert!(!seen.contains("clover"), "{seen}");
}

#[test]
fn errors_are_coloured_only_on_terminals() {
    let folder = folder_with_a_typo();
    let mut command = postrider(&["config", "check"]);
    let (seen, _) = on_a_terminal({
        command.current_dir(folder.path());
        command
    });
    assert!(seen.contains("\x1b["), "{seen:?}");
    let piped = run(postrider(&["config", "check"]).current_dir(folder.path()));
    assert!(!piped.err.contains('\x1b'), "{piped:?}");
    assert!(piped.err.starts_with("error[config]: postrider.toml:"), "{piped:?}");
}

#[test]
fn mistyped_subcommand_gets_a_suggestion() {
    for (typo, meant) in [("statsu", "status"), ("publsh", "publish")] {
        let ended = run(&mut postrider(&[typo]));
        assert_eq!(ended.code, Some(2));
        assert!(
            ended.err.contains("similar subcommand") && ended.err.contains(&format!("'{meant}'")),
            "{ended:?}"
        );
    }
    let ended = run(&mut postrider(&["dead", "requue"]));
    assert!(ended.err.contains("'requeue'"), "{ended:?}");
}
