//! The ledger: appending events to a hash chain, and reading them.
//!
//! SQLite has no hash function, so the links are computed here, under the write lock: the head is read, each event is linked to its
//! predecessor, and one insert writes all of them; its triggers move the head. With one writer at a time a chain has one end, whatever
//! the number of processes.

use super::{
    SqliteNames, SqliteStore,
    drivers::{Driver, DriverRow, first_row},
    error::store_error,
    queues::LOCK,
    row::{json, sql_limit},
    statement::Statement,
    timestamp::{self, Micros},
};
use crate::template::Template;
use async_trait::async_trait;
use postrider_core::{
    AuditError, AuditEvent, AuditRecord, AuditSink, Error, Invalid, SubjectId,
    audit::{AuditChain, ChainHead, ChainLink, Hash},
};
use serde_json::{Value, json};
use std::{collections::HashSet, time::SystemTime};
use uuid::Uuid;

/// The time, the head, and one of the events that are in the ledger already. The table of the head has one row.
pub(super) const BEFORE: &str = "select {now}, h.position, h.hash, (select l.event_id from json_each(?1) j \
      cross join {ledger} l indexed by {ledger_event} on l.event_id = j.value limit 1) \
    from {ledger_head} h";

const HEAD: &str = "select null, h.position, h.hash from {ledger_head} h";

const APPEND: &str = "insert into {ledger} (position, at, body, previous, hash) \
    select ?1 + j.key, ?2, j.value ->> 0, unhex(j.value ->> 1), unhex(j.value ->> 2) from json_each(?3) j";

pub(super) const OF_SUBJECT: &str = "select position, at, body, previous, hash from {ledger} indexed by {ledger_subject} \
    where subject = ?1 order by position";

pub(super) const SINCE: &str = "select position, at, body, previous, hash from {ledger} indexed by {ledger_at} \
    where at >= ?1 order by at, position limit ?2";

pub(super) const LINKS: &str = "select position, at, body, previous, hash from {ledger} not indexed \
    where position > ?1 order by position limit ?2";

/// The audit ledger in the file of a store. Created by [`SqliteStore::ledger`].
#[derive(Debug, Clone)]
pub struct SqliteLedger {
    store: SqliteStore,
}

impl SqliteLedger {
    pub(super) fn new(store: SqliteStore) -> Self {
        Self { store }
    }

    fn statement<'p>(&self, template: &Template) -> Statement<'p> {
        self.store.inner.names.statement(template)
    }

    async fn rows(&self, statement: Statement<'_>) -> Result<Vec<ChainLink>, AuditError> {
        let mut reader = self.store.inner.readers.acquire().await.map_err(store_error)?;
        let rows = reader.rows(statement).await.map_err(Error::from)?;
        rows.iter().map(|row| Ok(link(row)?)).collect()
    }
}

#[async_trait]
impl AuditSink for SqliteLedger {
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        let bodies = bodies(events)?;
        if bodies.is_empty() {
            return Ok(());
        }
        let inner = &self.store.inner;
        let mut write = inner.writer.begin(&inner.names).await?;
        match append(&mut write.connection, &inner.names, events, bodies).await {
            Ok(()) => Ok(write.commit().await?),
            Err(error) => {
                write.rollback().await?;
                Err(error)
            }
        }
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError> {
        let links = self.rows(self.statement(&sql!(OF_SUBJECT)).bind(subject.as_str())).await?;
        links.iter().map(ChainLink::read).collect()
    }

    async fn read_since(&self, at: SystemTime, limit: usize) -> Result<Vec<AuditRecord>, AuditError> {
        let links = self
            .rows(self.statement(&sql!(SINCE)).bind(timestamp::from_system_time(at)).bind(sql_limit(limit)))
            .await?;
        links.iter().map(ChainLink::read).collect()
    }
}

#[async_trait]
impl AuditChain for SqliteLedger {
    async fn links(&self, after: u64, limit: usize) -> Result<Vec<ChainLink>, AuditError> {
        // No valid link is before the first one; a forged one must be found.
        let after = if after == 0 { i64::MIN } else { i64::try_from(after).unwrap_or(i64::MAX) };
        self.rows(self.statement(&sql!(LINKS)).bind(after).bind(sql_limit(limit))).await
    }

    async fn head(&self) -> Result<ChainHead, AuditError> {
        let mut reader = self.store.inner.readers.acquire().await.map_err(store_error)?;
        let row = first_row(&mut *reader, self.statement(&sql!(HEAD))).await?;
        head(&row.ok_or_else(missing_head)?)
    }
}

/// Appends all events or none, in the caller's transaction.
pub(super) async fn record(
    driver: &mut impl Driver,
    names: &SqliteNames,
    events: &[AuditEvent],
) -> Result<(), AuditError> {
    match bodies(events)? {
        bodies if bodies.is_empty() => Ok(()),
        bodies => append(driver, names, events, bodies).await,
    }
}

async fn append(
    driver: &mut impl Driver,
    names: &SqliteNames,
    events: &[AuditEvent],
    bodies: Vec<String>,
) -> Result<(), AuditError> {
    let ids = json(events.iter().map(|event| event.id.to_string()));
    let statement =
        names.statement(&sql!("{lock}; {before}", lock = sql!(LOCK), before = sql!(BEFORE))).bind(ids);
    let row = first_row(driver, statement).await?.ok_or_else(missing_head)?;
    let (now, mut head): (Micros, ChainHead) = (row.get(0)?, head(&row)?);
    if let Some(known) = row.get::<Option<String>>(3)? {
        return Err(AuditError::Duplicate(known.parse().map_err(|error| Error::Other(Box::new(error)))?));
    }
    let position = i64::try_from(head.position + 1).unwrap_or(i64::MAX);
    let links = bodies.into_iter().map(|body| {
        let previous = hex(&head.hash);
        head = head.followed_by(now, &body);
        json!([body, previous, hex(&head.hash)])
    });
    let links: Vec<Value> = links.collect();
    driver
        .execute(names.statement(&sql!(APPEND)).bind(position).bind(now).bind(json(links)))
        .await
        .map_err(Error::from)?;
    Ok(())
}

/// The stored form of the events. An event that breaks a rule or occurs twice is found before anything is written.
fn bodies(events: &[AuditEvent]) -> Result<Vec<String>, AuditError> {
    let mut seen: HashSet<Uuid> = HashSet::with_capacity(events.len());
    let body = |event: &AuditEvent| {
        if !seen.insert(event.id) {
            return Err(AuditError::Duplicate(event.id));
        }
        let body = serde_json::to_value(event).map_err(|error| Error::Other(error.into()))?;
        let mut cells = body.as_object().into_iter().flatten();
        if let Some((field, _)) =
            cells.find(|(_, cell)| cell.as_str().is_some_and(|text| text.contains('\0')))
        {
            return Err(Invalid::rule(field.clone(), "contains a NUL, which databases cannot store").into());
        }
        Ok(body.to_string())
    };
    events.iter().map(body).collect()
}

fn head(row: &impl DriverRow) -> Result<ChainHead, AuditError> {
    let position = row.get::<i64>(1)?.unsigned_abs();
    let hash = Hash::try_from(row.get::<&[u8]>(2)?).map_err(|_| AuditError::Unreadable {
        position,
        why: "the hash in its head does not have 32 bytes".to_owned(),
    })?;
    Ok(ChainHead { position, hash })
}

fn missing_head() -> Error {
    Error::SchemaMismatch("the head of the ledger is missing; verify the ledger".to_owned())
}

/// A link as it is stored, even if it was tampered with: verification reports that, not this function.
fn link(row: &impl DriverRow) -> Result<ChainLink, Error> {
    Ok(ChainLink {
        position: u64::try_from(row.get::<i64>(0)?).unwrap_or_default(),
        at_micros: row.get(1)?,
        // Bytes that are not text were never appended, and no hash matches them.
        body: String::from_utf8(row.get(2)?).unwrap_or_default(),
        previous: row.get(3)?,
        hash: row.get(4)?,
    })
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
