//! `postrider run` with Redis: staged messages are in a stream, and a message that is delivered twice is staged once.

#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider::transports::redis::RedisTransport;
use postrider_testkit::{Kind, shared};
use sqlx::{Connection, SqliteConnection};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::Arc,
};
use support::{
    program::{AtWork, postrider},
    round_trip::{Broker, round_trip},
};
use tempfile::tempdir;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn message_staged_by_plain_sql_is_in_the_stream() {
    let (folder, stream) = (tempdir().unwrap(), format!("orders-{}", Uuid::new_v4()));
    let text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n\
         [destinations.events]\nkind = \"redis\"\nurl_env = \"REDIS_URL\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"{stream}\" }}]\n"
    );
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let url = shared::url(Kind::Redis);
    let mut command = postrider(&["run", "--migrate"]);
    command.current_dir(folder.path()).env("REDIS_URL", &url).env_remove("NOTIFY_SOCKET");
    let mut daemon = AtWork::start(&mut command);
    daemon.until(": ready");

    let path = folder.path().join("shop.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::query("insert into postrider_outbox (queue, payload) values ('orders', 'placed 17')")
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();

    let mut redis = TcpStream::connect(url.strip_prefix("redis://").unwrap()).unwrap();
    // Blocks until there is an entry.
    redis.write_all(format!("XREAD BLOCK 0 STREAMS {stream} 0\r\n").as_bytes()).unwrap();
    let mut lines = BufReader::new(redis).lines();
    assert!(lines.any(|line| line.unwrap() == "placed 17"));
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_with_duplicates_and_a_kill_stages_each_message_once() {
    let (stream, url) = (format!("orders-{}", Uuid::now_v7()), shared::url(Kind::Redis));
    let broker = Broker {
        destination: "kind = \"redis\"\nurl_env = \"REDIS_URL\"".to_owned(),
        address: stream.clone(),
        source: format!(
            "kind = \"redis\", url_env = \"REDIS_URL\", stream = \"{stream}\", group = \"billing\", create_group = true"
        ),
        transport: Arc::new(RedisTransport::connect(url.as_str()).unwrap()),
        environment: vec![("REDIS_URL", url)],
    };
    round_trip(broker).await;
}
