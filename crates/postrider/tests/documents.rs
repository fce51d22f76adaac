//! README and guides: their size and order, their links, and the cargo commands in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use cargo_metadata::MetadataCommand;
use postrider_testkit::documents::{self, Page};
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
    let changelog =
        Page { name: "CHANGELOG.md".to_owned(), text: include_str!("../../../CHANGELOG.md").to_owned() };
    let pages = documents::pages().into_iter().chain([changelog]);
    pages.map(|page| (root().join(page.name), page.text)).collect()
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

/// Cargo accepts every printed `cargo run --example`: the package is named, the example exists, and its features are enabled. A test
/// runs each of these examples.
#[test]
fn examples_in_documents_can_be_run_as_printed() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "postrider").unwrap();
    let default: BTreeSet<_> = package.features["default"].iter().map(String::as_str).collect();
    let tests: String = fs::read_dir(root().join("crates/postrider/tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let commands = documents::commands("cargo run");
    let examples: Vec<_> =
        commands.iter().filter_map(|command| Some((command, command.after("--example")?))).collect();
    assert!(examples.len() > 10, "only {} commands were found", examples.len());
    for (command, name) in examples {
        assert_eq!(command.after("-p"), Some("postrider"), "{command}");
        let example = package.targets.iter().find(|target| target.name == name);
        let example = example.unwrap_or_else(|| panic!("{command}: no such example"));
        let given: BTreeSet<_> = command
            .after("--features")
            .into_iter()
            .flat_map(|features| features.split(','))
            .chain(default.iter().copied())
            .collect();
        let missing: Vec<_> =
            example.required_features.iter().filter(|feature| !given.contains(feature.as_str())).collect();
        assert!(missing.is_empty(), "{command}: needs {missing:?}");
        assert!(tests.contains(&format!("\"{name}\"")), "{command}: no test runs it");
    }
}

/// Blocks of code have a language and commands that a test runs, compiles or checks; those of a new kind need a test of their own.
#[test]
fn blocks_of_documents_are_of_a_kind_that_tests_run() {
    let doctests = include_str!("../src/lib.rs");
    // `text` and `json` show output, but for the settings of Redis; the suites of `rust,ignore` are run by the tests of the memory
    // store and of the memory transport.
    let languages = ["sh", "sh once", "sql", "toml", "ini", "text", "json", "mermaid"];
    let tools = ["postrider", "cargo", "kafka-topics.sh", "nats", "mv", "export"];
    // Their blocks are run as a whole.
    let walkthroughs = ["README.md", "docs/guides/daemon.md", "docs/guides/outage.md"];
    let mut unknown = Vec::new();
    for page in documents::pages() {
        for block in page.blocks() {
            let is_known = match block.language.as_str() {
                "rust" | "rust,no_run" => doctests.contains(&format!("/{}\")]", page.name)),
                "rust,ignore" => block.text.lines().all(|line| line.starts_with("postrider_testkit::")),
                "sh" | "sh once" if !walkthroughs.contains(&page.name.as_str()) => {
                    let joined = block.text.replace("\\\n", " ");
                    let mut commands = joined.lines().filter_map(|line| line.split_whitespace().next());
                    commands.all(|command| tools.contains(&command))
                }
                language => languages.contains(&language),
            };
            if !is_known {
                unknown.push(format!("{}: {}\n{}", page.name, block.language, block.text));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// The manifest lines of the guides name packages of our build, with features that these have.
#[test]
fn manifest_lines_in_documents_are_valid() {
    let metadata = MetadataCommand::new().exec().unwrap();
    let pages = documents::pages();
    let blocks = pages.iter().flat_map(Page::blocks).filter(|block| block.language == "toml");
    let lines: Vec<_> = blocks
        .flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.contains("{ version = "))
        .collect();
    assert!(!lines.is_empty(), "no line was found");
    for line in lines {
        let (name, rest) = line.split_once(" = ").unwrap();
        let quoted: Vec<_> = rest.split('"').skip(1).step_by(2).collect();
        let package = metadata.packages.iter().find(|package| package.name.as_str() == name).unwrap();
        let [version, features @ ..] = &quoted[..] else { panic!("{line}: has no version") };
        assert!(package.version.to_string().starts_with(version), "{line}: we build {}", package.version);
        let unknown: Vec<_> =
            features.iter().filter(|feature| !package.features.contains_key(**feature)).collect();
        assert!(unknown.is_empty(), "{line}: {name} has no {unknown:?}");
    }
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
