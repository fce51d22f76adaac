//! The ledger: a chain in memory.

use super::{MemoryStore, MemoryTransaction};
use async_trait::async_trait;
use postrider_core::{
    AuditError, AuditEvent, AuditRecord, AuditSink, Invalid, SubjectId,
    audit::{AuditChain, ChainHead, ChainLink},
};
use std::{collections::HashSet, time::SystemTime};
use uuid::Uuid;

/// The links of the chain.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    links: Vec<ChainLink>,
    ids: HashSet<Uuid>,
    head: ChainHead,
}

impl Ledger {
    /// Checks whether these events may be appended.
    pub(super) fn check<'e>(&self, events: impl Iterator<Item = &'e AuditEvent>) -> Result<(), AuditError> {
        let mut seen = HashSet::new();
        for event in events {
            if self.ids.contains(&event.id) || !seen.insert(event.id) {
                return Err(AuditError::Duplicate(event.id));
            }
            body(event)?;
        }
        Ok(())
    }

    /// Appends events that were checked.
    pub(super) fn append(&mut self, events: &[AuditEvent], now: SystemTime) {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        for event in events {
            let Ok(body) = body(event) else { continue };
            let previous = self.head.hash.to_vec();
            // Times never decrease, whatever the clock does.
            let at_micros = now.max(self.links.last().map_or(i64::MIN, |link| link.at_micros));
            self.head = self.head.followed_by(at_micros, &body);
            let hash = self.head.hash.to_vec();
            self.links.push(ChainLink { position: self.head.position, at_micros, body, previous, hash });
            self.ids.insert(event.id);
        }
    }
}

fn body(event: &AuditEvent) -> Result<String, Invalid> {
    serde_json::to_string(event)
        .map_err(|error| Invalid::rule("event", format!("cannot be written as JSON: {error}")))
}

/// The ledger of a [`MemoryStore`].
#[derive(Debug, Clone)]
pub struct MemoryLedger(MemoryStore);

impl MemoryStore {
    /// The audit ledger.
    pub fn ledger(&self) -> MemoryLedger {
        MemoryLedger(self.clone())
    }
}

#[async_trait]
impl AuditSink for MemoryLedger {
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        let (mut tables, now) = self.0.enter();
        tables.ledger.check(events.iter())?;
        tables.ledger.append(events, now);
        Ok(())
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError> {
        let all: Vec<AuditRecord> =
            self.0.lock().ledger.links.iter().map(ChainLink::read).collect::<Result<_, _>>()?;
        Ok(all.into_iter().filter(|recorded| recorded.event.subject.as_ref() == Some(subject)).collect())
    }

    async fn read_since(&self, at: SystemTime, limit: usize) -> Result<Vec<AuditRecord>, AuditError> {
        let all: Vec<AuditRecord> =
            self.0.lock().ledger.links.iter().map(ChainLink::read).collect::<Result<_, _>>()?;
        Ok(all.into_iter().filter(|recorded| recorded.at >= at).take(limit).collect())
    }
}

#[async_trait]
impl AuditChain for MemoryLedger {
    async fn links(&self, after: u64, limit: usize) -> Result<Vec<ChainLink>, AuditError> {
        let tables = self.0.lock();
        Ok(tables.ledger.links.iter().filter(|link| link.position > after).take(limit).cloned().collect())
    }

    async fn head(&self) -> Result<ChainHead, AuditError> {
        Ok(self.0.lock().ledger.head)
    }
}

impl MemoryStore {
    pub(super) fn record(&self, tx: &mut MemoryTransaction, events: &[AuditEvent]) -> Result<(), AuditError> {
        tx.check_store(self)?;
        tx.record(events)
    }
}
