//! `postrider doctor` on SQLite: each problem is injected, found, fixed by the printed statement or command, and gone.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::{sys::signal::Signal, unistd::geteuid};
use postrider::{FollowUp, Message, Reason, Reference};
use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqliteConnection};
use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
};
use support::{
    doctor::{Diagnosis, doctor, shell},
    program::{AtWork, postrider, run},
    shop::{Shop, order},
};
use tempfile::{TempDir, tempdir};

fn diagnose(folder: &Path, arguments: &[&str]) -> Diagnosis {
    Diagnosis::of(doctor(&[&["--db", "shop.db"], arguments].concat()).current_dir(folder))
}

async fn sql(folder: &Path, sql: &str) {
    let url = format!("sqlite:{}", folder.join("shop.db").display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    connection.close().await.unwrap();
}

/// Applies a printed fix: a statement in the database, a command in a shell.
async fn apply_fix(folder: &Path, fix: &str) {
    let is_sql =
        ["pragma ", "create ", "drop ", "alter ", "delete "].iter().any(|verb| fix.starts_with(verb));
    if is_sql { sql(folder, fix).await } else { shell(fix, folder, &[]) }
}

/// Finds what was injected, with this fix, and nothing any more when all that was printed is done.
async fn cures(folder: &Path, code: &str, fix: &str) {
    let diagnosis = diagnose(folder, &[]);
    let printed = diagnosis.fix(code);
    assert!(printed.starts_with(fix), "the fix of {code} is {printed:?}, expected {fix:?}");
    for fix in diagnosis.fixes() {
        apply_fix(folder, &fix).await;
    }
    diagnose(folder, &[]).is_silent();
}

/// A migrated file without open connections.
async fn closed() -> TempDir {
    let shop = Shop::open().await;
    shop.store.close().await;
    shop.folder
}

#[tokio::test]
async fn healthy_file_has_no_findings() {
    let folder = closed().await;
    diagnose(folder.path(), &[]).is_silent();
    let ended = run(postrider(&["doctor"]).env("POSTRIDER_DB", "shop.db").current_dir(folder.path()));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "no findings: checked 1 database\n"), "{ended:?}");
}

#[tokio::test]
async fn missing_file_is_found_and_created() {
    let folder = tempdir().unwrap();
    cures(folder.path(), "unreachable", "postrider migrate up --db shop.db").await;
}

#[tokio::test]
async fn unmigrated_file_is_found_and_migrated() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("shop.db"), "").unwrap();
    sql(folder.path(), "pragma journal_mode = wal; create table customer (id integer primary key)").await;
    cures(folder.path(), "unmigrated", "postrider migrate up --db shop.db").await;
}

/// Plants a problem with a statement.
macro_rules! injected {
    ($($name:ident: $plant:expr, $code:expr, $fix:expr;)+) => {$(
        #[tokio::test]
        async fn $name() {
            let folder = closed().await;
            sql(folder.path(), $plant).await;
            cures(folder.path(), $code, $fix).await;
        }
    )+};
}

injected! {
    missing_index_is_found_and_fixed:
        "drop index postrider_ready_free", "missing_index",
        "create index \"postrider_ready_free\" on \"postrider_ready\" (queue, id) where token is null;";
    altered_trigger_is_found_and_fixed:
        "drop trigger postrider_ledger_delete; create trigger postrider_ledger_delete before delete on postrider_ledger \
         begin select 1; end", "drift", "drop trigger \"postrider_ledger_delete\";";
    missing_table_is_found_and_fixed:
        "drop table postrider_schedule", "drift", "create table \"postrider_schedule\" (";
    journal_mode_that_blocks_readers_is_found_and_fixed:
        "pragma journal_mode = delete", "journal_mode", "pragma journal_mode = wal;";
}

#[tokio::test]
async fn large_wal_is_found_and_truncated() {
    let folder = closed().await;
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let mut busy = SqliteConnection::connect(&url).await.unwrap();
    let grow = "pragma wal_autocheckpoint = 0; create table blob (data blob); insert into blob values (zeroblob(70000000)); \
        drop table blob";
    busy.execute(grow).await.unwrap();
    cures(folder.path(), "big_wal", "pragma wal_checkpoint(truncate);").await;
    busy.close().await.unwrap();
}

#[tokio::test]
async fn corrupt_file_is_found_and_recovered() {
    let folder = closed().await;
    let path = folder.path().join("shop.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let root = "select (rootpage - 1) * 4096 from sqlite_schema where name = 'postrider_audit'";
    let at: i64 = connection.fetch_one(root).await.unwrap().try_get(0).unwrap();
    connection.close().await.unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(at.unsigned_abs())).unwrap();
    file.write_all(&[0xee; 4096]).unwrap();
    cures(
        folder.path(),
        "corrupt",
        "sqlite3 'shop.db' .dump | sed 's/^ROLLBACK.*/COMMIT;/' | sqlite3 'shop.db.repaired' && mv",
    )
    .await;
}

#[tokio::test]
async fn file_that_is_no_database_is_found() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("shop.db"), "milk, bread, and enough more to fill a header. ".repeat(20))
        .unwrap();
    let diagnosis = diagnose(folder.path(), &[]);
    assert_eq!(diagnosis.fix("not_a_database"), "set the path to an SQLite file");
}

#[tokio::test]
async fn held_lock_is_found() {
    let folder = closed().await;
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let mut holder = SqliteConnection::connect(&url).await.unwrap();
    holder.execute("begin immediate").await.unwrap();
    let diagnosis = diagnose(folder.path(), &[]);
    assert!(diagnosis.fix("locked").starts_with("fuser -v 'shop.db'"), "{}", diagnosis.fix("locked"));
    holder.execute("rollback").await.unwrap();
    diagnose(folder.path(), &[]).is_silent();
    holder.close().await.unwrap();
}

#[tokio::test]
async fn read_only_file_is_found_and_fixed() {
    const NOBODY: u32 = 65534;
    let folder = closed().await;
    let path = folder.path().join("shop.db");
    // Root may write to every file.
    let is_root = geteuid().is_root();
    for path in [folder.path(), &path] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
        if is_root {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let diagnose = || {
        let mut command = doctor(&["--db", "shop.db"]);
        command.current_dir(folder.path());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        Diagnosis::of(&mut command)
    };
    let diagnosis = diagnose();
    assert_eq!(diagnosis.fix("not_writable"), "chmod u+w 'shop.db' '.'");
    apply_fix(folder.path(), diagnosis.fix("not_writable")).await;
    diagnose().is_silent();
}

#[tokio::test]
async fn lag_is_found_and_delivered() {
    let shop = Shop::open().await;
    let folder = shop.folder.path();
    let text = "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n[destinations.out]\nkind = \"stdout\"\n\
        [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"out\", address = \"{type|none}\" }]\n";
    fs::write(folder.join("postrider.toml"), text).unwrap();
    shop.stage([order(1)]).await;
    let look = || Diagnosis::of(doctor(&["--max-lag", "1ms", "--skip", "pipe"]).current_dir(folder));
    let diagnosis = look();
    assert_eq!(diagnosis.fix("lag"), "postrider run --config postrider.toml");
    let words: Vec<_> = diagnosis.fix("lag").split(' ').skip(1).collect();
    let mut daemon = AtWork::start(postrider(&words).current_dir(folder).env_remove("NOTIFY_SOCKET"));
    daemon.until(": ready");
    while shop.run(&["status", "--json"]).report()["queues"][0]["pending"]["count"] != 0 {}
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
    look().is_silent();
}

/// The route had a destination that has not accepted everything: it is removed, and then added again.
#[tokio::test]
async fn queue_of_a_removed_destination_is_found_and_routed() {
    let shop = Shop::open().await;
    let folder = shop.folder.path();
    let configure = |destinations: &[&str]| {
        let mut text =
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n".to_owned();
        let mut to = Vec::new();
        for name in destinations {
            text += &format!("[destinations.{name}]\nkind = \"stdout\"\n");
            to.push(format!("{{ destination = \"{name}\", address = \"orders\" }}"));
        }
        text += &format!("[[routes]]\nqueue = \"orders\"\nto = [{}]\n", to.join(", "));
        fs::write(folder.join("postrider.toml"), text).unwrap();
    };
    let look = || Diagnosis::of(doctor(&["--skip", "pipe"]).current_dir(folder));
    configure(&["mail"]);
    shop.stage([Message::builder("orders>mail").json(&1)]).await;
    look().is_silent();
    shop.stage([1, 2].map(|number| Message::builder("orders>billing").json(&number))).await;
    let diagnosis = look();
    let found = diagnosis.finding("unrouted_queue");
    assert_eq!(
        (&found["severity"], &found["subject"]),
        (&"warning".into(), &"queue orders>billing".into()),
        "{found}"
    );
    assert!(found["reason"].as_str().unwrap().starts_with("2 messages of queue orders "), "{found}");
    assert_eq!(
        diagnosis.fix("unrouted_queue"),
        "add destination billing to the route of queue orders in postrider.toml until queue orders>billing is empty"
    );
    configure(&["mail", "billing"]);
    look().is_silent();
    // Without a configuration, the routes are unknown.
    diagnose(folder, &[]).is_silent();
}

#[tokio::test]
async fn parked_key_and_dead_letters_are_found_and_fixed() {
    let shop = Shop::parked().await;
    cures(shop.folder.path(), "parked_keys", "postrider keys release --queue invoices ann --why").await;
    let shop = Shop::troubled().await;
    cures(shop.folder.path(), "dead_letters", "postrider dead requeue --queue orders --why").await;
}

#[tokio::test]
async fn long_pause_is_found_and_resumed() {
    let shop = Shop::open().await;
    shop.stage([order(1)]).await;
    let folder = shop.folder.path();
    assert_eq!(shop.run(&["pause", "--queue", "orders", "--why", "a move"]).code, Some(0));
    // A paused queue is expected to lag, and the pause is not long yet.
    diagnose(folder, &["--max-lag", "1ms"]).is_silent();
    sql(folder, "update postrider_pause set since = since - 2 * 86400 * 1000000").await;
    cures(folder, "paused", "postrider resume --queue orders --why 'the pause is over' --db shop.db").await;
}

/// The clock of the machine was in the year 2100 once, when a tick was staged.
#[tokio::test]
async fn schedule_ahead_of_the_clock_is_found_and_begins_anew() {
    let folder = closed().await;
    sql(folder.path(), "insert into postrider_schedule (name, last_at) values ('nightly', 4102444800000000)")
        .await;
    sql(folder.path(), "insert into postrider_schedule (name, last_at) values ('hourly', 1700000000000000)")
        .await;
    let found = diagnose(folder.path(), &[]);
    assert_eq!(found.finding("schedule_ahead")["subject"], "schedule nightly");
    cures(folder.path(), "schedule_ahead", "delete from postrider_schedule where name = 'nightly';").await;
}

#[tokio::test]
async fn abandoned_follow_up_is_found_and_requeued() {
    let shop = Shop::open().await;
    let reference = Reference::new("customer", "cus_17");
    shop.stage([FollowUp::new("customer-17", "payments", "erase", reference).unwrap()]).await;
    shop.bury("follow-ups", Reason::RetriesExhausted, "timeout").await;
    cures(shop.folder.path(), "abandoned", "postrider saga requeue --queue follow-ups --all --why").await;
}

#[tokio::test]
async fn output_and_usage_errors_match_snapshots() {
    let shop = Shop::troubled().await;
    shop.store.close().await;
    sql(shop.folder.path(), "drop index postrider_scheduled_due").await;
    insta::assert_snapshot!("text", shop.run(&["doctor"]).out);
    insta::assert_snapshot!("json", shop.run(&["doctor", "--skip", "dead_letters", "--json"]).out);
    let nothing = run(postrider(&["doctor"]).current_dir(tempdir().unwrap().path()));
    assert_eq!(nothing.code, Some(2));
    insta::assert_snapshot!("nothing_to_check", nothing.err);
    let role = run(&mut postrider(&["doctor", "--db", "shop.db", "--as", "king"]));
    assert_eq!(role.code, Some(2));
    insta::assert_snapshot!("no_such_role", role.err);
}

/// One or two failures are not reported. Repeated failures are, by kind of error, until the message is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_failures_are_found() {
    let shop = Shop::open().await;
    shop.stage([order(1)]).await;
    for _ in 0..2 {
        shop.fail("orders", "CarrierTimeout: no answer in 10 s").await;
    }
    diagnose(shop.folder.path(), &[]).is_silent();
    shop.fail("orders", "CarrierTimeout: no answer in 20 s").await;
    let diagnosis = diagnose(shop.folder.path(), &[]);
    let found = diagnosis.finding("failing");
    assert_eq!((&found["severity"], &found["subject"]), (&"warning".into(), &"queue orders".into()));
    let reason = "1 message waiting for a retry failed with CarrierTimeout, up to 3 times each";
    assert_eq!(found["reason"], reason);
    assert!(diagnosis.fix("failing").starts_with("fix the cause of CarrierTimeout"));
    assert_eq!(shop.deliver("orders").await, 1);
    diagnose(shop.folder.path(), &[]).is_silent();
}
