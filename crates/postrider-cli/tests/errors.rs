//! How problems look: drawn on a terminal, two lines elsewhere.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;
use support::{
    program::{postrider, run},
    terminal::on_a_terminal,
};
use tempfile::{TempDir, tempdir};

fn wrong() -> TempDir {
    let folder = tempdir().unwrap();
    let text = "source = \"/shop\"\n\n[databases.shop]\nurll = \"postgres://nell:clover@db/shop\"\n\n\
                [destinations.lines]\nkind = \"stdout\"\n\n[[routes]]\nqueue = \"orders\"\n\
                to = [{ destination = \"lines\", address = \"orders\" }]\n";
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    folder
}

/// The line is shown where it stands, and the password that a slip of the finger has put under a wrong key is not.
#[test]
fn on_a_terminal_the_line_is_shown_without_its_secrets() {
    let folder = wrong();
    let mut command = postrider(&["config", "check"]);
    command.current_dir(folder.path()).env("NO_COLOR", "1");
    let (seen, ended) = on_a_terminal(command);
    assert_eq!(ended.code(), Some(1));
    insta::assert_snapshot!(seen.replace('\r', ""));
    assert!(!seen.contains("clover"), "{seen}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = wrong();
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
fn a_subcommand_with_a_slip_is_suggested() {
    for (slip, meant) in [("statsu", "status"), ("publsh", "publish")] {
        let ended = run(&mut postrider(&[slip]));
        assert_eq!(ended.code, Some(2));
        assert!(
            ended.err.contains("similar subcommand") && ended.err.contains(&format!("'{meant}'")),
            "{ended:?}"
        );
    }
    let ended = run(&mut postrider(&["dead", "requue"]));
    assert!(ended.err.contains("'requeue'"), "{ended:?}");
}
