//! The axum service: an order is stored, confirmed and published, and the service shuts down gracefully.

#![cfg(all(unix, feature = "http"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::postgres::TestDatabase;
use std::process::Command;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::test]
async fn axum_service_confirms_publishes_and_shuts_down_gracefully() {
    let database = TestDatabase::empty().await;
    let variables = [("DATABASE_URL", database.url()), ("LISTEN", "127.0.0.1:0")];
    let mut service = support::start("axum_postgres", &variables);
    let mut published = BufReader::new(service.stdout.take().unwrap()).lines();
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    let first = log.next_line().await.unwrap().unwrap();
    let url = first.strip_prefix("listening on ").unwrap_or_else(|| panic!("{first}"));

    // The client uses the provider of the process; an installed one is fine.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{url}/orders")).header("content-type", "application/json");
    let response = request.body(r#"{"customer": "ann", "total_cents": 4200}"#).send().await.unwrap();
    assert_eq!(response.status(), 201);
    let order = response.text().await.unwrap();

    let confirmation = log.next_line().await.unwrap().unwrap();
    assert_eq!(confirmation, format!("mail to ann: order {order} (attempt 1)"));
    let event: serde_json::Value =
        serde_json::from_str(&published.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(event["destination"], "shop.order.placed");

    let stopped = Command::new("kill").args(["-TERM", &service.id().unwrap().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(log.next_line().await.unwrap().unwrap(), "stopped, clean: true");
    assert!(service.wait().await.unwrap().success());
}
