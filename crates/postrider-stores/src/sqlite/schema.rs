//! The schema: tables created by versioned migrations that are part of the program.

use super::{SqliteNames, SqliteStore, applied_migrations, error::store_error, queues, validate};
use crate::object_script::{self, MigrationScript};
use crate::template::Template;
use async_trait::async_trait;
use postrider_core::{
    CheckupRequest, Error, Finding, Invalid, QueueName, QueuePolicy,
    schema::{Drift, Migrations, Schema},
};
use sqlx::{
    Connection, Row,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

/// The versions of the schema, in order. A change to the tables is a new entry; a released entry is never edited.
pub(super) const MIGRATIONS: &[MigrationScript] = &[(
    1,
    "initial",
    concat!(
        include_str!("migrations/0001_initial/01_tables.sql"),
        "\n",
        include_str!("migrations/0001_initial/02_plain_sql.sql"),
        "\n",
        include_str!("migrations/0001_initial/03_inbox.sql"),
        "\n",
        include_str!("migrations/0001_initial/04_follow_ups.sql"),
        "\n",
        include_str!("migrations/0001_initial/05_operations.sql"),
    ),
)];

/// Whether a queue has no messages left. Its ordering may change only then.
const IS_EMPTY: &str = "select not exists (select 1 from {ready} where queue = ?1 and token is null) \
    and not exists (select 1 from {ready} where queue = ?1 and token is not null) \
    and not exists (select 1 from {scheduled} where queue = ?1)";

#[async_trait]
impl Schema for SqliteStore {
    async fn migrate(&self) -> Result<(), Error> {
        self.run_migrations(MIGRATIONS).await
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        let applied = applied_migrations::read(&mut connection, &self.inner.names).await?;
        Ok(object_script::status(MIGRATIONS, applied.unwrap_or_default()))
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        validate::drift(&mut connection, &self.inner.names).await
    }

    fn print(&self) -> String {
        self.inner.names.print()
    }

    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error> {
        policy.check()?;
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let connection = &mut write.connection;
        let known = queues::get_or_create(connection, names, &[queue]).await?;
        let Some(known) = known.get(queue) else {
            return Err(Error::Other("the queue could not be created".into()));
        };
        let (ordered, on_failure, keep_for, dead_letters) = queues::columns(policy);
        if known.is_ordered() != ordered {
            let row = names.sql(&sql!(IS_EMPTY));
            let row = row.query().bind(known.number).fetch_one(&mut *connection).await;
            if !row.and_then(|row| row.try_get::<bool, _>(0)).map_err(store_error)? {
                write.commit().await?;
                let rule =
                    format!("queue {:?} still holds messages; drain it, or use a new queue", queue.as_str());
                return Err(Invalid::rule("ordering", rule).into());
            }
        }
        let sql = names.sql(&sql!(
            "update {queue} set ordered = ?2, on_failure = ?3, keep_for = ?4, dead_letters = ?5, fair = ?6 where id = ?1"
        ));
        let query = sql.query().bind(known.number).bind(ordered).bind(on_failure).bind(keep_for);
        let query = query.bind(dead_letters).bind(policy.fair_by_tenant);
        query.execute(&mut *connection).await.map_err(store_error)?;
        if policy.fair_by_tenant && !known.policy.fair_by_tenant {
            let sql = names.sql(&sql!("update {ready} set fair = 1 where queue = ?1 and fair = 0"));
            sql.query().bind(known.number).execute(&mut *connection).await.map_err(store_error)?;
        }
        write.commit().await
    }

    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        Self::checkup(self, request).await
    }
}

impl SqliteNames {
    /// The statements that create the tables under these names: the same as [`Schema::print`], without a database.
    pub fn print(&self) -> String {
        let mut sql = String::new();
        for (version, title, template) in MIGRATIONS {
            sql.push_str(&format!("-- {version:04} {title}\n\n{}\n", self.render(template)));
        }
        sql
    }
}

impl SqliteStore {
    /// Runs those of the migrations that the database has no record of.
    async fn run_migrations(&self, migrations: &[MigrationScript]) -> Result<(), Error> {
        let inner = &self.inner;
        let migrations = migrations.iter().map(|(version, title, template)| {
            let sql = inner.names.sql(&Template::of_schema(*template)).text();
            Migration::new(*version, (*title).into(), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(inner.names.render("{migration}"));
        // One transaction runs all of them and takes the write lock first: of many processes that migrate at the same time,
        // one does the work and the others find it done.
        let mut connection = inner.writer.connect().await?;
        let mut tx = connection.begin_with("begin immediate").await.map_err(store_error)?;
        migrator.run_direct(None, &mut *tx, false).await.map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => store_error(error),
            other => Error::SchemaMismatch(other.to_string()),
        })?;
        tx.commit().await.map_err(store_error)?;
        connection.close().await.map_err(store_error)
    }

    /// The objects in the database, one per line: validation compares them with `expected.txt`.
    #[doc(hidden)]
    pub async fn describe(&self) -> Result<String, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        let objects = validate::describe(&mut connection, &self.inner.names).await?;
        Ok(objects.iter().map(|(object, definition)| format!("{object}\t{definition}\n")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::validate::EXPECTED;
    use sqlx::{AssertSqlSafe, Executor, SqlitePool};
    use std::collections::BTreeMap;

    /// A version that alters, creates, fills and drops, as a later one might.
    const SECOND: &str = "alter table {ready} add column note text; \
        create table {note} (id integer primary key, text text not null) strict; \
        insert into {note} (text) select event_type from {ready}; \
        drop index {archive_page}; \
        create index {archive_page} on {archive} (queue, archived_at, id);";

    /// A row in each table that staging does not fill.
    const ROWS: &str = "insert into postrider_dead (queue, message_id, staged_at, due_at, failed_at, reason, payload) \
          values (1, randomblob(16), 1, 2, 3, 'rejected', x'64'); \
        insert into postrider_archive (queue, message_id, staged_at, due_at, archived_at, expires_at, payload) \
          values (1, randomblob(16), 1, 2, 3, 4, x'64'); \
        insert into postrider_lane (queue, key, turn) values (1, 'key', 7); \
        insert into postrider_idle (queue, worker, until) values ('orders', randomblob(16), 9); \
        insert into postrider_inbox (consumer, tenant, message_id, admitted_at) values ('billing', '', randomblob(16), 1); \
        insert into postrider_inbox_count (consumer, tenant, message_id, deliveries, counted_at) \
          values ('billing', '', randomblob(16), 3, 1); \
        insert into postrider_ledger (position, at, body, previous, hash) \
          values (1, 1, '{\"id\": \"a\"}', zeroblob(32), randomblob(32)); \
        insert into postrider_saga_log (saga, n, at, body) values (randomblob(16), 0, 1, '{}'); \
        insert into postrider_schedule (name, last_at) values ('nightly', 1); \
        insert into postrider_pause (kind, name, since, actor, why) values ('queue', 'orders', 1, 'ann', 'test'); \
        insert into postrider_audit (at, actor, why, verb) values (1, 'ann', 'test', 'pause'); \
        insert into postrider_outbox (queue, payload, type) values ('orders', 'now', 'order.placed'); \
        insert into postrider_outbox (queue, payload, due_after) values ('orders', 'later', 60); \
        insert into postrider_outbox (queue, payload, due_after, timer) values ('orders', 'timer', 60, 'reminder');";

    /// The rows of every table of version 1, as JSON, without columns that are not in it.
    async fn dump(app: &SqlitePool) -> BTreeMap<&'static str, Vec<String>> {
        let mut columns = BTreeMap::<_, Vec<&str>>::new();
        for object in EXPECTED.lines().filter_map(|line| line.split('\t').next()?.strip_prefix("column ")) {
            let (table, column) = object.split_once('.').unwrap();
            columns.entry(table).or_default().push(column);
        }
        let mut dump = BTreeMap::new();
        for (table, columns) in columns {
            let cells: Vec<_> = columns.iter().map(|column| format!("quote({column})")).collect();
            let sql = format!("select json_array({}) from postrider_{table} order by 1", cells.join(", "));
            let rows = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(app).await.unwrap();
            dump.insert(table, rows);
        }
        dump
    }

    #[tokio::test]
    async fn migration_to_next_version_keeps_rows_of_every_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let store = SqliteStore::open(&path).await.unwrap();
        store.migrate().await.unwrap();
        let app = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        app.execute(ROWS).await.unwrap();
        let before = dump(&app).await;
        assert!(before.len() > 15);
        for (table, rows) in &before {
            assert!(!rows.is_empty(), "table {table} has no row to keep");
        }

        let next: Vec<MigrationScript> = MIGRATIONS.iter().copied().chain([(2, "notes", SECOND)]).collect();
        // A second run has nothing to do.
        for _ in 0..2 {
            store.run_migrations(&next).await.unwrap();
            assert_eq!(dump(&app).await, before);
        }
        let notes: Vec<String> =
            sqlx::query_scalar("select text from postrider_note").fetch_all(&app).await.unwrap();
        assert_eq!(notes, ["order.placed"]);

        let migrations = store.migrations().await.unwrap();
        let applied = migrations.applied.iter().map(|applied| (applied.number, applied.name.as_str()));
        assert_eq!(applied.collect::<Vec<_>>(), [(1, "initial"), (2, "notes")]);
        assert_eq!(migrations.pending, []);
        assert_eq!(store.validate().await.unwrap(), []);
    }
}
