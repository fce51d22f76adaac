//! `postrider run` sends to NATS and receives from it: a message that is delivered twice is staged once.

#![cfg(all(unix, feature = "nats"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{ClientOptions, transports::nats::NatsTransport};
use postrider_testkit::{Kind, broker::Nats, shared};
use std::{sync::Arc, time::Duration};
use support::{
    places,
    round_trip::{Broker, round_trip},
};
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_with_duplicates_and_a_kill_stages_each_message_once() {
    let (name, url) = (format!("T{}", Uuid::now_v7().simple()), shared::url(Kind::Nats));
    // The shortest duplicate window that a server allows: within it the server drops duplicates.
    places::nats_stream(async_nats::connect(&url).await.unwrap(), &name, Duration::from_millis(100)).await;
    let broker = Broker {
        destination: "kind = \"nats\"\nurl_env = \"NATS_URL\"".to_owned(),
        address: format!("{name}.placed"),
        source: format!(
            "kind = \"nats\", url_env = \"NATS_URL\", stream = \"{name}\", durable = \"billing\", subject = \"{name}.>\""
        ),
        transport: Arc::new(NatsTransport::connect(url.as_str()).unwrap()),
        environment: vec![("NATS_URL", url)],
    };
    round_trip(broker).await;
}

/// The server requires a token, which is in a file.
#[tokio::test(flavor = "multi_thread")]
async fn token_from_a_file_authenticates() {
    let server = Nats::start_with(&["--auth", "clover"]).await;
    let client =
        async_nats::ConnectOptions::with_token("clover".to_owned()).connect(server.url()).await.unwrap();
    places::nats_stream(client, "ORDERS", Duration::from_millis(100)).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "clover\n").unwrap();
    let login = format!("url_env = \"NATS_URL\", token_file = \"{}\"", token.display());
    let broker = Broker {
        destination: format!("kind = \"nats\"\nstream = \"ORDERS\"\n{}", login.replace(", ", "\n")),
        address: "ORDERS.placed".to_owned(),
        source: format!(
            "kind = \"nats\", {login}, stream = \"ORDERS\", durable = \"billing\", subject = \"ORDERS.>\""
        ),
        transport: Arc::new(
            NatsTransport::connect(ClientOptions::new(server.url()).with_token("clover")).unwrap(),
        ),
        environment: vec![("NATS_URL", server.url().to_owned())],
    };
    round_trip(broker).await;
}
