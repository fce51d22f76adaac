//! The JSON output of every command, and one of its errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{FollowUp, Message, QueuePolicy, Reason, Reference, schema::Schema};
use std::{
    fs,
    time::{Duration, SystemTime},
};
use support::{
    program,
    shop::{Shop, id, order, queue, timeless},
    tree,
};

/// A command, arguments that print JSON, and arguments that fail.
struct Case {
    command: &'static str,
    /// None when the command has no JSON output, or when its numbers vary and another test checks them.
    json: Option<&'static str>,
    error: &'static str,
}

const fn case(command: &'static str, json: &'static str, error: &'static str) -> Case {
    Case { command, json: Some(json), error }
}

const fn error_only(command: &'static str, error: &'static str) -> Case {
    Case { command, json: None, error }
}

const CASES: &[Case] = &[
    case("audit ls", "--json", "--limit 0"),
    case("audit verify", "--json", "--pinned 17"),
    error_only("bench", "--messages 0"),
    case("check", "--json", "--warn-lag soon"),
    error_only("completions", "tcsh"),
    error_only("config check", "--config none.toml"),
    error_only("config init", "taken.toml"),
    error_only("config schema", "postrider.toml"),
    case("config show", "--origin --json", "--config none.toml"),
    case("dead discard", "--queue orders --yes --why old --json", "--queue orders --why old"),
    case("dead groups", "--json", "--limit none"),
    case("dead ls", "--queue orders --json", "--queue orders --reason bad"),
    case("dead requeue", "--queue orders --yes --why fixed --json", "--queue orders ID99 --why fixed"),
    case("dead show", "--queue orders ID1 --payload --json", "--queue orders ID4"),
    error_only("dev", "--rate 0"),
    case("doctor", "--json", "--as cook"),
    case("gc", "--dry-run --json", "--audit-older-than 1d"),
    case("keys blocked", "--queue invoices --json", "--queue"),
    case("keys release", "--queue invoices ann --why fixed --json", "--queue invoices bob --why fixed"),
    error_only("man", "--dir taken.toml/pages"),
    case("messages discard", "--queue orders ID4 --why late --json", "--queue orders ID99 --why late"),
    case("messages ls", "--queue orders --state scheduled --json", "--queue orders --state later"),
    case("messages requeue", "--queue orders ID1 --why fixed --json", "--queue orders ID99 --why fixed"),
    case("messages show", "--queue orders ID4 --json", "--queue orders ID99"),
    case("messages trace", "ID1 --json", "ID99"),
    error_only("migrate print", "--kind oracle"),
    case("migrate status", "--json", "--db none.db"),
    case("migrate up", "--json", "--db no/such/folder/shop.db"),
    case("migrate validate", "--json", "--db none.db"),
    case("pause", "--queue orders --why late --json", "--why late"),
    case("paused", "--json", "--limit 0"),
    case("publish", "mails --json-body 17 --json", "mails --json-body {"),
    case(
        "replay",
        "--queue orders --dry-run --why gap --json",
        "--queue orders --to nowhere --yes --why gap",
    ),
    case("resume", "--queue invoices --why refilled --json", "--queue orders --why late"),
    error_only("run", "--config none.toml"),
    case("saga abandoned", "--json", "--limit 0"),
    case("saga counts", "--json", "--db none.db"),
    case("saga ls", "--json", "--limit 0"),
    case("saga overdue", "--older-than 1ms --json", "--older-than long"),
    case("saga requeue", "ID6 --why back --json", "ID7 --why back"),
    case("saga scheduled", "--json", "--limit 0"),
    case("saga show", "customer-17 --json", "customer-18"),
    case("status", "--json", "--max-lag 5m"),
    case("tail", "--since 1h --count 1 --jsonl", "--since yesterday"),
    case("timers cancel", "--queue carts cart-17 --why bought --json", "--queue carts cart-18 --why bought"),
    case("timers ls", "--json", "--limit 0"),
    case("top", "--count 1 --jsonl", "--every 0s"),
];

/// A database with a message in every state.
async fn shop() -> Shop {
    let shop = Shop::troubled().await;
    let ordered = QueuePolicy {
        ordering: postrider::Ordering::ByKey(postrider::OnFailure::Park),
        ..QueuePolicy::default()
    };
    shop.store.declare(&queue("invoices"), &ordered).await.unwrap();
    shop.stage([Message::builder("invoices").id(id(5)).key("ann").json(&5)]).await;
    shop.bury("invoices", Reason::Rejected, "no such account").await;
    let erase = |number| {
        let reference = Reference::new("customer", "cus_17");
        FollowUp::new("customer-17", "payments", "erase", reference).unwrap().with_id(id(number))
    };
    shop.stage([erase(6)]).await;
    shop.bury("follow-ups", Reason::RetriesExhausted, "timeout").await;
    shop.stage([erase(7).not_before(SystemTime::now() + Duration::from_secs(3600))]).await;
    shop.stage([order(8)]).await;
    let timer = Message::builder("carts").id(id(9)).json(&9).due_after(Duration::from_secs(3600));
    shop.stage([timer.timer("cart-17")]).await;
    let file = "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\n\
                [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", address = \"orders\" }]\n";
    fs::write(shop.folder.path().join("postrider.toml"), file).unwrap();
    fs::write(shop.folder.path().join("taken.toml"), file).unwrap();
    assert_eq!(
        shop.run(&["pause", "--queue", "invoices", "--why", "the printer is out of paper"]).code,
        Some(0)
    );
    shop
}

/// The arguments as in a shell; `ID4` stands for the id of the fourth message.
fn arguments(command: &str, rest: &str) -> Vec<String> {
    let word = |word: &str| match word.strip_prefix("ID").and_then(|number| number.parse().ok()) {
        Some(number) => id(number).to_string(),
        None => word.to_owned(),
    };
    command.split(' ').chain(rest.split_whitespace()).map(word).collect()
}

fn run(shop: &Shop, case: &Case, rest: &str) -> program::CompletionOutcome {
    let arguments = arguments(case.command, rest);
    shop.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The text without values that vary: times, random ids and lag.
fn without_variable_parts(text: &str, shop: &Shop) -> String {
    let folder = shop.folder.path().to_str().unwrap();
    let mut output = timeless(text).replace(folder, "<folder>");
    for key in ["\"lag_seconds\":", "\"id\":\"0"] {
        let pieces: Vec<_> = output.split(key).map(str::to_owned).collect();
        let rest = pieces[1..].iter().map(|piece| match key {
            "\"lag_seconds\":" if !piece.starts_with("null") => {
                format!(
                    "{key}<lag>{}",
                    piece.trim_start_matches(|c: char| c.is_ascii_digit() || "e-.".contains(c))
                )
            }
            "\"id\":\"0" if !piece.starts_with("0000000-") => {
                format!("\"id\":\"<id>{}", &piece[piece.find('"').unwrap()..])
            }
            _ => format!("{key}{piece}"),
        });
        output = std::iter::once(pieces[0].clone()).chain(rest).collect();
    }
    output
}

#[test]
fn cases_cover_every_command() {
    let known: Vec<_> = CASES.iter().map(|case| case.command).collect();
    assert_eq!(known, tree::leaves());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_of_every_command_matches_snapshot() {
    for case in CASES {
        let Some(json) = case.json else { continue };
        let shop = shop().await;
        let ended = run(&shop, case, json);
        assert!(matches!(ended.code, Some(0 | 1 | 3)), "{}: {ended:?}", case.command);
        for line in ended.out.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["version"], 1, "{}: {line}", case.command);
        }
        insta::assert_snapshot!(
            format!("{} json", case.command).replace(' ', "_"),
            without_variable_parts(&ended.out, &shop)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_of_every_command_matches_snapshot() {
    for case in CASES {
        let shop = shop().await;
        let ended = run(&shop, case, case.error);
        assert!(matches!(ended.code, Some(1 | 2 | 4)), "{}: {ended:?}", case.command);
        let output = format!("{}{}exit code: {}", ended.out, ended.err, ended.code.unwrap());
        let output = without_variable_parts(&output, &shop);
        insta::assert_snapshot!(format!("{} error", case.command).replace(' ', "_"), output);
    }
}
