//! `docs/guides/operating.md` lists every finding of `postrider doctor`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const GUIDE: &str = include_str!("../../../docs/guides/operating.md");

/// Codes that are not string literals in a call of `Finding`.
const IN_TABLES: [&str; 5] =
    ["message_ttl", "expiring_queue", "unresolvable", "bad_certificate", "no_refused_queue"];

fn documented() -> BTreeSet<String> {
    let cells = GUIDE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(code, _)| code.to_owned()).collect()
}

/// The in-memory transport is left out: the program does not use it.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.is_dir() {
            true if name == "memory" => {}
            true => files.extend(self::files(path)),
            false => files.push(path),
        }
    }
    files
}

fn emitted() -> BTreeSet<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["../postrider-stores/src", "../postrider-transports/src", "src/commands/doctor"];
    let mut codes: BTreeSet<String> = IN_TABLES.map(str::to_owned).into();
    for file in folders.into_iter().flat_map(|folder| files(here.join(folder))) {
        let Ok(source) = fs::read_to_string(file) else { continue };
        for call in ["Finding::note(", "Finding::warning(", "Finding::problem(", "        code: "] {
            let after = source.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            codes.extend(after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    codes
}

#[test]
fn every_finding_is_documented() {
    assert_eq!(emitted(), documented());
}
