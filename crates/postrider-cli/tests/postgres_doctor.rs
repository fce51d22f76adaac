//! `postrider doctor` on PostgreSQL: each problem is injected, found, fixed by the printed statement or command, and gone.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{
    ClaimRequest, LeaseSettlement, Message, OnFailure, Ordering, OutboxExt, QueueName, QueuePolicy, Reason,
    Settlement, Store,
    postgres::{PostgresStore, Role},
    schema::Schema,
};
use postrider_testkit::{
    Kind,
    pooler::Pooler,
    postgres::TestDatabase,
    server::{PrivatePostgres, Stop},
    shared,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool, Row};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
};
use support::{
    doctor::{Diagnosis, doctor, shell},
    program::{postrider, run},
};
use tempfile::tempdir;

/// The test server runs without durability, which doctor reports.
const SERVER: [&str; 4] = ["--skip", "fsync_off", "--skip", "full_page_writes_off"];

/// A migrated database for one test.
struct Fixture {
    database: TestDatabase,
    arguments: Vec<&'static str>,
}

impl Fixture {
    async fn open() -> Self {
        let store = PostgresStore::connect(&postrider_testkit::postgres::server_url()).await.unwrap();
        let version = store.print();
        store.close().await;
        let database = TestDatabase::filled(&version, |url| async move {
            let store = PostgresStore::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            store.close().await;
        })
        .await;
        Self { database, arguments: Vec::new() }
    }

    fn with_arguments(mut self, arguments: &[&'static str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    fn diagnose(&self) -> Diagnosis {
        self.diagnose_at(self.database.url())
    }

    fn diagnose_at(&self, url: &str) -> Diagnosis {
        Diagnosis::of(doctor(&[&SERVER, &self.arguments[..]].concat()).env("POSTRIDER_DB", url))
    }

    fn name(&self) -> &str {
        name(self.database.url())
    }

    async fn store(&self) -> PostgresStore {
        PostgresStore::connect(self.database.url()).await.unwrap()
    }

    async fn run(&self, sql: &str) {
        let mut connection = PgConnection::connect(self.database.url()).await.unwrap();
        connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn stage(&self, message: Message) {
        let store = self.store().await;
        let pool = PgPool::connect(self.database.url()).await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        store.outbox().stage(&mut tx, message).await.unwrap();
        tx.commit().await.unwrap();
        pool.close().await;
        store.close().await;
    }

    async fn make_dead(&self, queue: &str) {
        let store = self.store().await;
        let claimed = store.claim(&ClaimRequest::new(QueueName::stored(queue), 1)).await.unwrap();
        let settlement =
            Settlement::Dead { reason: Reason::Rejected, error: Some("no such address".to_owned()) };
        let lease = claimed[0].lease.clone();
        assert!(store.settle(&[LeaseSettlement { lease, settlement }]).await.unwrap().is_empty());
        store.close().await;
    }

    /// Applies a printed fix: a command in a shell, a statement in psql.
    fn apply_fix(&self, fix: &str) {
        let programs = shared::programs(Kind::Postgres);
        if fix.starts_with("postrider ") || fix.starts_with("createdb ") {
            shell(fix, &std::env::temp_dir(), &[&programs]);
        } else {
            psql(self.database.url(), fix);
        }
    }

    /// Asserts the finding and its fix, and that no finding is left when all fixes are applied.
    fn assert_fixed_by(&self, code: &str, fix: &str) {
        let diagnosis = self.diagnose();
        let printed = diagnosis.fix(code);
        let fix = fix.replace("DATABASE", self.name());
        assert!(printed.starts_with(&fix), "the fix of {code} is {printed:?}, expected {fix:?}");
        diagnosis.fixes().iter().for_each(|fix| self.apply_fix(fix));
        self.diagnose().is_silent();
    }
}

/// The database of a URL.
fn name(url: &str) -> &str {
    url.split('?').next().unwrap().rsplit('/').next().unwrap()
}

/// Runs SQL as a user types it.
fn psql(url: &str, sql: &str) {
    // psql does not accept the parameters of our driver.
    let url = url.split('?').next().unwrap();
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = psql.spawn().unwrap();
    child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{sql}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_database_has_no_findings() {
    Fixture::open().await.diagnose().is_silent();
}

/// Injects a problem with a statement. `set DATABASE` is a setting of the database.
macro_rules! injected {
    ($($name:ident: $injection:expr, $code:expr, $fix:expr;)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let fixture = Fixture::open().await;
            let name = fixture.name();
            fixture.run(&$injection.replace("DATABASE", name)).await;
            fixture.assert_fixed_by($code, $fix);
        }
    )+};
}

injected! {
    missing_index_is_found_and_fixed:
        "drop index postrider.ready_key", "missing_index",
        "create index concurrently \"ready_key\" on \"postrider\".\"ready\" (queue, key, id) where ordered;";
    invalid_index_is_found_and_fixed:
        "update pg_index set indisvalid = false where indexrelid = 'postrider.ready_key'::regclass", "invalid_index",
        "reindex index concurrently \"postrider\".\"ready_key\";";
    leftover_index_is_found_and_fixed:
        "create index halfway on postrider.dead (failed_at); \
         update pg_index set indisvalid = false where indexrelid = 'postrider.halfway'::regclass", "leftover_index",
        "drop index concurrently postrider.halfway;";
    missing_constraint_is_found_and_fixed:
        "alter table postrider.ready drop constraint ready_lease", "drift",
        "alter table \"postrider\".\"ready\" add constraint \"ready_lease\" CHECK";
    missing_function_is_found_and_fixed:
        "drop function postrider.release_key", "drift", "create or replace function \"postrider\".\"release_key\"(";
    missing_table_is_found_and_fixed:
        "drop table postrider.schedule", "drift", "create table \"postrider\".\"schedule\" (";
    missing_column_is_found_and_fixed:
        "alter table postrider.scheduled drop column subject", "drift",
        "alter table \"postrider\".\"scheduled\" add column subject text;";
    unlogged_table_is_found_and_fixed:
        "alter table postrider.dead set unlogged", "unlogged_table", "alter table \"postrider\".\"dead\" set logged;";
    table_without_autovacuum_is_found_and_fixed:
        "alter table postrider.ready set (autovacuum_enabled = off)", "autovacuum_off",
        "alter table postrider.ready reset (autovacuum_enabled);";
    table_with_weakened_autovacuum_is_found_and_fixed:
        "alter table postrider.ready set (autovacuum_vacuum_threshold = 100000000)", "autovacuum_weakened",
        "alter table \"postrider\".\"ready\" set (autovacuum_vacuum_threshold = 1000);";
    synchronous_commit_off_is_found_and_fixed:
        "alter database DATABASE set synchronous_commit = off", "synchronous_commit_off",
        "alter database DATABASE reset synchronous_commit;";
    read_only_database_is_found_and_fixed:
        "alter database DATABASE set default_transaction_read_only = on", "read_only",
        "set default_transaction_read_only = off; alter database DATABASE reset default_transaction_read_only;";
    short_statement_timeout_is_found_and_fixed:
        "alter role postgres in database DATABASE set statement_timeout = '5s'", "statement_timeout",
        "alter role postgres in database DATABASE reset statement_timeout;";
    short_idle_in_transaction_timeout_is_found_and_fixed:
        "alter database DATABASE set idle_in_transaction_session_timeout = '2s'", "idle_in_transaction_timeout",
        "alter database DATABASE reset idle_in_transaction_session_timeout;";
    idle_session_timeout_is_found_and_fixed:
        "alter database DATABASE set idle_session_timeout = '10min'", "idle_session_timeout",
        "alter database DATABASE reset idle_session_timeout;";
    track_counts_off_is_found_and_fixed:
        "alter database DATABASE set track_counts = off", "track_counts_off",
        "alter database DATABASE reset track_counts;";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_transaction_is_found_and_terminated() {
    let fixture = Fixture::open().await.with_arguments(&["--max-transaction", "1ms"]);
    let mut connection = PgConnection::connect(fixture.database.url()).await.unwrap();
    let row = connection
        .fetch_one("set application_name = 'reports'; begin; select pg_backend_pid()")
        .await
        .unwrap();
    let pid: i32 = row.try_get(0).unwrap();
    let diagnosis = fixture.diagnose();
    let reason = diagnosis.finding("idle_in_transaction")["reason"].as_str().unwrap();
    assert!(reason.starts_with("reports does nothing in a transaction"), "{reason}");
    fixture.assert_fixed_by("idle_in_transaction", &format!("select pg_terminate_backend({pid});"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_transaction_is_found_and_terminated() {
    let fixture = Fixture::open().await.with_arguments(&["--max-transaction", "1ms"]);
    let mut connection = PgConnection::connect(fixture.database.url()).await.unwrap();
    let pid: i32 = connection.fetch_one("select pg_backend_pid()").await.unwrap().try_get(0).unwrap();
    let sleeping = tokio::spawn(async move { connection.execute("select pg_sleep(3600)").await });
    let mut watching = PgConnection::connect(fixture.database.url()).await.unwrap();
    let runs = "select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'";
    while sqlx::query(runs).bind(pid).fetch_all(&mut watching).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.assert_fixed_by("long_transaction", &format!("select pg_terminate_backend({pid});"));
    assert!(sleeping.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_found_and_requeued() {
    let fixture = Fixture::open().await;
    fixture.stage(Message::builder("orders").json(&17).build().unwrap()).await;
    fixture.make_dead("orders").await;
    fixture.assert_fixed_by(
        "dead_letters",
        "postrider dead requeue --queue orders --why 'the cause is fixed' --yes --db",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_key_is_found_and_released() {
    let fixture = Fixture::open().await;
    let store = fixture.store().await;
    let parking = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Park), ..QueuePolicy::default() };
    store.declare(&QueueName::stored("invoices"), &parking).await.unwrap();
    store.close().await;
    fixture.stage(Message::builder("invoices").key("ann's").json(&17).build().unwrap()).await;
    fixture.make_dead("invoices").await;
    fixture.assert_fixed_by(
        "parked_keys",
        r"postrider keys release --queue invoices 'ann'\''s' --why 'the cause is fixed' --db",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_with_expiring_leases_is_found_and_discarded() {
    let fixture = Fixture::open().await;
    fixture.stage(Message::builder("orders").json(&17).build().unwrap()).await;
    fixture.run("update postrider.ready set deliveries = 6, attempts = 1").await;
    fixture.assert_fixed_by("lease_expiring", "postrider messages discard --queue orders ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmigrated_database_is_found_and_migrated() {
    let fixture = Fixture { database: TestDatabase::empty().await, arguments: Vec::new() };
    fixture.assert_fixed_by("unmigrated", "postrider migrate up --db 'postgres://postgres@127.0.0.1:");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_database_is_found_and_created() {
    let fixture = Fixture { database: TestDatabase::empty().await, arguments: Vec::new() };
    let url = fixture.database.url().replace(fixture.name(), &format!("{}_gone", fixture.name()));
    let diagnosis = fixture.diagnose_at(&url);
    assert!(
        diagnosis.fix("no_database").starts_with("createdb -h 127.0.0.1 -p "),
        "{}",
        diagnosis.fix("no_database")
    );
    fixture.apply_fix(diagnosis.fix("no_database"));
    fixture.diagnose_at(&url).fixes().iter().for_each(|fix| fixture.apply_fix(fix));
    fixture.diagnose_at(&url).is_silent();
    fixture.run(&format!("drop database {}", name(&url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_grants_are_found_and_granted() {
    let fixture = Fixture::open().await;
    let name = format!("nell_{}", uuid::Uuid::new_v4().simple());
    fixture.run(&format!("create role {name} login; grant pg_read_all_stats to {name}")).await;
    let url = fixture.database.url().replace("postgres@", &format!("{name}@"));
    for (role, grant) in [
        ("operator", "grant usage on schema \"postrider\" to "),
        ("worker", "grant execute on function \"postrider\".\"queue_id\", "),
        ("scheduler", "grant execute on function \"postrider\".\"contract\""),
    ] {
        let asked = |role: &str| {
            Diagnosis::of(doctor(&[&SERVER[..], &["--as", role]].concat()).env("POSTRIDER_DB", &url))
        };
        let diagnosis = asked(role);
        let fix = diagnosis.fix("missing_grants");
        assert!(fix.starts_with(grant), "{fix}");
        psql(self::url(&url, "postgres").as_str(), fix);
        asked(role).is_silent();
    }
    fixture.run(&format!("drop owned by {name}; drop role {name}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_tuples_and_bloated_index_are_found_and_fixed() {
    let fixture = Fixture::open().await;
    // Autovacuum would remove them sooner or later.
    fixture
        .run(
            "alter table postrider.ready set (autovacuum_enabled = off); \
             insert into postrider.ready (queue, message_id, payload) \
               select 1, gen_random_uuid(), '' from generate_series(1, 500000); delete from postrider.ready",
        )
        .await;
    let diagnosis = fixture.diagnose();
    assert_eq!(diagnosis.fix("dead_tuples"), "vacuum (analyze) postrider.ready;");
    fixture.apply_fix(diagnosis.fix("dead_tuples"));
    fixture.assert_fixed_by("bloated_index", "reindex index concurrently postrider.ready_message;");
}

/// Server-wide problems are injected on a private server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_settings_are_found_and_fixed() {
    let mut server = PrivatePostgres::start_durable().await;
    let set =
        |setting: &str| psql(&server.url(), &format!("alter system set {setting}; select pg_reload_conf();"));
    let diagnose = |arguments: &[&str]| Diagnosis::of(doctor(arguments).env("POSTRIDER_DB", server.url()));
    assert_eq!(run(&mut postrider(&["migrate", "up", "--db", &server.url()])).code, Some(0));
    diagnose(&[]).is_silent();
    for (setting, code) in [
        ("fsync", "fsync_off"),
        ("full_page_writes", "full_page_writes_off"),
        ("synchronous_commit", "synchronous_commit_off"),
        ("autovacuum", "autovacuum_off"),
    ] {
        set(&format!("{setting} = off"));
        wait_for_setting(&server.url(), setting, "off").await;
        let diagnosis = diagnose(&[]);
        assert_eq!(diagnosis.fix(code), format!("alter system set {setting} = on; select pg_reload_conf();"));
        psql(&server.url(), diagnosis.fix(code));
        wait_for_setting(&server.url(), setting, "on").await;
        diagnose(&[]).is_silent();
    }

    // The server starts with max_connections = 300.
    let mut taken = Vec::new();
    for _ in 0..270 {
        taken.push(PgConnection::connect(&server.url()).await.unwrap());
    }
    let crowded = diagnose(&[]);
    assert_eq!(crowded.fix("few_connections"), "restart the server with -c max_connections=600");
    drop(taken);

    psql(&server.url(), "alter system set max_prepared_transactions = 2");
    server.stop(Stop::Fast);
    server.resume().await;
    psql(&server.url(), "begin; create table halfway (); prepare transaction 'nell''s';");
    let prepared = Diagnosis::of(doctor(&["--max-transaction", "1ms"]).env("POSTRIDER_DB", server.url()));
    assert_eq!(prepared.fix("prepared_transaction"), "rollback prepared 'nell''s';");
    psql(&server.url(), prepared.fix("prepared_transaction"));
    Diagnosis::of(doctor(&["--max-transaction", "1ms"]).env("POSTRIDER_DB", server.url())).is_silent();
}

/// Waits until new sessions see the setting.
async fn wait_for_setting(url: &str, setting: &str, value: &str) {
    loop {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let query = sqlx::query("select current_setting($1)").bind(setting);
        let now: String = query.fetch_one(&mut connection).await.unwrap().try_get(0).unwrap();
        connection.close().await.unwrap();
        if now == value {
            return;
        }
    }
}

/// The URL of the same database for another user.
fn url(url: &str, user: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    format!("{scheme}://{user}@{}", rest.split_once('@').unwrap().1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeclared_pooler_is_found_and_bypassed() {
    let fixture = Fixture::open().await;
    for sessions in [1, 5] {
        let pooler = Pooler::before(fixture.database.url(), sessions).await;
        let diagnosis = fixture.diagnose_at(pooler.url());
        let fix = diagnosis.fix("transaction_pooling");
        assert!(fix.starts_with("postgres://postgres@127.0.0.1:"), "{fix}");
        fixture.diagnose_at(fix).is_silent();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_notifications_are_found() {
    let fixture = Fixture::open().await;
    let deaf = proxy_without_notifications(fixture.database.url());
    let diagnosis = fixture.diagnose_at(&deaf);
    let fix = diagnosis.fix("listen_not_working");
    assert!(fix.starts_with("postgres://postgres@127.0.0.1:") && name(fix) == fixture.name(), "{fix}");
    fixture.diagnose_at(fix).is_silent();
}

/// A proxy to the database that drops notifications.
fn proxy_without_notifications(url: &str) -> String {
    let place = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = listener.local_addr().unwrap().to_string();
    let deaf = url.split('?').next().unwrap().replace(&place, &ours);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&place).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                std::io::copy(&mut from, &mut to).and_then(|_| to.shutdown(Shutdown::Write))
            });
            thread::spawn(move || while forward(&mut server, &mut client).is_ok() {});
        }
    });
    format!("{deaf}?sslmode=disable")
}

/// Forwards one message of the server: its kind, its length and its body.
fn forward(server: &mut TcpStream, client: &mut TcpStream) -> std::io::Result<()> {
    let mut head = [0; 5];
    server.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut body = vec![0; length as usize - 4];
    server.read_exact(&mut body)?;
    if head[0] == b'A' { Ok(()) } else { client.write_all(&[&head[..], &body].concat()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_read_permission_is_a_note() {
    let fixture = Fixture::open().await;
    let role = format!("nell_{}", uuid::Uuid::new_v4().simple());
    let store = fixture.store().await;
    let grants = store.grants(Role::Worker, &role).unwrap();
    store.close().await;
    fixture.run(&format!("create role {role} login; {grants}")).await;
    let diagnosis = fixture.diagnose_at(&url(fixture.database.url(), &role));
    assert_eq!(diagnosis.finding("unchecked")["subject"], "queues");
    let fix = format!("grant pg_read_all_stats to {role};");
    assert_eq!((diagnosis.fix("not_visible"), diagnosis.fixes().len()), (fix.as_str(), 2));
    fixture.run(&format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_database_is_found_and_the_rest_is_checked() {
    let (fixture, folder) = (Fixture::open().await, tempdir().unwrap());
    fixture.run("drop index postrider.ready_key").await;
    let text = "source = \"/shop\"\n[databases.away]\nurl_env = \"AWAY_DB\"\n\
         [databases.here]\nurl_env = \"HERE_DB\"\n[destinations.hooks]\nkind = \"webhook\"\nurl = \"https://127.0.0.1:1/\"\n\
         allow_networks = [\"127.0.0.0/8\"]\n\
         [[routes]]\ndatabase = \"here\"\nqueue = \"orders\"\nto = [{ destination = \"hooks\", address = \"{type}\" }]\n";
    std::fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let diagnosis = Diagnosis::of(
        doctor(&SERVER)
            .current_dir(folder.path())
            .env("AWAY_DB", "postgres://me:secret@127.0.0.1:1/shop")
            .env("HERE_DB", fixture.database.url()),
    );
    let away = diagnosis.finding("unreachable");
    assert_eq!(
        (&away["target"], &away["subject"]),
        (&"PostgreSQL at 127.0.0.1:1/shop".into(), &"database".into())
    );
    assert_eq!(away["fix"], "start the server, or check the host and the port in the URL");
    assert_eq!(diagnosis.finding("missing_index")["subject"], "index ready_key");
    assert!(!diagnosis.fixes().concat().contains("secret"));
}
