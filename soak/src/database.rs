//! The application's database: its own tables beside those of Postrider.

use crate::task::Batch;
use anyhow::Result;
use postrider_core::{Outbox, schema::Schema};
use postrider_stores::postgres::{PostgresOptions, PostgresStore, guard};
use postrider_testkit::{History, history::KeyPosition};
use serde::{Deserialize, Serialize};
use sqlx::{Executor, PgPool, Row, postgres::PgPoolOptions};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// How a process reaches the database.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) url: String,
    /// The direct URL, for notifications, when `url` is that of a pooler.
    pub(crate) direct: Option<String>,
}

/// The store and the application's own pool.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    pub(crate) store: PostgresStore,
    pub(crate) app: PgPool,
}

/// How a producer's transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Commit,
    Rollback,
}

/// Twice as many as there are handlers in transactions: a defect takes a second one.
const CONNECTIONS: u32 = 16;

impl Database {
    pub(crate) async fn open(address: &Address) -> Result<Self> {
        let app = guard(PgPoolOptions::new().max_connections(CONNECTIONS)).connect(&address.url).await?;
        let mut options = PostgresOptions::new(&address.url)?.with_connections(3);
        if let Some(direct) = &address.direct {
            options = options.behind_pooler().with_listen_url(direct)?;
        }
        Ok(Self { store: PostgresStore::open(options).await?, app })
    }

    /// Creates all tables.
    pub(crate) async fn create(&self) -> Result<()> {
        self.store.migrate().await?;
        // No constraint: violations must be visible.
        let tables = "create table witness (id uuid, doomed bool, key text, number bigint); \
                      create table effect (position bigint generated always as identity, id uuid)";
        self.app.execute(tables).await?;
        // A process that freezes in a transaction locks its message until the server ends the session.
        self.app.execute("alter database postgres set idle_in_transaction_session_timeout = 2000").await?;
        Ok(())
    }

    /// Stages messages and writes their witness rows in one transaction, or in two if that defect is wanted.
    pub(crate) async fn produce(&self, batch: &Batch, ending: Ending, is_divided: bool) -> Result<()> {
        let mut tx = self.app.begin().await?;
        let staged = self.store.outbox().stage_all(&mut tx, &batch.messages).await?;
        if is_divided {
            tx.commit().await?;
            tx = self.app.begin().await?;
        }
        let ids: Vec<Uuid> = staged.outcomes().iter().map(|(id, _)| id.as_uuid()).collect();
        sqlx::query(
            "insert into witness select * from unnest($1::uuid[], $2::bool[], $3::text[], $4::bigint[])",
        )
        .bind(ids)
        .bind(&batch.doomed)
        .bind(&batch.keys)
        .bind(&batch.numbers)
        .persistent(false)
        .execute(&mut *tx)
        .await?;
        match ending {
            Ending::Commit => tx.commit().await?,
            Ending::Rollback => tx.rollback().await?,
        }
        Ok(())
    }

    /// The number of messages that are neither delivered nor dead.
    pub(crate) async fn left(&self) -> Result<i64> {
        self.count(
            "select (select count(*) from postrider.ready) + (select count(*) from postrider.scheduled)",
        )
        .await
    }

    /// The number of messages of committed transactions.
    pub(crate) async fn staged(&self) -> Result<i64> {
        self.count("select count(*) from witness").await
    }

    /// The number of transactions of other sessions that have not ended: a killed process may have left one.
    pub(crate) async fn open_transactions(&self) -> Result<i64> {
        self.count(
            "select count(*) from pg_stat_activity \
             where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend'",
        )
        .await
    }

    /// The history without the journal.
    pub(crate) async fn history(&self) -> Result<History> {
        let rows = sqlx::query("select id, doomed, key, number from witness").fetch_all(&self.app).await?;
        let (mut witness, mut positions) = (HashMap::with_capacity(rows.len()), HashMap::new());
        for row in rows {
            let id: Uuid = row.try_get(0)?;
            witness.insert(id, row.try_get(1)?);
            if let Some(key) = row.try_get(2)? {
                positions.insert(id, KeyPosition { key, number: row.try_get(3)? });
            }
        }
        let waiting =
            "select message_id from postrider.ready union all select message_id from postrider.scheduled";
        Ok(History {
            witness,
            positions,
            runs: Vec::new(),
            effects: self.ids("select id from effect order by position").await?,
            dead: self.ids("select message_id from postrider.dead").await?,
            waiting: self.ids(waiting).await?,
        })
    }

    /// Removes everything that a checked round has left, so that a run of any length needs the same space.
    pub(crate) async fn empty(&self) -> Result<()> {
        self.app
            .execute("truncate witness, effect, postrider.dead, postrider.inbox, postrider.inbox_count")
            .await?;
        Ok(())
    }

    /// The rows of every table that name the message, as JSON.
    pub(crate) async fn rows(&self, id: Uuid) -> Result<BTreeMap<&'static str, Vec<String>>> {
        const TABLES: [(&str, &str); 6] = [
            ("witness", "select to_jsonb(t)::text from witness t where id = $1"),
            ("effect", "select to_jsonb(t)::text from effect t where id = $1"),
            ("ready", "select to_jsonb(t)::text from postrider.ready t where message_id = $1"),
            ("scheduled", "select to_jsonb(t)::text from postrider.scheduled t where message_id = $1"),
            ("dead", "select to_jsonb(t)::text from postrider.dead t where message_id = $1"),
            ("inbox", "select to_jsonb(t)::text from postrider.inbox t where message_id = $1"),
        ];
        let mut rows = BTreeMap::new();
        for (table, sql) in TABLES {
            rows.insert(table, sqlx::query_scalar(sql).bind(id).fetch_all(&self.app).await?);
        }
        Ok(rows)
    }

    async fn ids(&self, sql: &'static str) -> Result<Vec<Uuid>> {
        Ok(sqlx::query_scalar(sql).fetch_all(&self.app).await?)
    }

    async fn count(&self, sql: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(sql).persistent(false).fetch_one(&self.app).await?)
    }
}
