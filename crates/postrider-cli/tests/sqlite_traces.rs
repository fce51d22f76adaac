//! `postrider run` exports traces to a collector.

#![cfg(all(unix, feature = "otlp"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use nix::sys::signal::Signal;
use sqlx::{Connection, SqliteConnection};
use std::{
    fs,
    sync::{Arc, Mutex},
};
use support::program::{AtWork, postrider, run};
use tempfile::tempdir;
use tokio::net::TcpListener;

const TRACE: [u8; 16] =
    [0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c];

type Sent = Arc<Mutex<Vec<(String, Bytes)>>>;

async fn collect(State(sent): State<Sent>, headers: HeaderMap, body: Bytes) {
    let kind = headers["content-type"].to_str().unwrap().to_owned();
    sent.lock().unwrap().push((kind, body));
}

/// The delivery of a message is a span, linked to the one in which it was staged, and is exported before the daemon exits.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_of_a_message_is_exported_as_a_span() {
    let (folder, sent) = (tempdir().unwrap(), Sent::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/traces", post(collect)).with_state(Arc::clone(&sent));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n\
         [destinations.lines]\nkind = \"stdout\"\n[otlp]\nendpoint = \"{collector}\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"lines\", address = \"orders\" }}]\n"
    );
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let command = || {
        let mut command = postrider(&["run", "--migrate"]);
        command.current_dir(folder.path()).env_remove("NOTIFY_SOCKET");
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("OTEL_SERVICE_NAME");
        command
    };
    let mut daemon = AtWork::start(&mut command());
    daemon.until(": ready");
    let path = folder.path().join("shop.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::query(
        "insert into postrider_outbox (queue, payload, traceparent) \
         values ('orders', 'placed 17', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let waits = "select count(*) from postrider_ready";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut connection).await.unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    assert!(sent.iter().all(|(kind, _)| kind == "application/x-protobuf"), "{sent:?}");
    let holds =
        |bytes: &[u8]| sent.iter().any(|(_, body)| body.windows(bytes.len()).any(|part| part == bytes));
    for part in [b"postrider.relay".as_slice(), b"service.name", b"orders", &TRACE] {
        assert!(holds(part), "{} is not in {sent:?}", String::from_utf8_lossy(part));
    }
    assert!(!holds(b"placed 17"), "a payload must not be exported");

    // A flag overrides the file, and an invalid URL is reported.
    let wrong = run(command().args(["--otlp", "localhost:4318"]));
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(wrong.err.contains("write a URL such as http://localhost:4318"), "{wrong:?}");
}
