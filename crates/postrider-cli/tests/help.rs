//! Every command has help, which says what it does, how it is called, and gives an example.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::tree::{all, below};

#[test]
fn every_command_is_as_it_was() {
    for (path, help) in all() {
        let name = if path.is_empty() { "postrider".to_owned() } else { path.join("_") };
        insta::assert_snapshot!(name, help);
    }
}

/// A command may leave the examples to the one above it.
#[test]
fn every_command_has_an_example() {
    let all = all();
    assert!(all.len() > 30, "only {} commands were found", all.len());
    let has_example = |path: &[String]| {
        let call = format!("postrider {}", path.join(" "));
        let above = all.iter().filter(|(above, _)| !above.is_empty() && path.starts_with(above));
        above.into_iter().any(|(_, help)| {
            help.split_once("Examples:").is_some_and(|(_, examples)| examples.contains(&call))
        })
    };
    let without: Vec<_> = all
        .iter()
        .filter(|(path, help)| below(help).is_empty() && !has_example(path))
        .map(|(path, _)| path.join(" "))
        .collect();
    assert!(without.is_empty(), "no example: {}", without.join(", "));
}

/// What an option does is said beside it.
#[test]
fn every_option_says_what_it_does() {
    for (path, help) in all() {
        let mut lines = help.lines().peekable();
        while let Some(line) = lines.next() {
            let is_option = line.trim_start().starts_with('-') && line.starts_with("  ");
            let says = line.trim().split_once("  ").is_some()
                || lines.peek().is_some_and(|next| next.starts_with("          "));
            assert!(!is_option || says, "{path:?}: {line}");
        }
    }
}
