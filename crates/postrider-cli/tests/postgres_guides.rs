//! The commands in the shell blocks of the guides, run on a database that has something to show for each.
//!
//! Walkthroughs, whose commands depend on each other, are run as a whole: see `daemon_walkthrough.rs` and `sqlite_readme.rs`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{
    FollowUp, Message, MessageId, QueuePolicy, Reason, Reference, postgres::PostgresStore, schema::Schema,
};
use postrider_testkit::postgres::TestDatabase;
use std::{fs, path::Path, process::Command, time::Duration};
use support::shop::{Shop, queue};

/// The id of a message in the guides.
const ID: &str = "0190f3a1-7b5c-7cc1-9f0e-3d2a5b6c7d8e";

/// `shop.db` with kept messages, dead letters and abandoned follow-ups, and a configuration file.
async fn shop() -> Shop {
    let shop = Shop::open().await;
    let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(3600));
    shop.store.declare(&queue("orders"), &keeping).await.unwrap();
    let order = || Message::builder("orders").event_type("order.placed").key("order-17").json(&17);
    shop.stage([order()]).await;
    assert_eq!(shop.deliver("orders").await, 1);
    let id: MessageId = ID.parse().unwrap();
    shop.stage([order().id(id), order()]).await;
    shop.bury("orders", Reason::Rejected, "no such address: Elm Street 7").await;
    let erase = |reference| {
        FollowUp::new("customer-17", "payments", "erase", Reference::new("customer", reference)).unwrap()
    };
    shop.stage([erase("cus_17").with_id(id), erase("cus_18")]).await;
    shop.bury("follow-ups", Reason::RetriesExhausted, "timeout").await;
    let file = "source = \"/shop\"\n\n[databases.shop]\nurl = \"shop.db\"\n\n[destinations.hooks]\nkind = \"stdout\"\n\n\
                [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"hooks\", address = \"orders\" }]\n";
    fs::write(shop.folder.path().join("postrider.toml"), file).unwrap();
    shop
}

/// The lines of all shell blocks of a page.
fn lines(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```").skip(1).step_by(2).filter(|block| block.starts_with("sh"));
    blocks.flat_map(|block| block.lines().skip(1)).filter(|line| !line.trim().is_empty())
}

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

/// Runs the shell blocks of a page, from the first line to the last. Findings and thresholds have exit codes of their own.
async fn run_page(page: &str) {
    let (shop, database) = (shop().await, TestDatabase::empty().await);
    let store = PostgresStore::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    store.close().await;
    let mut count = 0;
    for line in lines(page).filter(|line| line.starts_with("postrider ") || line.starts_with("mv ")) {
        let (code, printed) = run(line, shop.folder.path(), database.url());
        let may_find = line.starts_with("postrider doctor") || line.starts_with("postrider check");
        assert!(code == 0 || (may_find && (1..=3).contains(&code)), "{line}: exit code {code}\n{printed}");
        assert!(!printed.contains("error:"), "{line}\n{printed}");
        count += 1;
    }
    assert!(count > 0, "no command was found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_dead_letter_guide_work_as_written() {
    run_page(include_str!("../../../docs/guides/dead-letters.md")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_operating_guide_work_as_written() {
    run_page(include_str!("../../../docs/guides/operating.md")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_saga_guide_work_as_written() {
    run_page(include_str!("../../../docs/guides/sagas.md")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_upgrade_page_work_as_written() {
    run_page(include_str!("../../../docs/upgrades.md")).await;
}

/// The part of the daemon's guide that is no walkthrough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_pause_and_resume_work_as_written() {
    let guide = include_str!("../../../docs/guides/daemon.md");
    let from = guide.find("postrider pause --queue").unwrap();
    run_page(&guide[guide[..from].rfind("```sh").unwrap()..]).await;
}
