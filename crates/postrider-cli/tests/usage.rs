//! Invalid arguments, and failures of the environment.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::program::{postrider, run};
use tempfile::tempdir;

#[test]
fn invalid_arguments_exit_with_2_and_help() {
    for (arguments, words) in [
        (&["deliver"][..], "unrecognized subcommand"),
        (&["dev", "--rate", "0"], "1..=1000000"),
        (&["dev", "--rate", "fast"], "invalid digit"),
        (&["dev", "--for", "ten"], "write 10s, 2m, 1h"),
        (&["dev", "--for", "0s"], "between 1ms and a year"),
        (&["dev", "--concurrency", "0"], "1..=1024"),
        (&["dev", "--seed", "clover"], "--seed"),
        (&["dev", "--db", "mysql://localhost/shop"], "postgres://user@host:5432/database"),
        (&["dev", "--db", "postgres://localhost:port/shop"], "invalid URL"),
        (&["dev", "--db", ":memory:"], "omit --db"),
        (&["dev", "--verbose"], "unexpected argument"),
        (&["migrate", "up", "--db", "postgres://pooler/shop", "--behind-pooler"], "the server's own address"),
        (&[], "Usage: postrider <COMMAND>"),
    ] {
        let ended = run(&mut postrider(arguments));
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(words), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn invalid_url_is_not_repeated_with_its_password() {
    let url = "postgres://me:secret@localhost:port/shop";
    let given = run(&mut postrider(&["status", "--db", url]));
    let set = run(postrider(&["status"]).env("POSTRIDER_DB", url));
    for ended in [given, set] {
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains("--db") && ended.err.contains("invalid URL"), "{ended:?}");
        assert!(!ended.err.contains("secret"), "{ended:?}");
    }
}

#[test]
fn help_has_examples_and_version_is_printed() {
    let help = run(&mut postrider(&["dev", "--help"]));
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    assert!(help.out.contains("postrider dev --for 10s --json"), "{}", help.out);
    let version = run(&mut postrider(&["--version"]));
    assert_eq!(version.out, format!("postrider {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn unusable_database_exits_with_1_and_advice() {
    let folder = tempdir().unwrap();
    let not_a_database = folder.path().join("notes.txt");
    std::fs::write(
        &not_a_database,
        "milk, bread, and enough more to fill the header of a database file, which has a hundred bytes",
    )
    .unwrap();
    let no_folder = folder.path().join("no/such/folder/shop.db");
    for (database, what, help) in [
        (no_folder.to_str().unwrap(), "check that its directory exists", "pass a path with --db"),
        (folder.path().to_str().unwrap(), "cannot be opened", "pass a path with --db"),
        (not_a_database.to_str().unwrap(), "notes.txt", "pass the path of a SQLite database"),
        // No server listens there.
        ("postgres://me:secret@127.0.0.1:1/shop", "PostgreSQL at 127.0.0.1:1/shop", "start the server"),
    ] {
        let ended = run(&mut postrider(&["dev", "--for", "1s", "--json", "--db", database]));
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{database}: {ended:?}");
        assert!(ended.err.contains(what) && ended.err.contains(help), "{database}: {ended:?}");
        assert!(!ended.err.contains("secret"), "{ended:?}");
    }
}

#[test]
fn missing_temporary_directory_exits_with_advice() {
    let ended = run(postrider(&["dev", "--for", "1s"]).env("TMPDIR", "/no/such/folder"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("point TMPDIR to a directory"), "{ended:?}");
}
