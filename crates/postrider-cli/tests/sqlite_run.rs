//! `postrider run` on SQLite, run as somebody runs it: messages that are staged by plain SQL arrive as webhooks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/program.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod program;
#[path = "support/webhooks.rs"]
mod webhooks;

use nix::sys::signal::Signal;
use program::{AtWork, postrider, run};
use sqlx::{Connection, SqliteConnection};
use std::{fs, net::SocketAddr, path::PathBuf, process::Command};
use tempfile::{TempDir, tempdir};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixDatagram},
};
use webhooks::Webhooks;

/// A folder with a database, its configuration, and the receiver that it names.
struct Shop {
    folder: TempDir,
    webhooks: Webhooks,
}

impl Shop {
    async fn new() -> Self {
        let shop = Self { folder: tempdir().unwrap(), webhooks: Webhooks::listen().await };
        shop.carries(&["orders"]);
        shop
    }

    /// Writes the configuration anew, with these queues.
    fn carries(&self, queues: &[&str]) {
        let address = self.webhooks.address;
        let mut text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
             [destinations.hooks]\nkind = \"webhook\"\nurl = \"http://{address}/hooks\"\nallow_http = true\n\
             allow_networks = [\"127.0.0.0/8\"]\n"
        );
        for queue in queues {
            text += &format!(
                "[[routes]]\nqueue = \"{queue}\"\nto = [{{ destination = \"hooks\", address = \"{{queue}}\" }}]\n"
            );
        }
        fs::write(self.file(), text).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("postrider.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = postrider(&[&["run"], arguments].concat());
        for variable in ["POSTRIDER_CONFIG", "POSTRIDER_HTTP_LISTEN", "POSTRIDER_LOG_FORMAT", "NOTIFY_SOCKET"]
        {
            command.env_remove(variable);
        }
        command.current_dir(self.folder.path());
        command
    }

    fn start(&self) -> AtWork {
        let mut daemon = AtWork::start(&mut self.command(&["--migrate"]));
        daemon.until(": ready");
        daemon
    }

    /// As any tool does it.
    async fn stage(&self, queue: &str, payloads: &[&str]) {
        let path = self.folder.path().join("shop.db");
        let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        for payload in payloads {
            sqlx::query("insert into postrider_outbox (queue, payload) values (?, ?)")
                .bind(queue)
                .bind(payload)
                .execute(&mut connection)
                .await
                .unwrap();
        }
        connection.close().await.unwrap();
    }
}

async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

// The receiver answers while the test waits for a line.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_staged_by_plain_sql_arrives_and_sigterm_drains() {
    let mut shop = Shop::new().await;
    let daemon = shop.start();
    shop.stage("orders", &["1", "2", "3"]).await;
    assert_eq!(shop.webhooks.next(3).await, ["/hooks/orders 1", "/hooks/orders 2", "/hooks/orders 3"]);
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("is_clean=true"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_adds_a_route_and_nothing_is_lost() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    let orders: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
    shop.stage("orders", &orders[..100]).await;
    shop.stage("bills", &["paid"]).await;
    shop.carries(&["orders", "bills"]);
    daemon.signal(Signal::SIGHUP);
    shop.stage("orders", &orders[100..]).await;
    daemon.until("the configuration is followed");
    let mut expected = vec!["/hooks/bills paid".to_owned()];
    expected.extend(orders.iter().map(|order| format!("/hooks/orders {order}")));
    assert_eq!(shop.webhooks.next(201).await, expected);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_is_refused_and_the_old_one_stays() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    let good = fs::read_to_string(shop.file()).unwrap();
    for (payload, bad, words) in [
        ("1", good.replace("queue =", "qeue ="), "did you mean \"queue\"?"),
        // What can be read, and cannot be opened, changes nothing either.
        ("2", good.replace("shop.db", "no/such/folder/shop.db"), "not followed: "),
        ("3", String::new(), "source is missing"),
    ] {
        fs::write(shop.file(), bad).unwrap();
        daemon.signal(Signal::SIGHUP);
        daemon.until(words);
        daemon.until("the configuration is kept as it was");
        shop.stage("orders", &[payload]).await;
        assert_eq!(shop.webhooks.next(1).await, [format!("/hooks/orders {payload}")]);
    }
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_leaves_those_alone_whose_plan_did_not_change() {
    let mut shop = Shop::new().await;
    let route = |database: &str, queue: &str| {
        format!(
            "[[routes]]\ndatabase = \"{database}\"\nqueue = \"{queue}\"\n\
             to = [{{ destination = \"hooks\", address = \"{{queue}}\" }}]\n"
        )
    };
    shop.carries(&[]);
    let text = fs::read_to_string(shop.file()).unwrap() + "[databases.till]\nurl = \"till.db\"\n";
    let write = |routes: &[String]| fs::write(shop.file(), text.clone() + &routes.concat()).unwrap();
    write(&[route("shop", "orders"), route("till", "sales")]);
    let mut daemon = shop.start();
    // The route of the till stands in another line now, which is no change.
    write(&[route("shop", "bills"), route("shop", "orders"), route("till", "sales")]);
    daemon.signal(Signal::SIGHUP);
    daemon.until("the configuration is followed");
    shop.stage("bills", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/bills 1"]);
    // A database that is gone is drained, too.
    let (_, without_shop) = text.split_once("[http]").unwrap();
    fs::write(shop.file(), format!("source = \"/shop\"\n[http]{without_shop}{}", route("till", "sales")))
        .unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until("the configuration is followed");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let drained =
        |database: &str| ended.err.matches(&format!("drained database=SQLite in {database}")).count();
    assert_eq!((drained("shop.db"), drained("till.db")), (2, 1), "{ended:?}");
}

/// The order of a queue can change only while nothing waits in it. Until then the relay goes on as before.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_refuses_leaves_the_old_relay_at_work() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    shop.stage("bills", &["waits"]).await;
    shop.carries(&["orders", "bills"]);
    let text = fs::read_to_string(shop.file()).unwrap();
    fs::write(shop.file(), text + "ordered = \"block\"\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until("still holds messages");
    daemon.until("the configuration is kept as it was");
    shop.stage("orders", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 1"]);
    shop.carries(&["orders", "bills"]);
    daemon.signal(Signal::SIGHUP);
    daemon.until("the configuration is followed");
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/bills waits"]);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_its_way_may_arrive_and_the_second_signal_does_not_wait() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    let held = shop.webhooks.hold().await;
    shop.stage("orders", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 1"]);
    daemon.signal(Signal::SIGTERM);
    daemon.until("stopping");
    drop(held);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("delivered=1 is_clean=true"), "{ended:?}");

    let mut daemon = shop.start();
    let held = shop.webhooks.hold().await;
    shop.stage("orders", &["2"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 2"]);
    daemon.signal(Signal::SIGTERM);
    daemon.until("stopping");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(130));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_look_after_it_are_told_how_it_is() {
    let mut shop = Shop::new().await;
    let mut daemon = AtWork::start(&mut shop.command(&["--migrate", "--log-format", "json"]));
    let line = daemon.until("listening at http://");
    let address = line.split("http://").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    let message: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(message["level"], "INFO", "{message}");
    daemon.until("ready");
    shop.stage("orders", &["1"]).await;
    shop.webhooks.next(1).await;
    for path in ["/healthz", "/readyz"] {
        let answer = get(address, path).await;
        assert_eq!((answer.0.as_str(), answer.1.as_str()), ("HTTP/1.1 200 OK", "ok\n"));
    }
    let (status, metrics) = get(address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(metrics.contains("queue=\"orders\""), "{metrics}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_is_told_when_it_is_ready_reloads_and_stops() {
    let shop = Shop::new().await;
    let path = shop.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let next = async || {
        let mut words = [0; 256];
        let length = socket.recv(&mut words).await.unwrap();
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    let daemon = AtWork::start(shop.command(&["--migrate"]).env("NOTIFY_SOCKET", &path));
    assert_eq!(next().await, "READY=1\n");
    daemon.signal(Signal::SIGHUP);
    assert!(next().await.starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next().await, "READY=1\n");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(next().await, "STOPPING=1\n");
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_begin_says_what_to_do() {
    let shop = Shop::new().await;
    let missing = run(&mut shop.command(&[]));
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""), "{missing:?}");
    assert!(missing.err.contains("give the url of a database that is there"), "{missing:?}");
    // A database of somebody else.
    fs::write(shop.folder.path().join("shop.db"), "").unwrap();
    let bare = run(&mut shop.command(&[]));
    assert_eq!((bare.code, bare.out.as_str()), (Some(1), ""), "{bare:?}");
    assert!(bare.err.contains("postrider run --migrate"), "{bare:?}");
    // Whoever sends to its own network has to say so, and is told at once what makes no sense.
    fs::write(shop.file(), fs::read_to_string(shop.file()).unwrap().replace("127.0.0.0/8", "here")).unwrap();
    let network = run(&mut shop.command(&["--migrate"]));
    assert_eq!((network.code, network.out.as_str()), (Some(1), ""), "{network:?}");
    assert!(network.err.contains("postrider.toml:6: destinations.hooks: "), "{network:?}");
}
