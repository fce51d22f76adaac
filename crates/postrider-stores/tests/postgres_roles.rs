//! Every role has the privileges that it needs, and the server denies the rest: verb by verb, on every table and column, function
//! and sequence.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/roles.rs"]
mod roles;

use async_trait::async_trait;
use postgres::PostgresFixture;
use postrider_core::{
    AuditEvent, AuditKind, Backend, ClaimRequest, FollowUp, FollowUpExt, Message, Outbox, OutboxExt,
    PruneRequest, QueueName, QueuePolicy, Reason, Reference, Store, SubjectId, TimerName, TxBackend,
    audit::verify,
    follow_up::{ErasureReport, FollowUpFilter, FollowUpStatus, GroupProgress, QUEUE, StatusCounts},
    inspect::{Action, Inspect, Operate},
    schema::Schema,
};
use postrider_stores::postgres::{PostgresInbox, PostgresOutbox, PostgresStore, Role};
use postrider_testkit::{Features, Fixture, postgres::TestDatabase};
use roles::Login;
use sqlx::{
    AssertSqlSafe, Connection, Executor, PgConnection, PgPool, Postgres, Row, Transaction,
    postgres::PgPoolOptions,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Each part of the store as its own role: the producer's pool, the worker's store, the operator's view.
struct RoleFixture {
    worker: PostgresStore,
    operator: PostgresStore,
    scheduler: PostgresStore,
    app: PgPool,
    logins: Vec<Login>,
    // Declared after the logins, which are dropped first.
    inner: PostgresFixture,
}

impl RoleFixture {
    async fn new() -> Self {
        let inner = PostgresFixture::new().await;
        let mut logins = Vec::new();
        for role in [Role::RustProducer, Role::Worker, Role::Operator, Role::Scheduler] {
            logins.push(Login::new(inner.database.url(), &inner.store, role).await);
        }
        // The application is a consumer, too.
        logins[0].admin(&inner.store.grants(Role::Consumer, &logins[0].name).unwrap()).await;
        let app = PgPoolOptions::new().max_connections(20).connect(&logins[0].url).await.unwrap();
        let worker = PostgresStore::connect(&logins[1].url).await.unwrap();
        let operator = PostgresStore::connect(&logins[2].url).await.unwrap();
        let scheduler = PostgresStore::connect(&logins[3].url).await.unwrap();
        Self { worker, operator, scheduler, app, logins, inner }
    }
}

#[async_trait]
impl Fixture for RoleFixture {
    type Tx = Transaction<'static, Postgres>;
    type Outbox = PostgresOutbox;
    type Inbox = PostgresInbox;

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(self.worker.clone())
    }

    async fn another_store(&self) -> Arc<dyn Backend> {
        Arc::new(PostgresStore::connect(&self.logins[1].url).await.unwrap())
    }

    fn operate(&self) -> Arc<dyn Backend> {
        Arc::new(self.operator.clone())
    }

    fn timetable(&self) -> Arc<dyn Backend> {
        Arc::new(self.scheduler.clone())
    }

    async fn another_timetable(&self) -> Arc<dyn Backend> {
        Arc::new(PostgresStore::connect(&self.logins[3].url).await.unwrap())
    }

    fn outbox(&self) -> PostgresOutbox {
        PostgresOutbox::default()
    }

    fn inbox(&self) -> PostgresInbox {
        PostgresInbox::default()
    }

    async fn begin(&self) -> Self::Tx {
        self.app.begin().await.unwrap()
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Self::Tx) {
        tx.rollback().await.unwrap();
    }

    async fn savepoint(&self, tx: &mut Self::Tx) {
        self.inner.savepoint(tx).await;
    }

    async fn rollback_to_savepoint(&self, tx: &mut Self::Tx) {
        self.inner.rollback_to_savepoint(tx).await;
    }

    async fn advance(&self, by: Duration) {
        self.inner.advance(by).await;
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.inner.break_dead_letters(broken).await;
    }
}

/// Cases of the store suite that together run every statement of the store, with each role's privileges.
macro_rules! cases {
    ($($module:ident { $($case:ident)* })*) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                postrider_testkit::store::run(super::RoleFixture::new(), postrider_testkit::store::$module::$case).await;
            })*
        })*
    };
}

cases! {
    stage { one_call_stages_messages_of_several_queues a_rolled_back_message_never_exists }
    identity { the_identity_of_a_dead_letter_is_a_duplicate the_identity_of_an_archived_message_is_a_duplicate }
    timers { a_timer_name_is_unique_in_its_queue only_delivery_frees_a_timer_name }
    timer_changes { a_later_time_extends_a_timer a_leased_timer_cannot_be_cancelled }
    big_batches { a_mixed_batch_of_5000_settles_each_message_as_requested }
    leases { a_renewed_lease_outlives_its_original_duration every_settlement_invalidates_the_token }
    key_turns { a_stalled_owner_loses_only_the_reclaimed_keys }
    key_failure_policies { skip_continues_after_a_dead_letter requeued_dead_letters_keep_their_position }
    ordering_stress { block_survives_crashes_retries_and_stalls }
    tenant_fairness { returned_and_due_messages_are_shared_fairly fairness_can_be_declared_on_a_queue_that_holds_messages }
    inbox {
        an_admitted_message_is_a_duplicate deduplication_record_and_staged_messages_commit_together
        prune_removes_old_deduplication_records_in_bounded_steps
    }
    retention { archived_messages_are_pruned_after_their_retention prune_works_in_bounded_steps }
    notifications { a_commit_wakes_an_idle_worker every_queue_is_notified_once }
    timetable { a_tick_raced_by_ten_schedulers_is_staged_once a_tick_wakes_an_idle_worker }
    operator_actions { every_action_leaves_one_audit_row a_requeued_dead_letter_has_no_attempts }
    pause { a_paused_queue_is_not_claimed pauses_are_listed_and_audited }
    bulk {
        an_interrupted_requeue_keeps_key_order a_selection_can_be_discarded_in_every_state
        dead_letters_are_grouped_by_cause
    }
    lookup {
        a_message_is_found_by_every_criterion the_inbox_lists_the_consumers_that_admitted_a_message timers_are_listed_and_cancelled_by_an_operator
        an_archived_message_can_be_replayed
    }
}

const TABLES: [&str; 18] = [
    "queue",
    "ready",
    "scheduled",
    "timer",
    "dead",
    "archive",
    "archive_rest",
    "lane",
    "idle",
    "audit",
    "schedule",
    "inbox",
    "inbox_count",
    "ledger",
    "ledger_head",
    "saga_log",
    "pause",
    "migration",
];

/// The privileges of a role on each table: the verbs, and the columns of a verb that is limited to some.
fn tables(role: Role) -> BTreeMap<&'static str, Vec<&'static str>> {
    let read = [
        "queue",
        "ready",
        "scheduled",
        "timer",
        "dead",
        "archive",
        "archive_rest",
        "lane",
        "idle",
        "audit",
        "schedule",
        "inbox",
        "inbox_count",
        "ledger",
        "ledger_head",
        "saga_log",
        "pause",
    ];
    match role {
        Role::Producer => BTreeMap::new(),
        Role::Consumer => BTreeMap::from([("inbox_count", vec!["select", "insert", "update", "delete"])]),
        Role::Scheduler => {
            let mut may = tables(Role::RustProducer);
            may.insert("schedule", vec!["select", "insert", "update"]);
            may
        }
        Role::RustProducer => BTreeMap::from([
            (
                "ready",
                vec![
                    "insert queue",
                    "insert ordered",
                    "insert fair",
                    "insert key",
                    "insert message_id",
                    "insert payload",
                    "insert event_type",
                    "insert content_type",
                    "insert tenant",
                    "insert subject",
                    "insert headers",
                ],
            ),
            ("queue", vec!["select id", "select name", "select ordered", "select fair"]),
            ("idle", vec!["select queue", "select until"]),
        ]),
        Role::Worker => BTreeMap::from([
            ("queue", vec!["select"]),
            ("pause", vec!["select"]),
            (
                "ready",
                vec![
                    "select",
                    "insert",
                    "delete",
                    "update token",
                    "update lease_until",
                    "update attempts",
                    "update deliveries",
                    "update isolated",
                    "update first_failed_at",
                    "update due_at",
                    "update last_error",
                    "update ordered",
                    "update fair",
                    "update key",
                ],
            ),
            ("scheduled", vec!["select", "insert", "delete", "update due_at"]),
            ("timer", vec!["select", "delete"]),
            ("dead", vec!["select", "insert", "delete", "update payload", "update content_type"]),
            ("saga_log", vec!["select", "insert", "delete"]),
            ("archive", vec!["insert"]),
            ("archive_rest", vec!["select", "delete"]),
            ("inbox", vec!["select", "delete"]),
            ("inbox_count", vec!["select", "delete"]),
            ("lane", vec!["select", "insert", "update", "delete"]),
            ("idle", vec!["select", "insert", "update", "delete"]),
        ]),
        _ => read.into_iter().map(|table| (table, vec!["select"])).collect(),
    }
}

fn functions(role: Role) -> &'static [&'static str] {
    match role {
        Role::Producer => &["stage", "cancel_timer", "stage_changes", "contract"],
        Role::RustProducer | Role::Scheduler => {
            &["stage", "cancel_timer", "stage_changes", "contract", "stage_many", "stage_new"]
        }
        Role::Consumer => &["admit"],
        Role::Worker => &[
            "queue_id",
            "declare_queue",
            "mark_fair",
            "claim_lanes",
            "settle_lanes",
            "survey_tenants",
            "partition_changes",
            "change_partition",
            "finish_follow_up",
            "append_ledger",
        ],
        Role::Operator => &[
            "requeue",
            "discard",
            "replay",
            "audit_replay",
            "release_key",
            "drop_timer",
            "erase_subject",
            "pause_work",
            "resume_work",
            "append_ledger",
            "declare_queue",
            "mark_fair",
            "partition_changes",
            "change_partition",
        ],
        _ => &[],
    }
}

/// The privileges of a role on a sequence; SELECT or USAGE also shows its last value.
fn sequences(role: Role) -> &'static [&'static str] {
    match role {
        Role::RustProducer | Role::Scheduler => &["select nextval('postrider.message_position')"],
        Role::Worker => &[
            "select nextval('postrider.message_position')",
            "select nextval('postrider.turn')",
            "select last_value from postrider.message_position",
        ],
        _ => &[],
    }
}

/// Whether the server allows a statement for a role. The statement is rolled back.
struct Tried {
    connection: PgConnection,
    role: Role,
    allowed: usize,
    denied: usize,
}

impl Tried {
    async fn as_role(login: &Login, role: Role) -> Self {
        Self { connection: PgConnection::connect(&login.url).await.unwrap(), role, allowed: 0, denied: 0 }
    }

    async fn is(&mut self, allowed: bool, sql: String) {
        let mut tx = self.connection.begin().await.unwrap();
        let result = tx.execute(AssertSqlSafe(sql.clone())).await;
        tx.rollback().await.unwrap();
        let code = result.err().and_then(|error| Some(error.as_database_error()?.code()?.into_owned()));
        let role = self.role;
        assert_eq!(code.as_deref() != Some("42501"), allowed, "{role:?}: {sql} answered with {code:?}");
        *if allowed { &mut self.allowed } else { &mut self.denied } += 1;
    }
}

async fn rows(fixture: &PostgresFixture, sql: &'static str) -> Vec<(String, String)> {
    let rows = sqlx::query(sql).fetch_all(&fixture.app).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn table_privileges_of_every_role_match_documentation() {
    let fixture = PostgresFixture::new().await;
    let columns = rows(
        &fixture,
        "select c.relname::text, a.attname::text from pg_class c join pg_attribute a on a.attrelid = c.oid \
         where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 \
         and a.attidentity = '' and not a.attisdropped",
    )
    .await;
    let found: BTreeSet<_> = columns.iter().map(|(table, _)| table.as_str()).collect();
    assert_eq!(found, BTreeSet::from(TABLES), "a table that this test does not know");
    for role in Role::ALL {
        let login = Login::new(fixture.database.url(), &fixture.store, role).await;
        let mut tried = Tried::as_role(&login, role).await;
        let privileges = tables(role);
        for table in TABLES {
            let may = privileges.get(table).cloned().unwrap_or_default();
            let whole = |verb: &str| may.contains(&verb);
            tried.is(whole("select"), format!("select * from postrider.{table}")).await;
            tried.is(whole("delete"), format!("delete from postrider.{table}")).await;
            tried.is(false, format!("truncate postrider.{table}")).await;
            tried.is(false, format!("alter table postrider.{table} add column mine text")).await;
            tried.is(false, format!("drop table postrider.{table}")).await;
            for (_, column) in columns.iter().filter(|(of, _)| of == table) {
                let may = |verb: &str| whole(verb) || may.contains(&format!("{verb} {column}").as_str());
                tried.is(may("select"), format!("select \"{column}\" from postrider.{table}")).await;
                tried.is(may("update"), format!("update postrider.{table} set \"{column}\" = default")).await;
                let insert = format!("insert into postrider.{table} (\"{column}\") values (default)");
                tried.is(may("insert"), insert).await;
            }
        }
        assert!(tried.denied > 100, "{role:?}: {} allowed, {} denied", tried.allowed, tried.denied);
    }
}

#[tokio::test]
async fn function_and_sequence_privileges_of_every_role_match_documentation() {
    let fixture = PostgresFixture::new().await;
    let known = rows(
        &fixture,
        "select p.proname::text, format('select postrider.%I(%s)', p.proname, (select string_agg('null::' || \
         format_type(t, null), ', ') from unnest(p.proargtypes) t)) \
         from pg_proc p where p.pronamespace = 'postrider'::regnamespace",
    )
    .await;
    assert!(known.len() > 15);
    for role in Role::ALL {
        let login = Login::new(fixture.database.url(), &fixture.store, role).await;
        let mut tried = Tried::as_role(&login, role).await;
        for (name, call) in &known {
            tried.is(functions(role).contains(&name.as_str()), call.clone()).await;
        }
        for name in functions(role) {
            assert!(known.iter().any(|(known, _)| known == name), "{name} is no function");
        }
        for sequence in ["message_position", "turn"] {
            for sql in [
                format!("select nextval('postrider.{sequence}')"),
                format!("select setval('postrider.{sequence}', 1)"),
                format!("select last_value from postrider.{sequence}"),
                format!("alter sequence postrider.{sequence} cache 100"),
            ] {
                tried.is(sequences(role).contains(&sql.as_str()), sql).await;
            }
        }
        let producer = matches!(role, Role::Producer | Role::RustProducer | Role::Scheduler);
        tried
            .is(producer, "insert into postrider.outbox (queue, payload) values ('orders', 'x')".to_owned())
            .await;
        for sql in [
            "create table postrider.mine (id int)",
            "create function postrider.mine() returns int language sql as 'select 1'",
            "drop function postrider.contract",
            "create or replace function postrider.contract() returns integer language sql as 'select 2'",
            "drop view postrider.outbox",
            "drop schema postrider cascade",
            "delete from postrider.migration",
        ] {
            tried.is(false, sql.to_owned()).await;
        }
    }
}

/// Without a grant everything is denied, even for a role with usage on the schema.
#[tokio::test]
async fn role_without_grants_can_do_nothing() {
    let fixture = PostgresFixture::new().await;
    let login = Login::without_grants(fixture.database.url()).await;
    for sql in
        ["select postrider.stage('orders', 'x')", "insert into postrider.outbox (queue) values ('orders')"]
    {
        assert_eq!(login.psql_error(sql).0, "42501");
    }
    login.admin(&format!("grant usage on schema postrider to {}", login.name)).await;
    for sql in [
        "select postrider.stage('orders', 'x')",
        "select postrider.queue_id('orders')",
        "select postrider.change_partition('2020-01-01')",
        "insert into postrider.outbox (queue) values ('orders')",
        "select * from postrider.ready",
    ] {
        assert_eq!(login.psql_error(sql).0, "42501");
    }
}

/// The API returns an error for a denied call, and changes nothing.
#[tokio::test]
async fn api_calls_beyond_role_are_denied() {
    let fixture = RoleFixture::new().await;
    let orders = QueueName::new("orders").unwrap();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, Message::builder("orders").json(&1)).await.unwrap();
    fixture.commit(tx).await;
    let request = ClaimRequest::new(orders.clone(), 1);
    let action = Action::new("ada", "because");
    let denied = |error: String| assert!(error.contains("permission denied"), "{error}");

    let producer = PostgresStore::connect(&fixture.logins[0].url).await.unwrap();
    denied(producer.claim(&request).await.unwrap_err().to_string());
    denied(producer.counts().await.unwrap_err().to_string());
    denied(fixture.operator.claim(&request).await.unwrap_err().to_string());
    let claimed = fixture.worker.claim(&request).await.unwrap();
    denied(fixture.worker.discard(&orders, &[claimed[0].id()], &action).await.unwrap_err().to_string());
    denied(fixture.worker.audit(1).await.unwrap_err().to_string());
    denied(fixture.worker.migrate().await.unwrap_err().to_string());
    denied(fixture.operator.settle(&[claimed[0].lease.done()]).await.unwrap_err().to_string());

    let reader = Login::new(fixture.inner.database.url(), &fixture.inner.store, Role::ReadOnly).await;
    let reader_store = PostgresStore::connect(&reader.url).await.unwrap();
    assert_eq!(reader_store.counts().await.unwrap().len(), 1);
    assert!(reader_store.get(&orders, claimed[0].id()).await.unwrap().is_some());
    assert_eq!(reader_store.audit(1).await.unwrap(), []);
    denied(reader_store.discard(&orders, &[claimed[0].id()], &action).await.unwrap_err().to_string());
    let reader_pool = PgPool::connect(&reader.url).await.unwrap();
    let mut tx = reader_pool.begin().await.unwrap();
    denied(
        fixture.outbox().stage(&mut tx, Message::builder("orders").json(&1)).await.unwrap_err().to_string(),
    );
    drop(tx);
    let mut tx = reader_pool.begin().await.unwrap();
    let timer = TimerName::new("t").unwrap();
    denied(fixture.outbox().cancel_timer(&mut tx, &orders, &timer).await.unwrap_err().to_string());
    drop(tx);
    fixture.worker.settle(&[claimed[0].lease.done()]).await.unwrap();
}

/// Every role can validate the tables: the catalog is readable for all.
#[tokio::test]
async fn every_role_can_validate() {
    let fixture = PostgresFixture::new().await;
    for role in Role::ALL {
        let login = Login::new(fixture.database.url(), &fixture.store, role).await;
        let store = PostgresStore::connect(&login.url).await.unwrap();
        assert_eq!(store.validate().await.unwrap(), [], "{role:?}");
        store.close().await;
    }
}

/// The owner needs only the privilege to create a schema; functions with its privileges work for the other roles.
#[tokio::test]
async fn owner_without_superuser_can_migrate_and_serve_roles() {
    let database = TestDatabase::empty().await;
    let owner = Login::without_grants(database.url()).await;
    let allow =
        "do $$ begin execute format('grant create on database %I to OWNER', current_database()); end $$";
    owner.admin(&allow.replace("OWNER", &owner.name)).await;
    let store = PostgresStore::connect(&owner.url).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
    let mut logins = Vec::new();
    for role in [Role::Producer, Role::Worker, Role::Operator] {
        let login = Login::without_grants(database.url()).await;
        owner.psql(&store.grants(role, &login.name).unwrap()).unwrap();
        logins.push(login);
    }
    let orders = QueueName::new("orders").unwrap();
    let worker = PostgresStore::connect(&logins[1].url).await.unwrap();
    let operator = PostgresStore::connect(&logins[2].url).await.unwrap();
    worker.declare(&orders, &QueuePolicy::default().with_keep_for(Duration::from_secs(60))).await.unwrap();
    logins[0].psql("select postrider.stage('orders', '1'); select postrider.stage('orders', '2')").unwrap();
    let claimed = worker.claim(&ClaimRequest::new(orders.clone(), 2)).await.unwrap();
    let dead = claimed[1].lease.dead(Reason::Rejected, "no");
    assert_eq!(worker.settle(&[claimed[0].lease.done(), dead]).await.unwrap(), []);
    worker.prune(&PruneRequest::new()).await.unwrap();
    let requeued = operator.requeue(&orders, &[claimed[1].id()], &Action::new("ada", "again")).await.unwrap();
    assert_eq!(requeued, [claimed[1].id()]);
    assert_eq!(operator.audit(10).await.unwrap().len(), 1);
}

/// A runner with the privileges of a worker can settle follow-ups and audit them; an operator can erase.
#[tokio::test]
async fn worker_settles_follow_ups_and_operator_erases_subject() {
    const DAY: Duration = Duration::from_secs(86_400);
    let fixture = PostgresFixture::new().await;
    let queue = QueueName::new(QUEUE).unwrap();
    let action = Action::new("ada", "because");
    let of_a = SubjectId::new("a").unwrap();
    fixture.store.declare(&queue, &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    let follow_ups = ["a", "b", "c"].map(|subject| {
        let erase = FollowUp::new(subject, "crm", "erase", Reference::new("customer", "1")).unwrap();
        erase.with_json(&"secret").unwrap()
    });
    let mut tx = fixture.begin().await;
    fixture.outbox().follow_up(&mut tx, follow_ups).await.unwrap();
    fixture.commit(tx).await;
    let login = Login::new(fixture.database.url(), &fixture.store, Role::Worker).await;
    let worker = PostgresStore::connect(&login.url).await.unwrap();
    let transactions = worker.transactions(PgPool::connect(&login.url).await.unwrap());
    let claimed = worker.claim(&ClaimRequest::new(queue.clone(), 3)).await.unwrap();
    let mut tx = transactions.begin().await.unwrap();
    let lands = FollowUp::read(&claimed[0].message).unwrap().group();
    assert_eq!(transactions.land(&mut tx, &claimed[0].lease, &lands).await.unwrap(), GroupProgress::Last);
    transactions.record(&mut tx, &[AuditEvent::new(AuditKind::Completed)]).await.unwrap();
    transactions.commit(tx).await.unwrap();
    let mut tx = transactions.begin().await.unwrap();
    assert!(transactions.abandon(&mut tx, &claimed[1].lease, Reason::Rejected, "no").await.unwrap());
    transactions.commit(tx).await.unwrap();
    let mut tx = transactions.begin().await.unwrap();
    let until =
        transactions.schedule(&mut tx, &claimed[2].lease, SystemTime::now() + DAY, DAY).await.unwrap();
    assert!(until.is_some());
    transactions.commit(tx).await.unwrap();
    let denied = |error: String| assert!(error.contains("permission denied"), "{error}");
    denied(verify(&worker.ledger(), None).await.unwrap_err().to_string());
    denied(worker.erase_subject(None, &of_a, &action).await.unwrap_err().to_string());

    let login = Login::new(fixture.database.url(), &fixture.store, Role::Operator).await;
    let operator = PostgresStore::connect(&login.url).await.unwrap();
    let mut expected = StatusCounts::default();
    expected.extend([
        (FollowUpStatus::Succeeded, 1),
        (FollowUpStatus::Abandoned, 1),
        (FollowUpStatus::Scheduled, 1),
    ]);
    assert_eq!(operator.status_counts(&queue).await.unwrap(), expected);
    assert_eq!(operator.follow_up_rows(&queue, FollowUpFilter::Abandoned, 10).await.unwrap().len(), 1);
    let erased = operator.erase_subject(None, &of_a, &action).await.unwrap();
    assert_eq!(erased, ErasureReport { archived: 1, ..ErasureReport::default() });
    assert_eq!(verify(&operator.ledger(), None).await.unwrap().position, 1);
}
