//! The ledger: one function of the database appends events and hashes them; see `migrations/0001_initial/12_ledger.sql`.
//!
//! Positions have no gaps, so one transaction appends at a time, and the others wait: the lock of the head is held until the
//! caller's transaction ends. Outside of a transaction, [`PostgresLedger`] appends in one statement and holds the lock no longer.

use super::{PostgresStore, PostgresTransactions, claim::limit, error::store_error, row::Moment};
use crate::template::Template;
use async_trait::async_trait;
use postrider_core::{
    Error, Invalid, SubjectId,
    audit::{AuditChain, AuditError, AuditEvent, AuditRecord, AuditSink, ChainHead, ChainLink, Hash},
};
use sqlx::{
    Postgres, Row, Transaction,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::{
    collections::HashSet,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

const APPEND: &str = "select {append_ledger}($1::text[])";

const BY_SUBJECT: &str = "select l.position, l.at, l.body, l.previous, l.hash from {ledger} l \
    where l.subject = $1 order by l.subject, l.position";

/// No event is older than the one before it: the order of time is the order of positions.
const SINCE: &str = "select l.position, l.at, l.body, l.previous, l.hash from {ledger} l \
    where l.at >= $1 order by l.at, l.position limit $2";

const LINKS: &str = "select l.position, l.at, l.body, l.previous, l.hash from {ledger} l \
    where l.position > $1 order by l.position limit $2";

const HEAD: &str = "select h.position, h.hash from {ledger_head} h";

/// The ledger of a store. Created by [`PostgresStore::ledger`]; cheap to clone.
///
/// The table is append-only, even for its owner, unless its triggers are disabled; [`verify`](postrider_core::audit::verify) detects
/// changes made that way.
#[derive(Debug, Clone)]
pub struct PostgresLedger {
    store: PostgresStore,
}

impl PostgresStore {
    /// The ledger in the tables of this store.
    pub fn ledger(&self) -> PostgresLedger {
        PostgresLedger { store: self.clone() }
    }
}

impl PostgresLedger {
    async fn rows(
        &self,
        template: &Template,
        bind: impl for<'q> FnOnce(Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Error> {
        let inner = &self.store.inner;
        let sql = inner.names.sql(template);
        inner.connections.run(bind(sql.query())).await
    }
}

#[async_trait]
impl AuditSink for PostgresLedger {
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        if events.is_empty() {
            return Ok(());
        }
        let bodies = bodies(events)?;
        // Not on the connections of the hot path: a long wait for the head would delay claims as well.
        let rows = self.rows(&sql!(APPEND), move |query| query.bind(bodies)).await?;
        appended(rows.first())
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError> {
        let subject = subject.as_str().to_owned();
        let rows = self.rows(&sql!(BY_SUBJECT), move |query| query.bind(subject)).await?;
        rows.iter().map(|row| link(row)?.read()).collect()
    }

    async fn read_since(&self, at: SystemTime, max: usize) -> Result<Vec<AuditRecord>, AuditError> {
        let rows = self.rows(&sql!(SINCE), move |query| query.bind(Moment(at)).bind(limit(max))).await?;
        rows.iter().map(|row| link(row)?.read()).collect()
    }
}

#[async_trait]
impl AuditChain for PostgresLedger {
    async fn links(&self, after: u64, max: usize) -> Result<Vec<ChainLink>, AuditError> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let rows = self.rows(&sql!(LINKS), move |query| query.bind(after).bind(limit(max))).await?;
        rows.iter().map(link).collect()
    }

    async fn head(&self) -> Result<ChainHead, AuditError> {
        let rows = self.rows(&sql!(HEAD), |query| query).await?;
        // A missing head counts as an empty ledger, which verification finds to contradict the events.
        rows.first().map_or_else(|| Ok(ChainHead::default()), head)
    }
}

impl PostgresTransactions {
    pub(super) async fn record(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        events: &[AuditEvent],
    ) -> Result<(), AuditError> {
        if events.is_empty() {
            return Ok(());
        }
        let bodies = bodies(events)?;
        let sql = self.sql(&sql!(APPEND));
        let row = sql.query().bind(bodies).fetch_one(&mut **tx).await.map_err(store_error)?;
        appended(Some(&row))
    }
}

/// The events as they are stored.
fn bodies(events: &[AuditEvent]) -> Result<Vec<String>, AuditError> {
    let mut ids = HashSet::with_capacity(events.len());
    let body = |event: &AuditEvent| {
        if !ids.insert(event.id) {
            return Err(AuditError::Duplicate(event.id));
        }
        for (field, text) in [("error", &event.error), ("actor", &event.actor)] {
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                return Err(Invalid::rule(
                    field,
                    "contains the character NUL, which PostgreSQL cannot store",
                )
                .into());
            }
        }
        serde_json::to_string(event).map_err(|error| Error::Other(error.into()).into())
    };
    events.iter().map(body).collect()
}

/// Checks the result of the function: null, or the id of an event that exists already.
fn appended(row: Option<&PgRow>) -> Result<(), AuditError> {
    let known: Option<Uuid> = match row {
        Some(row) => row.try_get(0).map_err(store_error)?,
        None => return Err(store_error(sqlx::Error::RowNotFound).into()),
    };
    known.map_or(Ok(()), |id| Err(AuditError::Duplicate(id)))
}

fn link(row: &PgRow) -> Result<ChainLink, AuditError> {
    let link = || {
        Ok(ChainLink {
            position: row.try_get::<i64, _>(0)?.unsigned_abs(),
            at_micros: micros(row.try_get::<Moment, _>(1)?.0),
            body: row.try_get(2)?,
            previous: row.try_get(3)?,
            hash: row.try_get(4)?,
        })
    };
    link().map_err(|error| store_error(error).into())
}

fn head(row: &PgRow) -> Result<ChainHead, AuditError> {
    let position: i64 = row.try_get(0).map_err(store_error)?;
    let hash: Vec<u8> = row.try_get(1).map_err(store_error)?;
    let position = u64::try_from(position).unwrap_or_default();
    let unreadable = |hash: Vec<u8>| {
        let why = format!("the hash of the head has {} bytes and not 32", hash.len());
        AuditError::Unreadable { position, why }
    };
    Ok(ChainHead { position, hash: Hash::try_from(hash).map_err(unreadable)? })
}

/// Microseconds since 1970.
fn micros(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH);
    let count = |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    since.map_or_else(|before| -count(before.duration()), count)
}
