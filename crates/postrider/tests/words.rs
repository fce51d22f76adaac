//! The vocabulary of the project: `docs/glossary.md` has the words, and this test finds others in names, help, log messages and
//! documentation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Names of types and modules that say nothing to an engineer of the field, each with the word to use.
const TYPES: &[(&str, &str)] = &[
    ("Abilities", "Capabilities"),
    ("Answer", "Ack, Reply or PublishResult"),
    ("Clerk", "a noun for the task"),
    ("Clue", "FindBy"),
    ("Courier", "a noun for the part"),
    ("Desk", "buffer, queue or client"),
    ("Docket", "FollowUpRow"),
    ("Ear", "Listener"),
    ("Fate", "StageOutcome"),
    ("Fleet", "Supervisor"),
    ("Found", "a noun"),
    ("Hall", "Dispatcher"),
    ("Hole", "Placeholder"),
    ("Lent", "a noun"),
    ("Letter", "DecodedMessage"),
    ("Mail", "InFlightMessage"),
    ("Mender", "Repair"),
    ("Pace", "RateLimiter"),
    ("Parcel", "ReceivedMessage"),
    ("Plot", "a noun"),
    ("Rested", "Prepared"),
    ("Sack", "Submission"),
    ("Shelf", "OffsetTracker, InFlight or registry"),
    ("Sleeper", "IdleWorker"),
    ("Slip", "a noun"),
    ("Ticket", "AckHandle"),
    ("Told", "a noun"),
    ("Trouble", "Outage or an error"),
    ("Wake", "Notifier"),
    ("Which", "a filter"),
];

/// Names of functions of the old vocabulary, each with the word to use.
const FUNCTIONS: &[(&str, &str)] = &[
    ("hurry", "flush"),
    ("lie_down", "register_idle"),
    ("mend", "fix"),
    ("rise", "deregister_idle"),
    ("run_once", "run_until_idle or run_batch"),
    ("stir", "notify"),
    ("tell", "log, report or send"),
    ("told", "a verb that says what is returned"),
    ("traps", "warnings"),
];

/// Words of the old vocabulary in text, each with the word to use.
const PHRASES: &[(&str, &str)] = &[
    ("come again", "is redelivered"),
    ("comes again", "is redelivered"),
    ("counts more than", "overrides"),
    ("for ever", "forever, or without limit"),
    ("for good", "permanently"),
    ("gets through", "is available"),
    ("get through", "is available"),
    ("handed back", "released or nacked"),
    ("in anybody's hands", "leased"),
    ("in hand", "in flight"),
    ("in nobody's hands", "not leased"),
    ("in somebody's hands", "leased or in flight"),
    ("in vain", "without effect"),
    ("lapsed", "expired"),
    ("lies down", "becomes idle"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("put off", "rescheduled or snoozed"),
    ("seldom as meant", "rarely as intended"),
    ("so many", "a number"),
    ("tried again", "retried"),
    ("unless said otherwise", "by default"),
    ("waits for a hand", "needs manual intervention"),
    ("what holds", "the effective value"),
    ("whoever", "the process, the operator, the caller"),
];

/// Terms that a reader searches for. Each must be in the documentation.
const TERMS: &[&str] = &[
    "ack",
    "nack",
    "reject",
    "redeliver",
    "in flight",
    "concurrency",
    "prefetch",
    "batch size",
    "rate limit",
    "circuit breaker",
    "half-open",
    "probe",
    "outage",
    "unavailable",
    "backoff",
    "retry",
    "attempt",
    "delivery",
    "ack deadline",
    "visibility timeout",
    "lease expired",
    "graceful shutdown",
    "drain timeout",
    "liveness",
    "readiness",
    "health",
    "CA bundle",
    "client certificate",
    "mTLS",
    "system roots",
    "authenticate",
    "credentials",
    "permission",
    "grant",
    "fix",
    "remedy",
    "needs attention",
    "manual intervention",
    "placeholder",
    "default",
    "override",
    "effective value",
    "warning",
    "listener",
    "LISTEN",
    "notification",
    "idle worker",
    "deduplication record",
    "buffer",
    "dispatcher",
    "batcher",
    "registry",
    "supervisor",
    "connection",
    "session",
    "publish result",
    "acceptance",
    "position",
    "pending",
    "leased",
    "scheduled",
    "park",
    "low-water mark",
    "permanently",
    "backlog",
    "lag",
    "dead letter",
    "exactly once",
    "idempotency key",
];

/// The public crates: a name is public once.
const PUBLIC: [&str; 6] = [
    "postrider-core",
    "postrider-stores",
    "postrider-tls",
    "postrider-transports",
    "postrider-engine",
    "postrider-testing",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file below a folder with one of these endings, sources of this test excepted.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() {
            if name != "target" && name != "peers" && !name.starts_with('.') {
                found.extend(files(&entry, endings));
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) && name != "words.rs" {
            found.push(entry);
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    ["crates", "examples", "bench", "soak", "xtask"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), &[".rs"]))
        .map(|path| (path.strip_prefix(root()).unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect()
}

/// README and docs, without the changelog and the glossary, which may name an old word beside the new one.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = files(&root().join("docs"), &[".md"]);
    paths.push(root().join("README.md"));
    paths
        .into_iter()
        .filter(|path| !path.ends_with("glossary.md"))
        .map(|path| (path.strip_prefix(root()).unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect()
}

/// The identifier that follows one of these keywords in a line of code.
fn declared<'l>(line: &'l str, keywords: &[&str]) -> Option<(&'l str, &'l str)> {
    let code = line.trim_start();
    let code = code.strip_prefix("pub").map_or(code, |rest| match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    });
    let mut words = code.split_whitespace();
    let mut word = words.next()?;
    while ["async", "const", "unsafe"].contains(&word) && !keywords.contains(&word) {
        word = words.next()?;
    }
    keywords.contains(&word).then_some(())?;
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then(|| (word, &name[..end]))
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "{} places:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn types_and_functions_are_named_in_the_fields_words() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let at = || format!("{}:{}", path.display(), number + 1);
            if let Some((_, name)) = declared(line, &["struct", "enum", "trait", "type"])
                && let Some((_, say)) = TYPES.iter().find(|(word, _)| *word == name)
            {
                problems.push(format!("{}: type {name}: say {say}", at()));
            }
            if let Some((_, name)) = declared(line, &["mod"])
                && let Some((word, say)) = TYPES.iter().find(|(word, _)| word.to_lowercase() == name)
            {
                problems.push(format!("{}: module {name} ({word}): say {say}", at()));
            }
            if let Some((_, name)) = declared(line, &["fn"])
                && let Some((_, say)) = FUNCTIONS.iter().find(|(word, _)| *word == name)
            {
                problems.push(format!("{}: function {name}: say {say}", at()));
            }
        }
    }
    report(&problems);
}

#[test]
fn test_names_say_feature_condition_and_result() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let mut after_attribute = false;
        for (number, line) in text.lines().enumerate() {
            let is_attribute = line.trim_start().starts_with("#[");
            after_attribute |= is_attribute && line.contains("test");
            if let Some((_, name)) = declared(line, &["fn"]) {
                let is_case = after_attribute || path.starts_with("crates/postrider-testkit/src");
                if is_case && ["what_", "who_", "whoever_"].iter().any(|start| name.starts_with(start)) {
                    problems.push(format!("{}:{}: {name}", path.display(), number + 1));
                }
                after_attribute = false;
            } else if !is_attribute {
                after_attribute = false;
            }
        }
    }
    report(&problems);
}

#[test]
fn public_type_names_are_unique() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let of = path.to_string_lossy().into_owned();
        if !PUBLIC.iter().any(|name| of.starts_with(&format!("crates/{name}/src"))) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("pub ")
                && let Some((_, name)) = declared(line, &["struct", "enum", "trait", "type"])
            {
                places.entry(name.to_owned()).or_default().push(format!("{of}:{}", number + 1));
            }
        }
    }
    let twice: Vec<_> = places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    report(&twice);
}

/// Comments, help and log messages are text, too: every line of a source is read.
#[test]
fn text_uses_the_fields_words() {
    let mut problems = Vec::new();
    let help = files(&root().join("crates/postrider-cli/tests/snapshots"), &[".snap"])
        .into_iter()
        .map(|path| (path.strip_prefix(root()).unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
    let toml = files(&root().join("crates/postrider-cli/src"), &[".toml"])
        .into_iter()
        .map(|path| (path.strip_prefix(root()).unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
    for (path, text) in sources().into_iter().chain(documents()).chain(help).chain(toml) {
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for (phrase, say) in PHRASES {
                if contains_words(&lower, phrase) {
                    problems.push(format!("{}:{}: \"{phrase}\": say {say}", path.display(), number + 1));
                }
            }
        }
    }
    report(&problems);
}

/// Whether a text contains these words, as whole words.
fn contains_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + phrase.len()..].chars().next();
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[test]
fn documentation_has_every_term_of_the_field() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let documents = documents().into_iter().map(|(_, text)| text).chain([glossary]);
    let text = documents.collect::<Vec<_>>().join("\n").to_lowercase();
    let missing: Vec<_> = TERMS
        .iter()
        .filter(|term| !text.contains(&term.to_lowercase()))
        .map(|term| (*term).to_owned())
        .collect();
    report(&missing);
}

/// Negative control: each check finds what it is for.
#[test]
fn checks_find_words_of_the_old_vocabulary() {
    assert_eq!(declared("    pub(super) async fn told(&self) {", &["fn"]), Some(("fn", "told")));
    assert_eq!(declared("pub struct Desk<T> {", &["struct"]), Some(("struct", "Desk")));
    assert_eq!(declared("// a struct Desk", &["struct"]), None);
    assert!(contains_words("a message comes again.", "comes again"));
    assert!(!contains_words("the lapsed_leases column", "lapsed"));
}
