//! The tables: made by versioned migrations that are part of the program.

use super::{Names, PostgresStore, error::store_error, record, validate};
use crate::maker;
use async_trait::async_trait;
use postrider_core::{
    Error, Invalid, OnFailure, Ordering, QueueName, QueuePolicy,
    schema::{Drift, Migrations, Schema},
};
use sqlx::{
    AssertSqlSafe, PgConnection, Row, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
    postgres::{PgPoolOptions, types::PgInterval},
};

pub(super) const MIGRATIONS: [(i64, &str, &str); 16] = [
    (1, "rooms", include_str!("migrations/0001_rooms.sql")),
    (2, "staging", include_str!("migrations/0002_staging.sql")),
    (3, "lanes", include_str!("migrations/0003_lanes.sql")),
    (4, "retention", include_str!("migrations/0004_retention.sql")),
    (5, "queues", include_str!("migrations/0005_queues.sql")),
    (6, "operators", include_str!("migrations/0006_operators.sql")),
    (7, "plain_sql", include_str!("migrations/0007_plain_sql.sql")),
    (8, "new_messages", include_str!("migrations/0008_new_messages.sql")),
    (9, "schedules", include_str!("migrations/0009_schedules.sql")),
    (10, "tenants", include_str!("migrations/0010_tenants.sql")),
    (11, "inbox", include_str!("migrations/0011_inbox.sql")),
    (12, "ledger", include_str!("migrations/0012_ledger.sql")),
    (13, "follow_ups", include_str!("migrations/0013_follow_ups.sql")),
    (14, "sagas", include_str!("migrations/0014_sagas.sql")),
    (15, "pauses", include_str!("migrations/0015_pauses.sql")),
    (16, "bulk", include_str!("migrations/0016_bulk.sql")),
];

#[async_trait]
impl Schema for PostgresStore {
    async fn migrate(&self) -> Result<(), Error> {
        let names = &self.inner.names;
        let migrations = MIGRATIONS.iter().map(|(version, title, template)| {
            let sql = AssertSqlSafe(names.render(template)).into_sql_str();
            Migration::new(*version, (*title).into(), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(names.render("{migration}"));
        migrator.create_schema(format!("\"{}\"", names.schema()));
        // A connection of its own: a migration may take longer than a statement of ours ever should.
        let options = PgPoolOptions::new().max_connections(1);
        let pool = options.connect_with(self.inner.connect.clone()).await.map_err(store_error)?;
        let migrated = migrator.run(&pool).await;
        pool.close().await;
        migrated.map_err(|error| match error {
            sqlx::migrate::MigrateError::Execute(error)
            | sqlx::migrate::MigrateError::ExecuteMigration(error, _) => store_error(error),
            other => Error::SchemaMismatch(other.to_string()),
        })
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        let (mut session, names) = (self.inner.connections.session().await?, &self.inner.names);
        let applied = match record::is_readable(session.connection(), names).await? {
            Some(_) => record::read(session.connection(), names).await?,
            None => Vec::new(),
        };
        Ok(maker::standing(&MIGRATIONS, applied))
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        let mut session = self.inner.connections.session().await?;
        validate::drift(session.connection(), &self.inner.names).await
    }

    fn print(&self) -> String {
        self.inner.names.print()
    }

    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error> {
        policy.check()?;
        let (ordered, on_failure) = match policy.ordering {
            Ordering::Unordered => (false, "block"),
            Ordering::ByKey(OnFailure::Block) => (true, "block"),
            Ordering::ByKey(OnFailure::Park) => (true, "park"),
            Ordering::ByKey(OnFailure::Skip) => (true, "skip"),
        };
        let keep_for = policy.keep_for.map(|keep| {
            let micros = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
            PgInterval { months: 0, days: 0, microseconds: micros.min(MOST_MICROS) }
        });
        let sql = self.inner.names.sql("select {declare_queue}($1, $2, $3, $4, $5, $6)");
        let query = sql
            .query()
            .bind(queue.as_str())
            .bind(ordered)
            .bind(on_failure)
            .bind(keep_for)
            .bind(policy.dead_letters)
            .bind(policy.fair_by_tenant);
        let declared: bool =
            self.inner.connections.run_for_one(query).await?.try_get(0).map_err(store_error)?;
        self.inner.queues.read(&mut &self.inner.connections).await?;
        if !declared {
            let rule =
                format!("queue {:?} still holds messages; drain it, or use a new queue", queue.as_str());
            return Err(Invalid::rule("ordering", rule).into());
        }
        if policy.fair_by_tenant {
            self.line_up(queue).await?;
        }
        Ok(())
    }
}

impl Names {
    /// The statements that make the tables under these names: what [`Schema::print`] answers, without a database.
    pub fn print(&self) -> String {
        let mut sql = format!("create schema if not exists \"{}\";\n", self.schema());
        for (version, title, template) in MIGRATIONS {
            sql.push_str(&format!("\n-- {version:04} {title}\n\n{}", self.render(template)));
        }
        sql
    }
}

impl PostgresStore {
    /// Puts what a queue holds already into the lines of its tenants, in steps, so that nobody waits for all of it. What
    /// others stage meanwhile without knowing is found by those who claim.
    async fn line_up(&self, queue: &QueueName) -> Result<(), Error> {
        let sql = self.inner.names.sql("select {line_up}($1, $2, $3)");
        let mut after = Some(0_i64);
        while let Some(place) = after {
            let query = sql.query().bind(queue.as_str()).bind(place).bind(LINED_UP_AT_ONCE);
            after = self.inner.connections.run_for_one(query).await?.try_get(0).map_err(store_error)?;
        }
        Ok(())
    }

    /// Validates what a connection sees, which may have altered it in an open transaction.
    #[doc(hidden)]
    pub async fn drift_in(&self, connection: &mut PgConnection) -> Result<Vec<Drift>, Error> {
        validate::drift(connection, &self.inner.names).await
    }

    /// What is there, one object a line: what validation compares with what it expects.
    #[doc(hidden)]
    pub async fn describe(&self) -> Result<String, Error> {
        let mut session = self.inner.connections.session().await?;
        let objects = validate::describe(session.connection(), &self.inner.names).await?;
        Ok(objects.iter().map(|(object, definition)| format!("{object}\t{definition}\n")).collect())
    }
}

/// Rows that change hands in one statement.
const LINED_UP_AT_ONCE: i32 = 10_000;

/// A hundred years: more would leave the range of the database's calendar.
const MOST_MICROS: i64 = 100 * 366 * 24 * 60 * 60 * 1_000_000;
