//! The ledger: events that are appended to a chain, and read again.
//!
//! SQLite cannot hash, so the links are made here, under the write lock: the head is read, each event is linked to the one before
//! it, and all of them are one insert, whose triggers move the head along. With one writer at a time a chain has one end to grow
//! from, in whatever process.

use super::{
    Names, SqliteStore,
    drivers::{Cells, Driver, first},
    error::store_error,
    moment::{self, Micros},
    queues::LOCK,
    row::{json, limit},
    statement::Statement,
};
use async_trait::async_trait;
use postrider_core::{
    AuditError, AuditEvent, AuditSink, Error, Invalid, Recorded, SubjectId,
    audit::{Chain, Hash, Head, Link},
};
use serde_json::{Value, json};
use std::{collections::HashSet, time::SystemTime};
use uuid::Uuid;

/// The time, the head, and one of the events that are there already. The table of the head is one row.
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

/// The ledger in the file of a store. Made by [`SqliteStore::ledger`].
#[derive(Debug, Clone)]
pub struct SqliteLedger {
    store: SqliteStore,
}

impl SqliteLedger {
    pub(super) fn new(store: SqliteStore) -> Self {
        Self { store }
    }

    fn statement<'p>(&self, template: &str) -> Statement<'p> {
        self.store.inner.names.statement(template)
    }

    async fn rows(&self, statement: Statement<'_>) -> Result<Vec<Link>, AuditError> {
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
                write.undo().await?;
                Err(error)
            }
        }
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<Recorded>, AuditError> {
        let links = self.rows(self.statement(OF_SUBJECT).bind(subject.as_str())).await?;
        links.iter().map(Link::read).collect()
    }

    async fn read_since(&self, at: SystemTime, most: usize) -> Result<Vec<Recorded>, AuditError> {
        let links = self.rows(self.statement(SINCE).bind(moment::of(at)).bind(limit(most))).await?;
        links.iter().map(Link::read).collect()
    }
}

#[async_trait]
impl Chain for SqliteLedger {
    async fn links(&self, after: u64, most: usize) -> Result<Vec<Link>, AuditError> {
        // Nothing lies before the first link; what somebody has put there must show.
        let after = if after == 0 { i64::MIN } else { i64::try_from(after).unwrap_or(i64::MAX) };
        self.rows(self.statement(LINKS).bind(after).bind(limit(most))).await
    }

    async fn head(&self) -> Result<Head, AuditError> {
        let mut reader = self.store.inner.readers.acquire().await.map_err(store_error)?;
        let row = first(&mut *reader, self.statement(HEAD)).await?;
        head(&row.ok_or_else(headless)?)
    }
}

/// Appends all events or none, in the transaction of the caller.
pub(super) async fn record(
    driver: &mut impl Driver,
    names: &Names,
    events: &[AuditEvent],
) -> Result<(), AuditError> {
    match bodies(events)? {
        bodies if bodies.is_empty() => Ok(()),
        bodies => append(driver, names, events, bodies).await,
    }
}

async fn append(
    driver: &mut impl Driver,
    names: &Names,
    events: &[AuditEvent],
    bodies: Vec<String>,
) -> Result<(), AuditError> {
    let ids = json(events.iter().map(|event| event.id.to_string()));
    let look = names.statement(&format!("{LOCK}; {BEFORE}")).bind(ids);
    let row = first(driver, look).await?.ok_or_else(headless)?;
    let (now, mut head): (Micros, Head) = (row.get(0)?, head(&row)?);
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
        .execute(names.statement(APPEND).bind(position).bind(now).bind(json(links)))
        .await
        .map_err(Error::from)?;
    Ok(())
}

/// The events as they are kept. What breaks a rule, or is told twice, is found before anything is written.
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
            return Err(Invalid::rule(field.clone(), "holds a NUL, which no database keeps").into());
        }
        Ok(body.to_string())
    };
    events.iter().map(body).collect()
}

fn head(row: &impl Cells) -> Result<Head, AuditError> {
    let position = row.get::<i64>(1)?.unsigned_abs();
    let hash = Hash::try_from(row.get::<&[u8]>(2)?).map_err(|_| AuditError::Unreadable {
        position,
        why: "the hash in its head has no 32 bytes".to_owned(),
    })?;
    Ok(Head { position, hash })
}

fn headless() -> Error {
    Error::SchemaMismatch("the ledger has no head".to_owned())
}

/// A link as it is kept, whatever somebody has made of it: it is not for us to say that it is wrong, but for whoever verifies.
fn link(row: &impl Cells) -> Result<Link, Error> {
    Ok(Link {
        position: u64::try_from(row.get::<i64>(0)?).unwrap_or_default(),
        at_micros: row.get(1)?,
        // What is no text was never appended, and nothing hashes like it.
        body: String::from_utf8(row.get(2)?).unwrap_or_default(),
        previous: row.get(3)?,
        hash: row.get(4)?,
    })
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
