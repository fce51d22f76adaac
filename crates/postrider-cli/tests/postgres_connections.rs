//! All components of a daemon on one database share one store and one pool: the number of connections is bounded.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider_testkit::postgres::TestDatabase;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::{collections::BTreeSet, fs, path::Path};
use support::{
    health::{address_in, post},
    program::{AtWork, postrider},
    webhooks::Webhooks,
};
use tempfile::tempdir;

/// As documented in docs/guides/daemon.md.
const MAX_CONNECTIONS: usize = 12;

/// Five routes, a consumer and follow-ups.
fn write_file(folder: &Path, webhooks: &Webhooks, concurrency: u32) {
    let mut text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl_env = \"SHOP_DB\"\n[http]\nlisten = \"off\"\n\
         [destinations.hooks]\nkind = \"webhook\"\nurl = \"http://{0}/hooks\"\nallow_http = true\n\
         allow_networks = [\"127.0.0.0/8\"]\nsecret_env = \"HOOKS_SECRET\"\n\
         [[consumers]]\nname = \"till\"\nto = \"orders1\"\nredelivery_window = \"1d\"\nconcurrency = 10\n\
         source = {{ kind = \"webhook\", listen = \"127.0.0.1:0\", path = \"/in\" }}\n\
         [[follow_ups]]\nresolver = \"payments\"\noperations = [\"erase\"]\nurl = \"http://{0}/calls\"\n\
         address = \"{{key}}\"\nallow_http = true\nallow_networks = [\"127.0.0.0/8\"]\nsecret_env = \"HOOKS_SECRET\"\n",
        webhooks.address
    );
    for route in 1..=5 {
        text.push_str(&format!(
            "[[routes]]\nqueue = \"orders{route}\"\nformat = \"plain\"\nconcurrency = {concurrency}\n\
             to = [{{ destination = \"hooks\", address = \"orders{route}\" }}]\n"
        ));
    }
    fs::write(folder.join("postrider.toml"), text).unwrap();
}

/// The server's processes of all connections to the database, except this one.
async fn connections(observer: &mut PgConnection) -> BTreeSet<i32> {
    let pids = sqlx::query_scalar(
        "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() \
         and backend_type = 'client backend'",
    );
    pids.fetch_all(observer).await.unwrap().into_iter().collect()
}

/// The server ends a closed connection a moment later.
async fn until_closed_connections_are_gone(observer: &mut PgConnection) {
    while connections(observer).await.len() > MAX_CONNECTIONS {
        tokio::task::yield_now().await;
    }
}

/// Keeps every component busy, and returns the largest number of connections seen meanwhile.
async fn keep_busy(
    observer: &mut PgConnection,
    webhooks: &mut Webhooks,
    address: std::net::SocketAddr,
    batch: u32,
) -> usize {
    let first = batch * 1_000;
    sqlx::raw_sql(AssertSqlSafe(format!(
        "select postrider.stage('orders' || route, number::text) \
         from generate_series(1, 5) as route, generate_series({first}, {first} + 39) as number; \
         select postrider.stage('follow-ups', '', type => 'erase', subject => 'customer-' || customer, \
           headers => jsonb_build_object('followup-resolver', 'payments', 'followup-kind', 'customer', \
                                         'followup-value', 'cus-' || customer)) \
         from generate_series({first}, {first} + 19) as customer",
    )))
    .execute(&mut *observer)
    .await
    .unwrap();
    let posts = (first + 500..first + 520).map(|number| {
        tokio::spawn(async move { post(address, "/in", &format!("A-{number}"), &number.to_string()).await })
    });
    let mut max = 0;
    for posted in posts.collect::<Vec<_>>() {
        assert_eq!(posted.await.unwrap(), "HTTP/1.1 204 No Content");
        max = max.max(connections(observer).await.len());
    }
    // Forty orders of each route, the twenty that were received, and twenty calls.
    for _ in 0..12 {
        webhooks.next(20).await;
        max = max.max(connections(observer).await.len());
    }
    max
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_one_database_share_its_connections() {
    let (database, folder, mut webhooks) =
        (TestDatabase::empty().await, tempdir().unwrap(), Webhooks::listen().await);
    write_file(folder.path(), &webhooks, 50);
    let mut command = postrider(&["run", "--migrate"]);
    command.current_dir(folder.path()).env("SHOP_DB", database.url());
    command.env("HOOKS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    for variable in ["POSTRIDER_CONFIG", "POSTRIDER_LOG_FORMAT", "NOTIFY_SOCKET"] {
        command.env_remove(variable);
    }
    let mut daemon = AtWork::start(&mut command);
    let address = address_in(&daemon.until("webhook receiver listening on http://"));
    daemon.until("ready");
    let mut observer = PgConnection::connect(database.url()).await.unwrap();
    until_closed_connections_are_gone(&mut observer).await;
    let max = keep_busy(&mut observer, &mut webhooks, address, 1).await;
    assert!(max <= MAX_CONNECTIONS, "{max} connections");

    let before = connections(&mut observer).await;
    write_file(folder.path(), &webhooks, 60);
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    let after = connections(&mut observer).await;
    let dropped: Vec<_> = before.difference(&after).collect();
    // The relay's listener is a connection of its own, and is replaced with the relay.
    assert!(dropped.len() <= 1, "{dropped:?} were closed");
    until_closed_connections_are_gone(&mut observer).await;
    let max = keep_busy(&mut observer, &mut webhooks, address, 2).await;
    assert!(max <= MAX_CONNECTIONS, "{max} connections after a reload");

    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    while !connections(&mut observer).await.is_empty() {
        tokio::task::yield_now().await;
    }
}
