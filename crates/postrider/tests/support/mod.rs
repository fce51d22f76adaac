//! Runs the examples as programs, as users do.

#![allow(dead_code, reason = "each test binary uses a part")]

use postrider_testkit::documents;
use std::{path::PathBuf, process::Stdio};
use tokio::process::{Child, Command};

/// The program of an example. Cargo builds examples together with the tests.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = target.join("examples").join(example);
    assert!(program.exists(), "build the examples first: cargo build -p postrider --all-features --examples");
    program
}

fn command(example: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program(example));
    command.args(arguments).envs(variables.iter().copied()).kill_on_drop(true);
    command
}

/// Runs an example to its end and returns what it printed.
pub(crate) async fn run(example: &str, arguments: &[&str]) -> String {
    run_with(example, arguments, &[]).await
}

/// Runs an example with environment variables, in a folder of its own.
pub(crate) async fn run_with(example: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = command(example, arguments, variables).current_dir(folder.path()).output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{example} failed: {}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// Starts an example that runs until it is stopped.
pub(crate) fn start(example: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = command(example, &[], variables);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a broker example with the arguments that a guide prints, `KIND URL NAME`, but on a server and a name of the test.
pub(crate) async fn run_as_printed(guide: &str, example: &str, url: &str, name: &str) -> String {
    run_as_printed_with(guide, example, url, name, &[]).await
}

pub(crate) async fn run_as_printed_with(
    guide: &str,
    example: &str,
    url: &str,
    name: &str,
    variables: &[(&str, &str)],
) -> String {
    let page = documents::page(&format!("docs/guides/{guide}.md"));
    let commands = page.commands("cargo run -p postrider");
    let command = commands.iter().find(|command| command.after("--example") == Some(example));
    let command = command.unwrap_or_else(|| panic!("{guide} does not print {example}"));
    let printed: Vec<&str> =
        command.words.iter().skip_while(|word| *word != "--").skip(1).map(String::as_str).collect();
    let [kind, printed_url, _] = printed[..] else { panic!("{command}: expected KIND URL NAME") };
    let scheme = |url: &str| url.split("://").next().unwrap_or_default().to_owned();
    assert_eq!(scheme(printed_url), scheme(url), "{command}");
    run_with(example, &[kind, url, name], variables).await
}
