//! README and guides: their size and order, their links, and the cargo commands in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use cargo_metadata::MetadataCommand;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const README: &str = include_str!("../../../README.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README, CHANGELOG and every page below docs.
fn documents() -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut paths = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    collect(&root().join("docs"), &mut paths);
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn readme_is_short_and_in_the_order_of_a_readers_questions() {
    let lines = README.lines().count();
    assert!(lines <= 220, "the README has {lines} lines");
    let headings: Vec<_> = README.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let expected = [
        "See it work",
        "Sixty seconds: plain SQL in, broker out",
        "In Rust",
        "Why not …",
        "Guarantees",
        "When something breaks",
        "Supported",
        "Numbers",
        "Documentation",
        "Contributing",
        "License",
    ];
    assert_eq!(headings, expected);
}

/// Every relative link leads to a file, and every anchor to a heading of it.
#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.contains(' ') || target.is_empty() {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let Ok(content) = (if file.is_dir() { Ok(String::new()) } else { fs::read_to_string(&file) })
            else {
                broken.push(format!("{}: {target}", path.display()));
                continue;
            };
            if !anchor.is_empty() && !anchors(&content).contains(anchor) {
                broken.push(format!("{}: {target}: no such heading", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The anchors of a page, as renderers make them of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The commands of a page that begin with these words, in blocks and between backticks.
fn commands(page: &str, begin: &str) -> Vec<String> {
    let inline = page.split('`').filter(|text| text.starts_with(begin));
    let blocks = page.lines().map(str::trim).filter(|line| line.starts_with(begin));
    inline
        .chain(blocks)
        .map(|text| {
            text.lines().next().unwrap_or_default().split(" #").next().unwrap_or_default().trim().to_owned()
        })
        .collect()
}

/// Cargo accepts every printed `cargo run --example`: the package is named, the example exists, and its features are enabled.
#[test]
fn examples_in_documents_can_be_run_as_printed() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "postrider").unwrap();
    let default: BTreeSet<_> = package.features["default"].iter().map(String::as_str).collect();
    let mut count = 0;
    for (path, text) in documents() {
        for command in
            commands(&text, "cargo run").into_iter().filter(|command| command.contains("--example"))
        {
            count += 1;
            let at = format!("{}: {command}", path.display());
            let words: Vec<_> = command.split_whitespace().collect();
            let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
            assert_eq!(after("-p"), Some("postrider"), "{at}");
            let name = after("--example").unwrap();
            let example = package.targets.iter().find(|target| target.name == name);
            let example = example.unwrap_or_else(|| panic!("{at}: no such example"));
            let given: BTreeSet<_> = after("--features")
                .into_iter()
                .flat_map(|features| features.split(','))
                .chain(default.iter().copied())
                .collect();
            let missing: Vec<_> = example
                .required_features
                .iter()
                .filter(|feature| !given.contains(feature.as_str()))
                .collect();
            assert!(missing.is_empty(), "{at}: needs {missing:?}");
            if name.ends_with("_broker") {
                let arguments = words.iter().skip_while(|word| **word != "--").skip(1).count();
                assert_eq!(arguments, 3, "{at}");
            }
        }
    }
    assert!(count > 10, "only {count} commands were found");
}

/// A page that names a source file names one that exists.
#[test]
fn source_files_named_in_documents_exist() {
    fn collect(folder: &Path, names: &mut BTreeSet<String>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !path.is_dir() {
                names.insert(name);
            } else if name != "target" && !name.starts_with('.') {
                collect(&path, names);
            }
        }
    }
    let mut names = BTreeSet::new();
    collect(&root(), &mut names);
    let mut missing = Vec::new();
    for (path, text) in documents().into_iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md")) {
        for code in text.split('`').skip(1).step_by(2) {
            let name = code.rsplit('/').next().unwrap_or_default();
            let is_name = name.chars().all(|c| c.is_alphanumeric() || ['_', '.', '-'].contains(&c));
            if is_name && (name.ends_with(".rs") || name.ends_with(".sql")) && !names.contains(name) {
                missing.push(format!("{}: {code}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
