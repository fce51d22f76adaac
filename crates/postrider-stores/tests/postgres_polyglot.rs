//! The examples in other languages work: they stage in the transaction of their own driver, as a role without a privilege on any of
//! Postrider's tables.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/polyglot.rs"]
mod polyglot;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/roles.rs"]
mod roles;

use polyglot::{EXAMPLES, driver, python, run};
use postgres::PostgresFixture;
use postrider_core::{ClaimRequest, ClaimedMessage, QueueName, Store, TimerName};
use postrider_stores::postgres::Role;
use postrider_testkit::Fixture;
use roles::Login;
use sqlx::Row;
use std::{process::Command, time::Duration};

fn node() -> Command {
    let folder = driver("node", |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "pg@8", "--prefix"]).arg(folder);
        npm
    });
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder.join("node_modules")).arg(format!("{EXAMPLES}/stage.js"));
    node
}

async fn claim(fixture: &PostgresFixture, queue: &str) -> Vec<ClaimedMessage> {
    fixture.store.claim(&ClaimRequest::new(QueueName::new(queue).unwrap(), 10)).await.unwrap()
}

async fn stages_with_its_order(language: &str, script: fn() -> Command) {
    let fixture = PostgresFixture::new().await;
    let login = Login::new(fixture.database.url(), &fixture.store, Role::Producer).await;
    login
        .admin(&format!(
            "create table public.orders (id int primary key, placed_by text); grant insert on public.orders to {}",
            login.name
        ))
        .await;
    let run = |order: &str| run(script().arg(order).env("DATABASE_URL", &login.url));
    assert_eq!(login.psql_error("select * from postrider.ready").0, "42501", "it has no right on the tables");
    let refused =
        "refused: queue: contains ' ' at byte 2; neither white space nor control characters are allowed";

    let printed = run("17");
    let (id, rest) = printed.split_once('\n').unwrap();
    assert_eq!(rest.trim_end(), refused);
    assert_eq!(run("-1").trim_end(), format!("rolled back: an order has a number above zero\n{refused}"));

    let orders =
        sqlx::query("select id, placed_by from public.orders").fetch_all(&fixture.app).await.unwrap();
    assert_eq!(orders.len(), 1);
    assert_eq!((orders[0].get::<i32, _>(0), orders[0].get::<&str, _>(1)), (17, language));
    let claimed = claim(&fixture, "orders").await;
    assert_eq!(claimed.len(), 1, "what was rolled back does not exist");
    let message = &claimed[0].message;
    assert_eq!(claimed[0].id().to_string(), id);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(message.payload()).unwrap(),
        serde_json::json!({"order": 17})
    );
    assert_eq!(message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(message.key().unwrap().as_str(), "order-17");
    assert_eq!(message.headers().get("language"), Some(language));

    assert_eq!(claim(&fixture, "reminders").await.len(), 0);
    fixture.advance(Duration::from_secs(3601)).await;
    let reminders = claim(&fixture, "reminders").await;
    assert_eq!(reminders.len(), 1);
    assert_eq!(reminders[0].message.timer().unwrap().name, TimerName::new("unpaid-17").unwrap());
}

#[tokio::test]
async fn python_example_stages_in_its_transaction() {
    stages_with_its_order("python", python).await;
}

#[tokio::test]
async fn node_example_stages_in_its_transaction() {
    stages_with_its_order("node", node).await;
}
