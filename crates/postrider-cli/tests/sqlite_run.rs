//! `postrider run` on SQLite, run as a process: messages that are staged by plain SQL arrive as webhooks.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use sqlx::{Connection, SqliteConnection};
use std::{fs, path::PathBuf, process::Command};
use support::{
    health::{address_in, get, post},
    program::{AtWork, postrider, run},
    webhooks::Webhooks,
};
use tempfile::{TempDir, tempdir};
use tokio::net::{TcpStream, UnixDatagram};

/// A folder with a database and its configuration, and the webhook receiver that it names.
struct Shop {
    folder: TempDir,
    webhooks: Webhooks,
}

impl Shop {
    async fn new() -> Self {
        let shop = Self { folder: tempdir().unwrap(), webhooks: Webhooks::listen().await };
        shop.write_config(&["orders"]);
        shop
    }

    /// Writes the configuration with a route for each of these queues.
    fn write_config(&self, queues: &[&str]) {
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

    /// Stages with plain SQL.
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

// The receiver responds while the test waits for a line.
#[tokio::test(flavor = "multi_thread")]
async fn messages_staged_by_plain_sql_arrive_and_sigterm_drains() {
    let mut shop = Shop::new().await;
    let daemon = shop.start();
    shop.stage("orders", &["1", "2", "3"]).await;
    assert_eq!(shop.webhooks.next(3).await, ["/hooks/orders 1", "/hooks/orders 2", "/hooks/orders 3"]);
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("clean=true"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_adds_a_route_without_losing_messages() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    let orders: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
    shop.stage("orders", &orders[..100]).await;
    shop.stage("bills", &["paid"]).await;
    shop.write_config(&["orders", "bills"]);
    daemon.signal(Signal::SIGHUP);
    shop.stage("orders", &orders[100..]).await;
    daemon.until("configuration reloaded");
    let mut expected = vec!["/hooks/bills paid".to_owned()];
    expected.extend(orders.iter().map(|order| format!("/hooks/orders {order}")));
    assert_eq!(shop.webhooks.next(201).await, expected);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// A route with one destination delivers what an earlier route left for it, and a queue of a destination that no route has any
/// more is reported, at the start and on SIGHUP.
#[tokio::test(flavor = "multi_thread")]
async fn pending_messages_of_an_earlier_route_are_delivered_or_reported() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    shop.stage("orders>hooks", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 1"]);
    shop.stage("orders>billing", &["2", "3"]).await;
    let warning = "queue orders>billing holds 2 messages that no route of this relay delivers: add destination \"billing\" to the route \
                   of queue orders again";
    shop.write_config(&["orders", "bills"]);
    daemon.signal(Signal::SIGHUP);
    daemon.until(warning);
    daemon.until("configuration reloaded");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
    let mut daemon = AtWork::start(&mut shop.command(&[]));
    daemon.until(warning);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_with_a_broken_file_keeps_the_previous_configuration() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    let good = fs::read_to_string(shop.file()).unwrap();
    for (payload, bad, words) in [
        ("1", good.replace("queue =", "qeue ="), "did you mean \"queue\"?"),
        // A database that cannot be opened changes nothing either.
        ("2", good.replace("shop.db", "no/such/folder/shop.db"), "reload failed: "),
        ("3", String::new(), "source is missing"),
    ] {
        fs::write(shop.file(), bad).unwrap();
        daemon.signal(Signal::SIGHUP);
        daemon.until(words);
        daemon.until("the previous configuration stays in effect");
        shop.stage("orders", &[payload]).await;
        assert_eq!(shop.webhooks.next(1).await, [format!("/hooks/orders {payload}")]);
    }
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_restarts_only_components_whose_plan_changed() {
    let mut shop = Shop::new().await;
    let route = |database: &str, queue: &str| {
        format!(
            "[[routes]]\ndatabase = \"{database}\"\nqueue = \"{queue}\"\n\
             to = [{{ destination = \"hooks\", address = \"{{queue}}\" }}]\n"
        )
    };
    shop.write_config(&[]);
    let text = fs::read_to_string(shop.file()).unwrap() + "[databases.till]\nurl = \"till.db\"\n";
    let write = |routes: &[String]| fs::write(shop.file(), text.clone() + &routes.concat()).unwrap();
    write(&[route("shop", "orders"), route("till", "sales")]);
    let mut daemon = shop.start();
    // The route of the till is on another line now, which is not a change.
    write(&[route("shop", "bills"), route("shop", "orders"), route("till", "sales")]);
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    shop.stage("bills", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/bills 1"]);
    // The relay of a removed database drains, too.
    let (_, without_shop) = text.split_once("[http]").unwrap();
    fs::write(shop.file(), format!("source = \"/shop\"\n[http]{without_shop}{}", route("till", "sales")))
        .unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let drained =
        |database: &str| ended.err.matches(&format!("drained database=SQLite in {database}")).count();
    assert_eq!((drained("shop.db"), drained("till.db")), (2, 1), "{ended:?}");
}

/// The ordering of a queue can change only while the queue is empty. Until then the relay keeps its previous plan.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_with_a_rejected_queue_policy_keeps_the_old_relay_running() {
    let mut shop = Shop::new().await;
    let mut daemon = shop.start();
    shop.stage("bills", &["waits"]).await;
    shop.write_config(&["orders", "bills"]);
    let text = fs::read_to_string(shop.file()).unwrap();
    fs::write(shop.file(), text + "ordered = \"block\"\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until("still holds messages");
    daemon.until("the previous configuration stays in effect");
    shop.stage("orders", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 1"]);
    shop.write_config(&["orders", "bills"]);
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/bills waits"]);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// One of several databases rejects the policy of a queue.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_applies_the_rest_if_one_database_rejects_its_policy() {
    let mut shop = Shop::new().await;
    let route = |database: &str, queue: &str, rest: &str| {
        format!(
            "[[routes]]\ndatabase = \"{database}\"\nqueue = \"{queue}\"\n{rest}\
             to = [{{ destination = \"hooks\", address = \"{{queue}}\" }}]\n"
        )
    };
    shop.write_config(&[]);
    let text = fs::read_to_string(shop.file()).unwrap() + "[databases.till]\nurl = \"till.db\"\n";
    let write = |routes: &[String]| fs::write(shop.file(), text.clone() + &routes.concat()).unwrap();
    let (orders, bills) = (route("shop", "orders", ""), route("shop", "bills", ""));
    write(&[route("till", "sales", ""), orders.clone()]);
    let mut daemon = shop.start();
    let path = shop.folder.path().join("till.db");
    let mut till = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let refunds = "insert into postrider_outbox (queue, payload) values ('refunds', 'waits')";
    sqlx::query(refunds).execute(&mut till).await.unwrap();
    let rejected = route("till", "refunds", "ordered = \"block\"\n");
    write(&[route("till", "sales", ""), rejected, orders, bills]);
    daemon.signal(Signal::SIGHUP);
    daemon.until("still holds messages");
    daemon.until("configuration partly reloaded");
    shop.stage("bills", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/bills 1"]);
    let sale = "insert into postrider_outbox (queue, payload) values ('sales', '2')";
    sqlx::query(sale).execute(&mut till).await.unwrap();
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/sales 2"]);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_signal_drains_and_second_exits_at_once() {
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
    assert!(ended.err.contains("delivered=1 clean=true"), "{ended:?}");

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
async fn health_readiness_and_metrics_are_served() {
    let mut shop = Shop::new().await;
    let mut daemon = AtWork::start(&mut shop.command(&["--migrate", "--log-format", "json"]));
    let line = daemon.until("endpoints listening on http://");
    let address = address_in(&line);
    let message: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(message["level"], "INFO", "{message}");
    daemon.until("ready");
    shop.stage("orders", &["1"]).await;
    shop.webhooks.next(1).await;
    for path in ["/healthz", "/readyz"] {
        let response = get(address, path).await;
        assert_eq!((response.0.as_str(), response.1.as_str()), ("HTTP/1.1 200 OK", "ok\n"));
    }
    let (status, metrics) = get(address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(metrics.contains("queue=\"orders\""), "{metrics}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_is_notified_of_ready_reload_and_stop() {
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
async fn failed_startup_exits_with_advice() {
    let shop = Shop::new().await;
    let missing = run(&mut shop.command(&[]));
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""), "{missing:?}");
    assert!(missing.err.contains("set url to an existing database"), "{missing:?}");
    // A database without Postrider's tables.
    fs::write(shop.folder.path().join("shop.db"), "").unwrap();
    let bare = run(&mut shop.command(&[]));
    assert_eq!((bare.code, bare.out.as_str()), (Some(1), ""), "{bare:?}");
    assert!(bare.err.contains("postrider run --migrate"), "{bare:?}");
    // An invalid network is reported at startup.
    fs::write(shop.file(), fs::read_to_string(shop.file()).unwrap().replace("127.0.0.0/8", "here")).unwrap();
    let network = run(&mut shop.command(&["--migrate"]));
    assert_eq!((network.code, network.out.as_str()), (Some(1), ""), "{network:?}");
    assert!(network.err.contains("postrider.toml:6: destinations.hooks: "), "{network:?}");
}

/// Webhooks that a sender repeats, because it did not get the response, are staged once.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_consumer_stages_duplicates_once() {
    let shop = Shop::new().await;
    let text = "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
         [[consumers]]\nname = \"billing\"\nto = \"incoming\"\nmax_deliveries = 5\n\
         source = { kind = \"webhook\", listen = \"127.0.0.1:0\", path = \"/in\" }\n";
    fs::write(shop.file(), text).unwrap();
    let mut daemon = AtWork::start(&mut shop.command(&["--migrate"]));
    let health = address_in(&daemon.until("endpoints listening on http://"));
    let address = address_in(&daemon.until("webhook receiver listening on http://"));
    daemon.until("started, receiving from");
    for (id, body) in [("A-1", "1"), ("A-1", "1"), ("A-2", "2"), ("A-1", "1")] {
        assert_eq!(post(address, "/in", id, body).await, "HTTP/1.1 204 No Content");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(health, path).await.1, "ok\n");
    }
    let status = run(postrider(&["status", "--json", "--db", "shop.db"]).current_dir(shop.folder.path()));
    let status = status.report();
    let queues = status["queues"].as_array().unwrap();
    let incoming = queues.iter().find(|queue| queue["queue"] == "incoming").unwrap();
    assert_eq!(incoming["pending"]["count"], 2, "{status}");
    let (_, metrics) = get(health, "/metrics").await;
    assert!(metrics.contains("outcome=\"duplicate\"} 2"), "{metrics}");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("delivered=2 clean=true"), "{ended:?}");
}

/// Each follow-up is called until it has ended, and the ledger records the outcome.
#[tokio::test(flavor = "multi_thread")]
async fn follow_ups_end_according_to_the_response() {
    let mut shop = Shop::new().await;
    let text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n\
         [[follow_ups]]\nresolver = \"payments\"\noperations = [\"erase\"]\nurl = \"http://{}/calls\"\n\
         address = \"{{type}}/{{key}}\"\nallow_http = true\nallow_networks = [\"127.0.0.0/8\"]\n\
         secret_env = \"HOOKS_SECRET\"\ndone_on = [404]\ncomplete_to = \"erased\"\n",
        shop.webhooks.address
    );
    fs::write(shop.file(), text).unwrap();
    let mut command = shop.command(&["--migrate"]);
    let mut daemon = AtWork::start(command.env("HOOKS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
    daemon.until(": ready");
    let path = shop.folder.path().join("shop.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    // Done; gone already; rejected; retried; unsupported operation.
    let calls = [
        ("payments", "erase", "c-1"),
        ("payments", "erase", "answer-404"),
        ("payments", "erase", "answer-403"),
        ("payments", "erase", "answer-503"),
        ("payments", "rectify", "c-2"),
    ];
    for (number, (resolver, operation, value)) in calls.into_iter().enumerate() {
        sqlx::query(
            "insert into postrider_outbox (queue, type, subject, payload, headers) values ('follow-ups', ?, ?, '', \
             json_object('followup-resolver', ?, 'followup-kind', 'customer', 'followup-value', ?))",
        )
        .bind(operation)
        .bind(format!("customer-{number}"))
        .bind(resolver)
        .bind(value)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    let called = shop.webhooks.next(4).await;
    for (call, value) in called.iter().zip(["answer-403", "answer-404", "answer-503", "c-1"]) {
        let (path, body) = call.split_once(' ').unwrap();
        assert_eq!(path, format!("/calls/erase/{value}"));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            (&body["operation"], &body["reference"]["value"]),
            (&"erase".into(), &value.into()),
            "{body}"
        );
        assert_eq!(body["attempt"], 1, "{body}");
        uuid::Uuid::parse_str(body["idempotency_key"].as_str().unwrap()).unwrap();
    }
    let headers = shop.webhooks.headers.lock().unwrap().clone();
    assert_eq!(headers["idempotency-key"], headers["webhook-id"], "{headers:?}");
    assert!(headers.contains_key("webhook-signature"), "{headers:?}");
    // The outcome is recorded a moment after the call.
    let counts = || {
        let status = run(postrider(&["status", "--json", "--db", "shop.db"]).current_dir(shop.folder.path()));
        status.report()["follow_ups"].clone()
    };
    while counts()["succeeded"] != 2 || counts()["abandoned"] != 2 {
        tokio::task::yield_now().await;
    }
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    for name in ["UnsupportedOperation", "Http403", "Http503"] {
        assert!(ended.err.contains(name), "{name}: {ended:?}");
    }
    let ledger = run(postrider(&["audit", "verify", "--db", "shop.db"]).current_dir(shop.folder.path()));
    assert_eq!(ledger.code, Some(0), "{ledger:?}");
    let completed: i64 = sqlx::query_scalar(
        "select count(*) from postrider_ready r join postrider_queue q on q.id = r.queue where q.name = 'erased'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(completed, 2);
}

/// The listener moves to a new address, and stays if the new one is in use.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_moves_the_http_listener() {
    let mut shop = Shop::new().await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = fs::read_to_string(shop.file()).unwrap();
    let listening = |address: &str| fs::write(shop.file(), good.replace("127.0.0.1:0", address)).unwrap();
    let mut daemon = AtWork::start(&mut shop.command(&["--migrate"]));
    let first = address_in(&daemon.until("endpoints listening on http://"));
    daemon.until(": ready");
    listening(&taken.local_addr().unwrap().to_string());
    daemon.signal(Signal::SIGHUP);
    daemon.until("cannot listen on");
    daemon.until("configuration partly reloaded");
    assert_eq!(get(first, "/readyz").await.1, "ok\n");
    listening("off");
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    assert!(TcpStream::connect(first).await.is_err());
    listening(&first.to_string());
    daemon.signal(Signal::SIGHUP);
    assert_eq!(address_in(&daemon.until("endpoints listening on http://")), first);
    daemon.until("configuration reloaded");
    assert_eq!(get(first, "/readyz").await.1, "ok\n");
    shop.stage("orders", &["1"]).await;
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 1"]);
    let (_, metrics) = get(first, "/metrics").await;
    assert!(metrics.contains("queue=\"orders\""), "{metrics}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// Each reload warns of every setting that needs a restart, while it differs from the effective one.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_warns_of_settings_that_need_a_restart() {
    let shop = Shop::new().await;
    let good = fs::read_to_string(shop.file()).unwrap();
    let mut daemon = shop.start();
    let otlp = cfg!(feature = "otlp");
    let collector = if otlp { "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n" } else { "" };
    fs::write(shop.file(), format!("{good}[log]\nformat = \"json\"\n{collector}")).unwrap();
    for _ in 0..2 {
        daemon.signal(Signal::SIGHUP);
        daemon.until("log.format has changed: restart to apply it");
        if otlp {
            daemon.until("otlp.endpoint has changed: restart to apply it");
        }
        daemon.until(": configuration reloaded");
    }
    fs::write(shop.file(), good).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until(": configuration reloaded");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err.matches("restart to apply it").count(), if otlp { 4 } else { 2 }, "{ended:?}");
}

/// A setting that a flag overrides has not changed.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_does_not_warn_of_settings_that_a_flag_overrides() {
    let shop = Shop::new().await;
    let good = fs::read_to_string(shop.file()).unwrap();
    let mut daemon = AtWork::start(&mut shop.command(&["--migrate", "--log-format", "human"]));
    daemon.until(": ready");
    fs::write(shop.file(), format!("{good}[log]\nformat = \"json\"\n")).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until(": configuration reloaded");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.err.contains("restart"), "{ended:?}");
}
