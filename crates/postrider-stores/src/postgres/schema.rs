//! The tables: created by versioned migrations, which are compiled into the program.

use super::{
    PostgresNames, PostgresStore, applied_migrations, error::store_error, pooled_connection::connect_within,
    prune, validate,
};
use crate::object_script::{self, MigrationScript};
use async_trait::async_trait;
use postrider_core::{
    CheckupRequest, Error, Finding, Invalid, OnFailure, Ordering, QueueName, QueuePolicy,
    schema::{Drift, Migrations, Schema},
};
use sqlx::{
    AssertSqlSafe, PgConnection, Row, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
    postgres::{PgPoolOptions, types::PgInterval},
};
use std::time::Duration;

/// The first version, by subject. Each object is created once, in its final form.
const INITIAL: &str = concat!(
    include_str!("migrations/0001_initial/01_tables.sql"),
    "\n",
    include_str!("migrations/0001_initial/02_queues.sql"),
    "\n",
    include_str!("migrations/0001_initial/03_staging.sql"),
    "\n",
    include_str!("migrations/0001_initial/04_lanes.sql"),
    "\n",
    include_str!("migrations/0001_initial/05_tenants.sql"),
    "\n",
    include_str!("migrations/0001_initial/06_retention.sql"),
    "\n",
    include_str!("migrations/0001_initial/07_operators.sql"),
    "\n",
    include_str!("migrations/0001_initial/08_pauses.sql"),
    "\n",
    include_str!("migrations/0001_initial/09_plain_sql.sql"),
    "\n",
    include_str!("migrations/0001_initial/10_schedules.sql"),
    "\n",
    include_str!("migrations/0001_initial/11_inbox.sql"),
    "\n",
    include_str!("migrations/0001_initial/12_ledger.sql"),
    "\n",
    include_str!("migrations/0001_initial/13_follow_ups.sql"),
    "\n",
    include_str!("migrations/0001_initial/14_sagas.sql"),
);

/// Every version, in order. A change of the schema after a release is a new entry.
pub(super) const MIGRATIONS: [MigrationScript; 1] = [(1, "initial", INITIAL)];

#[async_trait]
impl Schema for PostgresStore {
    async fn migrate(&self) -> Result<(), Error> {
        self.run_migrations(&MIGRATIONS).await
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        let (connections, names) = (&self.inner.connections, &self.inner.names);
        let reading = async {
            let mut session = connections.session().await?;
            match applied_migrations::is_readable(&mut session, names).await? {
                Some(_) => applied_migrations::read(&mut session, names).await,
                None => Ok(Vec::new()),
            }
        };
        let applied = connections.within_timeout(reading).await?;
        Ok(object_script::status(&MIGRATIONS, applied))
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        let connections = &self.inner.connections;
        let validating = async {
            let mut session = connections.session().await?;
            validate::drift(&mut session, &self.inner.names).await
        };
        connections.within_timeout(validating).await
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
            PgInterval { months: 0, days: 0, microseconds: micros.min(MAX_KEEP_MICROS) }
        });
        let sql = self.inner.names.sql(&sql!("select {declare_queue}($1, $2, $3, $4, $5, $6)"));
        let query = || {
            let query = sql.query().bind(queue.as_str()).bind(ordered).bind(on_failure).bind(keep_for);
            query.bind(policy.dead_letters).bind(policy.fair_by_tenant)
        };
        let mut attempt = 1;
        let row = loop {
            match self.inner.connections.run_for_one(query()).await {
                Err(error) if error.is_contention() => {
                    if attempt == DECLARE_ATTEMPTS {
                        return Err(declare_contention(queue, &error));
                    }
                    tokio::time::sleep(DECLARE_PAUSE).await;
                }
                row => break row?,
            }
            attempt += 1;
        };
        let declared: bool = row.try_get(0).map_err(store_error)?;
        self.inner.queues.read(&mut &self.inner.connections).await?;
        if !declared {
            let rule =
                format!("queue {:?} still holds messages; drain it, or use a new queue", queue.as_str());
            return Err(Invalid::rule("ordering", rule).into());
        }
        if policy.fair_by_tenant {
            self.mark_fair(queue).await?;
        }
        if policy.keep_for.is_some() {
            prune::change_partitions(&self.inner.connections, &self.inner.names).await?;
        }
        Ok(())
    }

    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        Self::checkup(self, request).await
    }
}

impl PostgresNames {
    /// The SQL that creates the tables under these names, as [`Schema::print`] returns it, without a database.
    pub fn print(&self) -> String {
        let mut sql = format!("create schema if not exists \"{}\";\n", self.schema());
        for (version, name, template) in MIGRATIONS {
            sql.push_str(&format!("\n-- {version:04} {name}\n\n{}", self.render(template)));
        }
        sql
    }
}

impl PostgresStore {
    async fn run_migrations(&self, migrations: &[MigrationScript]) -> Result<(), Error> {
        let names = &self.inner.names;
        let migrations = migrations.iter().map(|(version, name, template)| {
            let sql = AssertSqlSafe(names.render(template)).into_sql_str();
            Migration::new(*version, (*name).into(), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(names.render("{migration}"));
        migrator.create_schema(format!("\"{}\"", names.schema()));
        // A connection of its own: a migration may take longer than the timeouts of the store's connections allow.
        let options = PgPoolOptions::new().max_connections(1).connect_with(self.inner.connect.clone());
        let pool = connect_within(self.inner.timeouts.connect, options).await.map_err(store_error)?;
        let result = migrator.run(&pool).await;
        pool.close().await;
        result.map_err(|error| match error {
            sqlx::migrate::MigrateError::Execute(error)
            | sqlx::migrate::MigrateError::ExecuteMigration(error, _) => store_error(error),
            other => Error::SchemaMismatch(other.to_string()),
        })
    }

    /// Runs the migrations of this version and then `next`, for tests of upgrades.
    #[doc(hidden)]
    pub async fn migrate_with(&self, next: &[(i64, &'static str, &'static str)]) -> Result<(), Error> {
        self.run_migrations(&[&MIGRATIONS[..], next].concat()).await
    }

    /// Marks the rows that a queue holds already for the index by tenant, in steps, so that no claim waits for all of them. Rows
    /// that producers stage meanwhile without the mark are found by the claims.
    async fn mark_fair(&self, queue: &QueueName) -> Result<(), Error> {
        let sql = self.inner.names.sql(&sql!("select {mark_fair}($1, $2, $3)"));
        let mut after = Some(0_i64);
        while let Some(position) = after {
            let query = sql.query().bind(queue.as_str()).bind(position).bind(MARK_FAIR_BATCH);
            after = self.inner.connections.run_for_one(query).await?.try_get(0).map_err(store_error)?;
        }
        Ok(())
    }

    /// Validates the tables as a connection sees them, for tests that alter them in an open transaction.
    #[doc(hidden)]
    pub async fn drift_in(&self, connection: &mut PgConnection) -> Result<Vec<Drift>, Error> {
        validate::drift(connection, &self.inner.names).await
    }

    /// The catalog of the existing objects, one per line, as validation compares it with `expected.txt`.
    #[doc(hidden)]
    pub async fn describe(&self) -> Result<String, Error> {
        let mut session = self.inner.connections.session().await?;
        let objects = validate::describe(&mut session, &self.inner.names).await?;
        Ok(objects.iter().map(|(object, definition)| format!("{object}\t{definition}\n")).collect())
    }
}

/// Attempts to declare a queue while other transactions stage messages, and the pause between them: five seconds in all. Each
/// attempt makes producers wait for a tenth of a second at most.
const DECLARE_ATTEMPTS: usize = 20;
const DECLARE_PAUSE: Duration = Duration::from_millis(150);

fn declare_contention(queue: &QueueName, error: &Error) -> Error {
    let text = format!(
        "queue {:?} was not declared, because other transactions that stage messages are open ({error}); declare it again when \
         they have ended",
        queue.as_str()
    );
    Error::Unavailable(text.into())
}

/// The number of rows that one statement marks.
const MARK_FAIR_BATCH: i32 = 10_000;

/// A hundred years: more would exceed the range of the database's calendar.
const MAX_KEEP_MICROS: i64 = 100 * 366 * 24 * 60 * 60 * 1_000_000;
