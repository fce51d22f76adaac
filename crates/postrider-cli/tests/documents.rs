//! Every `postrider …` command in README and guides is one that the program accepts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "docs/guides"] {
        paths.extend(fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths
}

/// The words of a command line, up to a comment, a pipe, a redirection or another command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '#' | '|' | '>' | '&' | ';' | '(' | ')') => break,
            (None, ' ') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The commands of a page: in blocks of shell, and between backticks.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2).filter(|block| block.starts_with("sh"));
    let lines = blocks.flat_map(str::lines).map(str::trim).filter(|line| line.starts_with("postrider "));
    let text: String = page.split("```").step_by(2).collect();
    let inline: Vec<String> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|code| code.replace('\n', " "))
        .filter(|code| code.starts_with("postrider "))
        .collect();
    lines.map(str::to_owned).chain(inline).collect()
}

/// The arguments with a value for each that the reader fills in: `…` behind a flag, and `ID`. An ellipsis elsewhere stands for more
/// arguments.
fn filled_in(words: &[String]) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for word in words {
        let is_behind_a_flag = arguments.last().is_some_and(|last| last.starts_with("--"));
        match word.as_str() {
            "…" if is_behind_a_flag => arguments.push("x".to_owned()),
            "…" => {}
            "ID" => arguments.push("01890a5d-ac96-774b-bcce-b302099a8057".to_owned()),
            word => arguments.push(word.replace('…', "x")),
        }
    }
    arguments
}

/// `--help` at the end: the program reads all flags before it, and rejects unknown ones, but does nothing.
#[test]
fn every_command_in_the_documents_is_accepted() {
    let (mut count, mut rejected) = (0, Vec::new());
    for path in documents() {
        for line in commands(&fs::read_to_string(&path).unwrap()) {
            let words = words(&line);
            if words[1..] == ["help"] {
                continue;
            }
            count += 1;
            let arguments = filled_in(&words[1..]);
            let output = Command::new(env!("CARGO_BIN_EXE_postrider"))
                .args(&arguments)
                .arg("--help")
                .env_remove("POSTRIDER_DB")
                .output()
                .unwrap();
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                rejected.push(format!(
                    "{}: {line}\n  {}",
                    path.display(),
                    error.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    assert!(count > 40, "only {count} commands were found");
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
}
