//! The tables: made by versioned migrations that are part of the program.

use super::{Names, SqliteStore, error::store_error, queues, record, validate};
use crate::maker;
use async_trait::async_trait;
use postrider_core::{
    Error, Invalid, QueueName, QueuePolicy,
    schema::{Drift, Migrations, Schema},
};
use sqlx::{
    Connection, Row,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

pub(super) const MIGRATIONS: [(i64, &str, &str); 9] = [
    (1, "rooms", include_str!("migrations/0001_rooms.sql")),
    (2, "plain sql", include_str!("migrations/0002_plain_sql.sql")),
    (3, "schedules", include_str!("migrations/0003_schedules.sql")),
    (4, "tenants", include_str!("migrations/0004_tenants.sql")),
    (5, "inbox", include_str!("migrations/0005_inbox.sql")),
    (6, "follow-ups", include_str!("migrations/0006_follow_ups.sql")),
    (7, "sagas", include_str!("migrations/0007_sagas.sql")),
    (8, "pauses", include_str!("migrations/0008_pauses.sql")),
    (9, "bulk", include_str!("migrations/0009_bulk.sql")),
];

/// Where a queue is changed from ordered to unordered or back, nothing of it may be left.
const IS_EMPTY: &str = "select not exists (select 1 from {ready} where queue = ?1 and token is null) \
    and not exists (select 1 from {ready} where queue = ?1 and token is not null) \
    and not exists (select 1 from {later} where queue = ?1)";

#[async_trait]
impl Schema for SqliteStore {
    async fn migrate(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let migrations = MIGRATIONS.iter().map(|(version, title, template)| {
            let sql = inner.names.sql(template).text();
            Migration::new(*version, (*title).into(), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(inner.names.render("{migration}"));
        // All of it is one transaction, which has the write lock from its first moment on: of many processes that migrate at
        // once, one does, and the others find it done.
        let mut connection = inner.writer.connect().await?;
        let mut tx = connection.begin_with("begin immediate").await.map_err(store_error)?;
        migrator.run_direct(None, &mut *tx, false).await.map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => store_error(error),
            other => Error::SchemaMismatch(other.to_string()),
        })?;
        tx.commit().await.map_err(store_error)?;
        connection.close().await.map_err(store_error)
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        let applied = record::read(&mut connection, &self.inner.names).await?;
        Ok(maker::standing(&MIGRATIONS, applied.unwrap_or_default()))
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
        let known = queues::used(connection, names, &[queue]).await?;
        let Some(known) = known.get(queue) else { return Err(Error::Other("the queue was not made".into())) };
        let (ordered, on_failure, keep_for, dead_letters) = queues::columns(policy);
        if known.is_ordered() != ordered {
            let row = names.sql(IS_EMPTY);
            let row = row.query().bind(known.number).fetch_one(&mut *connection).await;
            if !row.and_then(|row| row.try_get::<bool, _>(0)).map_err(store_error)? {
                write.commit().await?;
                let rule =
                    format!("queue {:?} still holds messages; drain it, or use a new queue", queue.as_str());
                return Err(Invalid::rule("ordering", rule).into());
            }
        }
        let sql = names.sql(
            "update {queue} set ordered = ?2, on_failure = ?3, keep_for = ?4, dead_letters = ?5, fair = ?6 where id = ?1",
        );
        let query = sql.query().bind(known.number).bind(ordered).bind(on_failure).bind(keep_for);
        let query = query.bind(dead_letters).bind(policy.fair_by_tenant);
        query.execute(&mut *connection).await.map_err(store_error)?;
        if policy.fair_by_tenant && !known.policy.fair_by_tenant {
            let sql = names.sql("update {ready} set fair = 1 where queue = ?1 and fair = 0");
            sql.query().bind(known.number).execute(&mut *connection).await.map_err(store_error)?;
        }
        write.commit().await
    }
}

impl Names {
    /// The statements that make the tables under these names: what [`Schema::print`] answers, without a database.
    pub fn print(&self) -> String {
        let mut sql = String::new();
        for (version, title, template) in MIGRATIONS {
            sql.push_str(&format!("-- {version:04} {title}\n\n{}\n", self.render(template)));
        }
        sql
    }
}

impl SqliteStore {
    /// What is there, one object a line: what validation compares with what it expects.
    #[doc(hidden)]
    pub async fn describe(&self) -> Result<String, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        let objects = validate::describe(&mut connection, &self.inner.names).await?;
        Ok(objects.iter().map(|(object, definition)| format!("{object}\t{definition}\n")).collect())
    }
}
