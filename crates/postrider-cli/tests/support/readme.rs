//! The commands of the README, run as somebody types them, and what it says they print.

use std::{path::Path, process::Command};

const README: &str = include_str!("../../../../README.md");

/// Some commands, and what they print if the README says so.
#[derive(Debug)]
struct Step {
    commands: String,
    printed: Option<String>,
}

/// The blocks of commands below a heading, in order. One that begins with more than `sh` is not for a test: it installs, for one.
fn steps(heading: &str) -> Vec<Step> {
    let (_, after) = README.split_once(&format!("\n{heading}\n")).expect("the heading is there");
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

/// Runs all that stands below a heading in one shell, and compares what is printed with what should be.
pub(crate) fn walk(heading: &str, folder: &Path, settings: &[(&str, &str)]) {
    let steps = steps(heading);
    let mark = |number: usize| format!("=== step {number} ===");
    let mut script =
        "set -eu -o pipefail\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        script += &format!("echo '{}'\n{}\n", mark(number), step.commands);
    }
    let program = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(folder).env("PATH", path).env("USER", "nell").env("NO_COLOR", "1");
    for setting in ["POSTRIDER_DB", "POSTRIDER_LOG", "POSTRIDER_CONFIG", "NOTIFY_SOCKET"] {
        bash.env_remove(setting);
    }
    let output = bash.envs(settings.iter().copied()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {said}", output.status);
    for (number, step) in steps.iter().enumerate() {
        let (_, after) = said.split_once(&mark(number)).unwrap();
        let printed = after.split("=== step").next().unwrap();
        let expected = step.printed.as_deref().unwrap_or_default();
        let mut lines = printed.lines();
        for line in expected.lines().filter(|line| !line.trim().is_empty()) {
            let found = lines.any(|printed| is_like(printed.trim_end(), line.trim_end()));
            assert!(found, "not printed by\n{}\n: {line}\nbut:\n{printed}", step.commands);
        }
    }
}

/// Whether a line is as it was written, where `…` stands for anything.
fn is_like(line: &str, written: &str) -> bool {
    let mut parts = written.split('…');
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
