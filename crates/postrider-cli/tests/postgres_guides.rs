//! The commands in the shell blocks of the guides, run on a database that has something to show for each.
//!
//! Walkthroughs, whose commands depend on each other, are run as a whole: see `daemon_walkthrough.rs` and `sqlite_readme.rs`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{postgres::PostgresStore, schema::Schema};
use postrider_testkit::{
    documents::{self, Page},
    postgres::TestDatabase,
};
use std::{path::Path, process::Command};
use support::shop::Shop;

/// Pages whose blocks are run elsewhere, wholly or in part.
const WALKTHROUGHS: [&str; 3] = ["README.md", "docs/guides/daemon.md", "docs/guides/outage.md"];

/// Runs a line as written, in a shell. A reader stops `tail` with Ctrl-C, and confirms a requeue: here a flag does.
fn run(line: &str, folder: &Path, url: &str) -> (i32, String) {
    let line =
        line.replace("postgres://localhost/shop", "$POSTRIDER_DB").replace("/var/lib/node_exporter", ".");
    let line = match line.strip_prefix("postrider tail ") {
        Some(arguments) => format!("postrider tail --for 100ms {arguments}"),
        None if line.starts_with("postrider dead requeue")
            && !line.contains("--dry-run")
            && !line.contains("--yes") =>
        {
            format!("{line} --yes")
        }
        None => line,
    };
    let program = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-eu", "-o", "pipefail", "-c", &format!("exec 2>&1 </dev/null; {line}")]);
    bash.current_dir(folder).env("PATH", path).env("USER", "nell").env("POSTRIDER_DB", url);
    for setting in ["POSTRIDER_CONFIG", "POSTRIDER_LOG", "POSTRIDER_BEHIND_POOLER"] {
        bash.env_remove(setting);
    }
    let output = bash.output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

/// Runs the shell blocks of a page, from the first line to the last, and returns the number of commands. Findings and
/// thresholds have exit codes of their own.
async fn run_blocks(page: &Page) -> usize {
    let blocks: Vec<_> = page.blocks().into_iter().filter(|block| block.language.starts_with("sh")).collect();
    let lines = blocks.iter().flat_map(|block| block.text.lines());
    let commands: Vec<_> =
        lines.filter(|line| line.starts_with("postrider ") || line.starts_with("mv ")).collect();
    if commands.is_empty() {
        return 0;
    }
    let (shop, database) = (Shop::of_the_guides().await, TestDatabase::empty().await);
    let store = PostgresStore::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    store.close().await;
    for line in &commands {
        let (code, printed) = run(line, shop.folder.path(), database.url());
        let may_find = line.starts_with("postrider doctor") || line.starts_with("postrider check");
        assert!(code == 0 || (may_find && (1..=3).contains(&code)), "{line}: exit code {code}\n{printed}");
        assert!(!printed.contains("error:"), "{line}\n{printed}");
    }
    commands.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_in_shell_blocks_work_as_printed() {
    let mut count = 0;
    for page in documents::pages().iter().filter(|page| !WALKTHROUGHS.contains(&page.name.as_str())) {
        count += run_blocks(page).await;
    }
    assert!(count > 20, "only {count} commands were found");
}

/// The part of the daemon's guide that is no walkthrough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_pause_and_resume_work_as_printed() {
    let mut guide = documents::page("docs/guides/daemon.md");
    let from = guide.text.find("postrider pause --queue").unwrap();
    guide.text.drain(..guide.text[..from].rfind("```sh").unwrap());
    assert_eq!(run_blocks(&guide).await, 4);
}
