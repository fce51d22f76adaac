//! Every promise names its proof: the tests that `docs/guarantees.md` names exist.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of all tests and of all cases of suites, each with the file or module that it stands in: `staging::it_works`.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    for crate_ in crates.chain([root().join("soak")]) {
        for folder in ["src", "tests"] {
            collect(&crate_.join(folder), &mut found);
        }
    }
    found
}

fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    let Ok(files) = std::fs::read_dir(folder) else { return };
    for file in files {
        let path = file.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let module = path.file_stem().unwrap().to_string_lossy().into_owned();
            let is_suite = path.to_string_lossy().contains("postrider-testkit/src/");
            let mut is_test = false;
            for line in text.lines().map(str::trim_start) {
                if line.starts_with("#[") {
                    is_test |= line.contains("test");
                    continue;
                }
                let is_case = is_suite && line.starts_with("pub async fn ");
                let line = line.strip_prefix("pub ").unwrap_or(line);
                let line = line.strip_prefix("async ").unwrap_or(line);
                if let Some(rest) = line.strip_prefix("fn ")
                    && (is_test || is_case)
                {
                    let name = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_');
                    found.insert(format!("{module}::{}", name.collect::<String>()));
                }
                is_test &= line.is_empty() || line.starts_with("//");
            }
        }
    }
}

/// What stands between backticks and looks like a test: `module::name`.
fn named(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|each| each.contains("::") && !each.contains(' ')).map(str::to_owned).collect()
}

#[test]
fn every_test_named_in_the_guarantees_exists() {
    let text = std::fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let (named, tests) = (named(&text), tests());
    assert!(named.len() > 50, "only {} tests are named", named.len());
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/guarantees.md names tests that do not exist: {missing:#?}");
}

/// Every promise has a section with at least three proofs.
#[test]
fn every_promise_has_proofs() {
    let text = std::fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    for promise in 1..=10 {
        let heading = format!("### {promise}. ");
        let section = text.split(&heading).nth(1).unwrap_or_else(|| panic!("no section {heading:?}"));
        let section = section.split("\n### ").next().unwrap();
        assert!(named(section).len() >= 3, "promise {promise} has only {} proofs", named(section).len());
    }
}
