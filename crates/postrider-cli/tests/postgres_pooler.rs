//! `postrider run` and `postrider doctor` with PgBouncer in transaction mode between them and the database.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider_testkit::{pooler::Pooler, postgres::TestDatabase};
use sqlx::{Connection, PgConnection, Row};
use std::{fs, net::SocketAddr, path::PathBuf, process::Command};
use support::{
    doctor::Diagnosis,
    health::{address_in, post},
    program::{AtWork, CompletionOutcome, postrider, run},
    webhooks::Webhooks,
};
use tempfile::{TempDir, tempdir};

/// Fewer than the daemon's connections, so that the pooler reassigns sessions all the time.
const SESSIONS: u32 = 2;

/// A database behind a pooler, and a configuration that uses it: a webhook consumer stages orders, and a route delivers them.
struct Shop {
    pooler: Pooler,
    database: TestDatabase,
    folder: TempDir,
    webhooks: Webhooks,
}

impl Shop {
    /// `keys` are added to the database section.
    async fn open(keys: &str) -> Self {
        let (database, folder) = (TestDatabase::empty().await, tempdir().unwrap());
        let pooler = Pooler::before(database.url(), SESSIONS).await;
        let shop = Self { pooler, database, folder, webhooks: Webhooks::listen().await };
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl_env = \"SHOP_DB\"\n{keys}\n[http]\nlisten = \"off\"\n\
             [destinations.hooks]\nkind = \"webhook\"\nurl = \"http://{}/hooks\"\nallow_http = true\n\
             allow_networks = [\"127.0.0.0/8\"]\nsecret_env = \"HOOKS_SECRET\"\n\
             [[routes]]\nqueue = \"orders\"\nformat = \"plain\"\nto = [{{ destination = \"hooks\", address = \"orders\" }}]\n\
             [[consumers]]\nname = \"till\"\nto = \"orders\"\nredelivery_window = \"1d\"\n\
             source = {{ kind = \"webhook\", listen = \"127.0.0.1:0\", path = \"/in\" }}\n\
             [[follow_ups]]\nresolver = \"payments\"\noperations = [\"erase\"]\nurl = \"http://{}/calls\"\n\
             address = \"{{key}}\"\nallow_http = true\nallow_networks = [\"127.0.0.0/8\"]\n\
             secret_env = \"HOOKS_SECRET\"\ncomplete_to = \"erased\"\n",
            shop.webhooks.address, shop.webhooks.address
        );
        fs::write(shop.file(), text).unwrap();
        shop
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("postrider.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = postrider(arguments);
        command.current_dir(self.folder.path());
        command.env("SHOP_DB", self.pooler.url()).env("SHOP_SERVER", self.database.url());
        command.env("HOOKS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        for variable in ["POSTRIDER_CONFIG", "POSTRIDER_LOG_FORMAT", "NOTIFY_SOCKET"] {
            command.env_remove(variable);
        }
        command
    }

    /// Creates the tables over a direct connection to the server.
    fn migrate(&self) {
        let ended = run(&mut self.command(&["migrate", "up", "--db", self.database.url()]));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn start(&self, arguments: &[&str]) -> (AtWork, SocketAddr) {
        let mut daemon = AtWork::start(&mut self.command(&[&["run"], arguments].concat()));
        let address = address_in(&daemon.until("webhook receiver listening on http://"));
        daemon.until("started, receiving from");
        (daemon, address)
    }

    /// Posts a hundred orders twice each, and expects each to be delivered once.
    async fn post_orders(&mut self, address: SocketAddr) {
        for order in 100..200 {
            for _ in 0..2 {
                let status = post(address, "/in", &format!("A-{order}"), &order.to_string()).await;
                assert_eq!(status, "HTTP/1.1 204 No Content");
            }
        }
        let expected: Vec<_> = (100..200).map(|order| format!("/hooks/orders {order}")).collect();
        assert_eq!(self.webhooks.next(100).await, expected);
    }

    /// Stages fifty follow-ups through the pooler, and waits until each is called and its completion is staged in `erased`.
    async fn run_follow_ups(&mut self) {
        let mut connection = PgConnection::connect(self.pooler.url()).await.unwrap();
        let staged = sqlx::raw_sql(
            "select postrider.stage('follow-ups', '', type => 'erase', subject => 'customer-' || customer, \
               headers => jsonb_build_object('followup-resolver', 'payments', 'followup-kind', 'customer', \
                                             'followup-value', 'cus-' || customer)) \
             from generate_series(10, 59) as customer",
        );
        staged.execute(&mut connection).await.unwrap();
        let called = self.webhooks.next(50).await;
        let paths = called.iter().map(|call| call.split_once(' ').unwrap().0);
        assert!(paths.eq((10..60).map(|customer| format!("/calls/cus-{customer}"))), "{called:?}");
        // The outcome is recorded a moment after the call.
        let outcomes = || {
            let report = run(&mut self.command(&["status", "--json", "--db", self.database.url()])).report();
            let queues = report["queues"].as_array().unwrap();
            let erased = queues.iter().find(|queue| queue["queue"] == "erased").cloned().unwrap_or_default();
            (report["follow_ups"]["succeeded"].as_u64(), erased["pending"]["count"].as_u64())
        };
        while outcomes() != (Some(50), Some(50)) {
            tokio::task::yield_now().await;
        }
    }

    /// Stops the daemon, and asserts that it processed everything and left no settings in the pooler's sessions.
    async fn stop(&self, daemon: AtWork) -> CompletionOutcome {
        daemon.signal(Signal::SIGTERM);
        let ended = daemon.end();
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
        // The relay and the consumer.
        assert_eq!(ended.err.matches("delivered=100 clean=true").count(), 2, "{ended:?}");
        // Both sessions at once, each held by a transaction.
        let mut held = Vec::new();
        for _ in 0..SESSIONS {
            let mut connection = PgConnection::connect(self.pooler.url()).await.unwrap();
            let shown = sqlx::raw_sql(
                "begin; show search_path; show enable_seqscan; show statement_timeout; \
                 select count(*)::text from pg_prepared_statements where name <> ''",
            );
            let rows = shown.fetch_all(&mut connection).await.unwrap();
            let shown: Vec<String> = rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect();
            assert_eq!(shown, ["\"$user\", public", "on", "0", "0"]);
            held.push(connection);
        }
        ended
    }

    /// Whether notifications arrive: only then does an idle worker register itself.
    async fn is_listening(&self) -> bool {
        let mut connection = PgConnection::connect(self.database.url()).await.unwrap();
        let idle = "select exists (select from postrider.idle)";
        let is_listening = sqlx::query_scalar(idle).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        is_listening
    }

    fn diagnose(&self) -> Diagnosis {
        // The test servers are neither durable nor encrypted.
        let skip = ["fsync_off", "full_page_writes_off", "plain_http"].map(|code| ["--skip", code]).concat();
        Diagnosis::of(&mut self.command(&[&["doctor", "--json"], &skip[..]].concat()))
    }
}

/// Everything uses the pooler except migrations and LISTEN, which use the direct connection.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_delivers_through_a_pooler_and_listens_past_it() {
    let mut shop = Shop::open("behind_pooler = true\nlisten_url_env = \"SHOP_SERVER\"").await;
    let (daemon, address) = shop.start(&["--migrate"]);
    shop.post_orders(address).await;
    shop.run_follow_ups().await;
    while !shop.is_listening().await {
        tokio::task::yield_now().await;
    }
    let ended = shop.stop(daemon).await;
    assert!(!ended.err.contains("cannot listen"), "{ended:?}");
}

/// Without a direct connection the daemon polls, logs it, and does not migrate.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_without_listen_url_polls_and_does_not_migrate() {
    let mut shop = Shop::open("behind_pooler = true").await;
    let failed = run(&mut shop.command(&["run", "--migrate"]));
    assert_eq!((failed.code, failed.out.as_str()), (Some(1), ""), "{failed:?}");
    assert!(failed.err.contains("past the pooler: postrider migrate up --db"), "{failed:?}");
    shop.migrate();
    let (mut daemon, address) = shop.start(&["--migrate"]);
    daemon.until("listen_url");
    shop.post_orders(address).await;
    shop.run_follow_ups().await;
    assert!(!shop.is_listening().await);
    // Other commands leave nothing in the pooler's sessions either.
    let status =
        run(shop.command(&["status", "--json", "--behind-pooler"]).env("POSTRIDER_DB", shop.pooler.url()));
    assert_eq!(status.report()["follow_ups"]["succeeded"], 50, "{status:?}");
    let publish = ["publish", "mails", "--json-body", "17"];
    let published = run(shop
        .command(&publish)
        .env("POSTRIDER_DB", shop.pooler.url())
        .env("POSTRIDER_BEHIND_POOLER", "1"));
    assert_eq!(published.code, Some(0), "{published:?}");
    shop.stop(daemon).await;
}

/// The doctor names the missing keys, and adding them fixes the finding.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_a_pooler_that_is_not_configured() {
    let mut shop = Shop::open("").await;
    shop.migrate();
    let diagnosis = shop.diagnose();
    let fix = diagnosis.fix("transaction_pooling");
    let keys = fix.strip_prefix("write ").and_then(|rest| rest.split_once(" below [databases.shop] in "));
    let (keys, file) = keys.unwrap_or_else(|| panic!("{fix}"));
    assert_eq!(file, "postrider.toml");
    let keys = keys.replace(" and ", "\n");
    let text = fs::read_to_string(shop.file()).unwrap();
    fs::write(shop.file(), text.replace("[databases.shop]\n", &format!("[databases.shop]\n{keys}\n")))
        .unwrap();
    shop.diagnose().is_silent();
    let (daemon, address) = shop.start(&[]);
    shop.post_orders(address).await;
    shop.stop(daemon).await;
}
