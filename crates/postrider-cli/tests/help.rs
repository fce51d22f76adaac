//! Every command has help with a description, its usage and an example.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{
    program::{postrider, run},
    tree::{all, below},
};

#[test]
fn help_of_every_command_matches_snapshot() {
    for (path, _) in all() {
        let name = if path.is_empty() { "postrider".to_owned() } else { path.join("_") };
        let arguments: Vec<_> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = run(postrider(&arguments).env("COLUMNS", "80")).out;
        insta::assert_snapshot!(name, help);
    }
}

/// The examples of a subcommand may stand in the help of its parent.
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

/// The description stands beside the option, or on the next line.
#[test]
fn every_option_has_a_description() {
    for (path, help) in all() {
        let (_, options) = help.split_once("\nOptions:").unwrap_or(("", &help));
        let (options, _) = options.split_once("\nExamples:").unwrap_or((options, ""));
        let mut lines = options.lines().peekable();
        while let Some(line) = lines.next() {
            let is_option = line.trim_start().starts_with('-') && line.starts_with("  ");
            let has_description = line.trim().split_once("  ").is_some()
                || lines.peek().is_some_and(|next| next.starts_with("          "));
            assert!(!is_option || has_description, "{path:?}: {line}");
        }
    }
}
