//! `postrider run` on PostgreSQL, run as a process.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider_testkit::{
    postgres::TestDatabase,
    server::PrivatePostgres,
    tls::{Certificates, ServerCertificate, Signer},
};
use sqlx::{Connection, PgConnection};
use std::fs;
use support::{
    program::{AtWork, postrider, run},
    webhooks::Webhooks,
};
use tempfile::tempdir;

/// A configuration with the destinations `billing` and `audit`, both at the same receiver.
fn two_destinations(webhooks: &Webhooks) -> String {
    let mut text =
        "source = \"/shop\"\n[databases.shop]\nurl_env = \"SHOP_DB\"\n[http]\nlisten = \"off\"\n".to_owned();
    for name in ["billing", "audit"] {
        text += &format!(
            "[destinations.{name}]\nkind = \"webhook\"\nurl = \"http://{}/{name}\"\nallow_http = true\n\
             allow_networks = [\"127.0.0.0/8\"]\n",
            webhooks.address
        );
    }
    text
}

/// One ordered queue with two destinations.
#[tokio::test(flavor = "multi_thread")]
async fn messages_staged_by_plain_sql_arrive_at_every_destination() {
    let (database, folder) = (TestDatabase::empty().await, tempdir().unwrap());
    let mut webhooks = Webhooks::listen().await;
    let mut text = two_destinations(&webhooks);
    text += "[[routes]]\nqueue = \"orders\"\nordered = \"block\"\nkeep_for = \"7d\"\nformat = \"plain\"\n\
             to = [{ destination = \"billing\", address = \"{key}\" }, { destination = \"audit\", address = \"all\" }]\n";
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = postrider(&[&["run"], arguments].concat());
        command.current_dir(folder.path()).env("SHOP_DB", database.url()).env_remove("NOTIFY_SOCKET");
        command
    };

    let bare = run(&mut command(&[]));
    assert_eq!((bare.code, bare.out.as_str()), (Some(1), ""), "{bare:?}");
    assert!(bare.err.contains("postrider run --migrate"), "{bare:?}");

    let mut daemon = AtWork::start(&mut command(&["--migrate"]));
    daemon.until(": ready");
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    for payload in ["1", "2"] {
        sqlx::query("select postrider.stage('orders', $1, key => 'order-17')")
            .bind(payload)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection.close().await.unwrap();
    let expected = ["/audit/all 1", "/audit/all 2", "/billing/order-17 1", "/billing/order-17 2"];
    assert_eq!(webhooks.next(4).await, expected);
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("clean=true"), "{ended:?}");
}

/// An operator pauses a destination while the daemon runs.
#[tokio::test(flavor = "multi_thread")]
async fn paused_destination_is_skipped_while_the_other_receives() {
    let (database, folder) = (TestDatabase::empty().await, tempdir().unwrap());
    let mut webhooks = Webhooks::listen().await;
    let mut text = two_destinations(&webhooks);
    text += "[[routes]]\nqueue = \"orders\"\nformat = \"plain\"\n\
             to = [{ destination = \"billing\", address = \"all\" }, { destination = \"audit\", address = \"all\" }]\n";
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let mut command = postrider(&["run", "--migrate"]);
    command.current_dir(folder.path()).env("SHOP_DB", database.url()).env_remove("NOTIFY_SOCKET");
    let mut daemon = AtWork::start(&mut command);
    daemon.until(": ready");
    let operate = |verb: &str| {
        let ended = run(postrider(&[verb, "--destination", "billing", "--why", "they asked for it"])
            .env("POSTRIDER_DB", database.url()));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    let mut stage = async |payload: &str| {
        let staging = sqlx::query("select postrider.stage('orders', $1)").bind(payload);
        staging.execute(&mut connection).await.unwrap();
    };
    operate("pause");
    daemon.until("paused by an operator");
    stage("1").await;
    assert_eq!(webhooks.next(1).await, ["/audit/all 1"]);
    operate("resume");
    daemon.until("resumed by an operator");
    assert_eq!(webhooks.next(1).await, ["/billing/all 1"]);
    stage("2").await;
    assert_eq!(webhooks.next(2).await, ["/audit/all 2", "/billing/all 2"]);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// Every connection of the daemon has the certificates of its section: migrations, the store, its listener and the transactions.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_connects_to_its_database_with_the_certificates_of_the_section() {
    let (certificates, folder) = (Certificates::issue(), tempdir().unwrap());
    let server =
        PrivatePostgres::start_with_tls(certificates.server(ServerCertificate::Good, Signer::Bundle)).await;
    let mut webhooks = Webhooks::listen().await;
    let mut text = two_destinations(&webhooks);
    text += "[[routes]]\nqueue = \"orders\"\nformat = \"plain\"\nto = [{ destination = \"billing\", address = \"all\" }]\n";
    let write = |signer| {
        let section = format!("[databases.shop]\nca_file = {:?}", certificates.authority(signer));
        fs::write(folder.path().join("postrider.toml"), text.replace("[databases.shop]", &section)).unwrap();
    };
    let command = || {
        let mut command = postrider(&["run", "--migrate"]);
        command.current_dir(folder.path()).env("SHOP_DB", server.url()).env_remove("NOTIFY_SOCKET");
        command
    };

    write(Signer::Stranger);
    let refused = run(&mut command());
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let cause = "the server's certificate is not signed by a trusted CA";
    assert!(refused.err.contains(cause) && refused.err.contains("TLS and connections"), "{refused:?}");

    write(Signer::Bundle);
    let mut daemon = AtWork::start(&mut command());
    daemon.until(": ready");
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    sqlx::query("select postrider.stage('orders', '1')").execute(&mut connection).await.unwrap();
    assert_eq!(webhooks.next(1).await, ["/billing/all 1"]);
    let seen = "select count(*), bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) \
        where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()";
    let (count, all_encrypted): (i64, bool) = sqlx::query_as(seen).fetch_one(&mut connection).await.unwrap();
    assert!(count >= 2 && all_encrypted, "{count} connections, all encrypted: {all_encrypted}");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
