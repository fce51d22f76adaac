//! Runs the commands of README and guides, and compares their output with the text.

use std::{path::Path, process::Command};

/// A block of commands, and its expected output if the document has one.
#[derive(Debug)]
struct Step {
    commands: String,
    printed: Option<String>,
}

/// The blocks of commands below a heading, in order. Only blocks with the language `sh` alone are run: others install, for example.
fn steps(document: &str, heading: &str) -> Vec<Step> {
    let (_, after) = document.split_once(&format!("\n{heading}\n")).expect("the heading is there");
    let section = after.split("\n## ").next().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut parts = section.split("\n```");
    parts.next();
    while let (Some(block), _) = (parts.next(), parts.next()) {
        let (kind, text) = block.split_once('\n').unwrap();
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step { commands: text.to_owned(), printed: None }),
            ("text", Some(step)) if step.printed.is_none() => step.printed = Some(text.to_owned()),
            _ => {}
        }
    }
    assert!(!steps.is_empty(), "no commands below {heading}");
    steps
}

/// Runs all commands below a heading of a document in one shell, and compares the output with the document.
pub(crate) fn walk(document: &str, heading: &str, folder: &Path, settings: &[(&str, &str)]) {
    let steps = steps(document, heading);
    let marker = |number: usize| format!("=== step {number} ===");
    let mut script =
        "set -eu -o pipefail\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        script += &format!("echo '{}'\n{}\n", marker(number), step.commands);
    }
    let program = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(folder).env("PATH", path).env("USER", "nell").env("NO_COLOR", "1");
    for setting in ["POSTRIDER_DB", "POSTRIDER_LOG", "POSTRIDER_CONFIG", "NOTIFY_SOCKET"] {
        bash.env_remove(setting);
    }
    let output = bash.envs(settings.iter().copied()).output().unwrap();
    let output_text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {output_text}", output.status);
    for (number, step) in steps.iter().enumerate() {
        let (_, after) = output_text.split_once(&marker(number)).unwrap();
        let printed = after.split("=== step").next().unwrap();
        let expected = step.printed.as_deref().unwrap_or_default();
        let mut lines = printed.lines();
        for line in expected.lines().filter(|line| !line.trim().is_empty()) {
            let found = lines.any(|printed| matches(printed.trim_end(), line.trim_end()));
            assert!(found, "not printed by\n{}\n: {line}\nbut:\n{printed}", step.commands);
        }
    }
}

/// Whether a line matches a pattern in which `…` stands for any text.
fn matches(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}
