//! A short run of the soak test, and runs with defects that its check must find.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

/// The program, with a new run in the folder.
fn soak(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.arg("--dir").arg(folder).args(arguments).stderr(Stdio::inherit()).stdin(Stdio::null());
    command.output().unwrap()
}

/// The last line of a run.
fn totals(output: &Output) -> Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(stdout.lines().last().unwrap_or_default()).unwrap()
}

#[test]
fn short_run_with_every_fault_finds_no_violation_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let goal = ["--kills", "10", "--messages", "3000"];
    let output = soak(folder.path(), &goal);
    let first = totals(&output);
    assert!(output.status.success(), "{}: {first}", output.status);
    assert!(first["kills"].as_u64().unwrap() >= 10, "{first}");
    assert!(first["messages"].as_u64().unwrap() >= 3_000, "{first}");
    assert_eq!(first["faults"].as_object().unwrap().len(), 6, "each kind of fault: {first}");
    for violation in ["lost", "invented", "double_effects", "overtaken", "wrong_outcome"] {
        assert_eq!(first[violation], 0, "{violation}");
    }

    // The goal is reached already, so nothing is done.
    let again = soak(folder.path(), &goal);
    assert_eq!(totals(&again), first);
}

/// The control: a check that has never failed proves nothing.
#[test]
fn defects_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let defects = "early-success,stage-outside-transaction,effect-outside-transaction,no-ordering";
    let output = soak(folder.path(), &["--kills", "8", "--messages", "5000", "--defects", defects]);
    let found = totals(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    for violation in ["lost", "invented", "double_effects", "overtaken"] {
        assert!(found[violation].as_u64().unwrap() > 0, "{violation}: {found}");
    }
    let evidence = std::fs::read_to_string(folder.path().join("violations.json")).unwrap();
    let evidence: Value = serde_json::from_str(&evidence).unwrap();
    assert!(evidence["violations"].as_array().unwrap().len() >= 4);
    std::fs::remove_dir_all(Path::new(evidence["database"].as_str().unwrap()).parent().unwrap()).unwrap();

    // The evidence stays until the user says so.
    let output = soak(folder.path(), &["--kills", "8"]);
    assert_eq!(output.status.code(), Some(2));
}
