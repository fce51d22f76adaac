//! Running programs of other languages. A missing program is a failure, like a missing server.

#![allow(dead_code, reason = "each test that shares this file takes what it needs")]

use std::process::Command;

pub(crate) const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/polyglot");

/// Runs a program to its end, and answers with what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        let package = match command.get_program().to_string_lossy().as_ref() {
            "npm" => "npm",
            "node" => "nodejs",
            _ => "python3",
        };
        panic!("{command:?} does not start ({error}): install the Debian package {package}")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed (pip is in the Debian package python3-pip): {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}
