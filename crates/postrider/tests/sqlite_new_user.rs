//! A new user's walk: an empty folder, `cargo new`, the dependencies and the code of the README, and it runs against SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const README: &str = include_str!("../../../README.md");

/// The first block of this kind below a heading.
fn block(heading: &str, kind: &str) -> &'static str {
    let (_, section) = README.split_once(&format!("\n{heading}\n")).expect("the README has the heading");
    let (_, block) = section.split_once(&format!("```{kind}\n")).expect("the section has the block");
    block.split_once("```").unwrap().0
}

/// Runs cargo as a user would, with the packages that this workspace has fetched.
fn cargo(folder: &Path, target: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_NET_OFFLINE", "true")
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {}: {errors}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn readme_dependencies_and_code_run_in_a_new_project() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Kept between runs, so that only the first one compiles the dependencies.
    let target: PathBuf = workspace.join("target/new-user");
    cargo(folder.path(), &target, &["new", "--quiet", "shop"]);
    let shop = folder.path().join("shop");
    // The versions that this workspace was tested with.
    fs::copy(workspace.join("Cargo.lock"), shop.join("Cargo.lock")).unwrap();

    let commands = block("## In Rust", "sh once");
    let commands: Vec<&str> =
        commands.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
    assert!(commands.contains(&"cargo add postrider"), "{commands:?}");
    for command in commands {
        let mut arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
        let path = workspace.join("crates/postrider");
        if arguments == ["add", "postrider"] {
            arguments = vec!["add", "--quiet", "--path", path.to_str().unwrap()];
        }
        cargo(&shop, &target, &arguments);
    }
    fs::write(shop.join("src/main.rs"), block("## In Rust", "rust,no_run")).unwrap();
    let printed = cargo(&shop, &target, &["run", "--quiet"]);
    let (confirmation, event) = printed.split_once('\n').unwrap();
    assert_eq!(confirmation, "confirming order 17, attempt 1");
    assert!(event.contains("shipment.requested"), "{event}");
}
