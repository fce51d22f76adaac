//! The inbox: deduplication records and delivery counts.
//!
//! A deduplication record is locked by the transaction that made it until the transaction ends: then the record is committed or
//! deleted. A transaction that admits a message locked by another one waits for the end of that one, as in a database. A batch holds
//! no locks while it waits. Two transactions that wait for each other are a deadlock, so the second one gets an error.

use super::{MemoryStore, MemoryTransaction};
use postrider_core::{Admission, Arrival, ConsumerName, DeadLetter, Error, inspect::DeduplicationRecord};
use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};
use uuid::Uuid;

/// The key of a deduplication record: a message received by a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DeduplicationKey {
    consumer: ConsumerName,
    arrival: Arrival,
}

impl DeduplicationKey {
    pub(super) fn all(consumer: &ConsumerName, arrivals: &[Arrival]) -> Vec<Self> {
        let key = |arrival: &Arrival| Self { consumer: consumer.clone(), arrival: arrival.clone() };
        arrivals.iter().map(key).collect()
    }
}

/// All deduplication records and delivery counts.
#[derive(Debug, Default)]
pub(super) struct DeduplicationRecords {
    /// The committed records, each with its time.
    committed: HashMap<DeduplicationKey, SystemTime>,
    /// The uncommitted records, each with the transaction that made it.
    uncommitted: HashMap<DeduplicationKey, Uuid>,
    /// The waiting transactions, each with the one that it waits for.
    waiting: HashMap<Uuid, Uuid>,
    /// The delivery counts of messages that are not handled yet, each with the time of the last count.
    counts: HashMap<DeduplicationKey, (u32, SystemTime)>,
}

impl DeduplicationRecords {
    /// Admits a batch in a transaction, and adds the new records to `made`. If another transaction has locked one of the messages,
    /// admits nothing and returns that transaction.
    pub(super) fn admit(
        &mut self,
        transaction: Uuid,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        made: &mut Vec<DeduplicationKey>,
    ) -> Result<Vec<Admission>, Uuid> {
        let keys = DeduplicationKey::all(consumer, arrivals);
        let mut holders = keys.iter().filter_map(|key| self.uncommitted.get(key));
        if let Some(other) = holders.find(|holder| **holder != transaction) {
            return Err(*other);
        }
        let admitted = keys.into_iter().map(|key| {
            if self.committed.contains_key(&key) || self.uncommitted.contains_key(&key) {
                return Admission::Duplicate;
            }
            self.uncommitted.insert(key.clone(), transaction);
            made.push(key);
            Admission::First
        });
        Ok(admitted.collect())
    }

    /// Commits the records of a transaction.
    pub(super) fn keep(&mut self, keys: Vec<DeduplicationKey>, now: SystemTime) {
        for key in keys {
            self.uncommitted.remove(&key);
            self.committed.insert(key, now);
        }
    }

    /// Deletes the uncommitted records of a transaction.
    pub(super) fn release(&mut self, keys: &[DeduplicationKey]) {
        for key in keys {
            self.uncommitted.remove(key);
        }
    }

    /// Changes the delivery count of each message, and returns the counts.
    pub(super) fn count(&mut self, keys: &[DeduplicationKey], by: i32, now: SystemTime) -> Vec<u32> {
        let distinct: HashSet<&DeduplicationKey> = keys.iter().collect();
        for key in distinct {
            let (deliveries, counted_at) = self.counts.entry(key.clone()).or_insert((0, now));
            (*deliveries, *counted_at) = (deliveries.saturating_add_signed(by), now);
        }
        keys.iter().map(|key| self.counts.get(key).map_or(0, |(deliveries, _)| *deliveries)).collect()
    }

    /// Deletes the delivery counts of these messages.
    pub(super) fn uncount(&mut self, keys: &[DeduplicationKey]) {
        for key in keys {
            self.counts.remove(key);
        }
    }

    /// The records of a message, by consumer.
    pub(super) fn of(&self, arrival: &Arrival) -> Vec<DeduplicationRecord> {
        let committed = self.committed.iter().filter(|(key, _)| key.arrival == *arrival);
        let mut records: Vec<_> = committed
            .map(|(key, at)| DeduplicationRecord { consumer: key.consumer.clone(), admitted_at: *at })
            .collect();
        records.sort_by(|one, other| one.consumer.cmp(&other.consumer));
        records
    }

    /// The number of records made until `by`, of one consumer or of all.
    pub(super) fn count_older(&self, of: Option<&ConsumerName>, by: SystemTime) -> usize {
        let is_selected = |key: &DeduplicationKey| of.is_none_or(|consumer| key.consumer == *consumer);
        self.committed.iter().filter(|(key, made)| **made <= by && is_selected(key)).count()
    }

    /// Removes up to `limit` records made until `by`, of one consumer or of all, and returns their number.
    pub(super) fn prune(&mut self, of: Option<&ConsumerName>, by: SystemTime, limit: usize) -> usize {
        let is_selected = |key: &DeduplicationKey| of.is_none_or(|consumer| key.consumer == *consumer);
        self.counts.retain(|key, (_, counted_at)| !is_selected(key) || *counted_at > by);
        let old = self.committed.iter().filter(|(key, made)| **made <= by && is_selected(key));
        let old = old.map(|(key, _)| key.clone());
        let old: Vec<DeduplicationKey> = old.take(limit).collect();
        for key in &old {
            self.committed.remove(key);
        }
        old.len()
    }

    /// Whether one transaction waits for another, directly or through others.
    fn depends(&self, mut transaction: Uuid, on: Uuid) -> bool {
        while transaction != on {
            match self.waiting.get(&transaction) {
                Some(next) => transaction = *next,
                None => return false,
            }
        }
        true
    }
}

impl MemoryStore {
    pub(super) fn dead_letter_all(
        &self,
        tx: &mut MemoryTransaction,
        dead_letters: &[DeadLetter],
    ) -> Result<(), Error> {
        tx.check_store(self)?;
        if self.lock().dead_letters_broken && !dead_letters.is_empty() {
            return Err(Error::Unavailable("writes of dead letters are set to fail".into()));
        }
        tx.dead_letter(dead_letters);
        Ok(())
    }

    pub(super) fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        let (mut tables, now) = self.enter();
        Ok(tables.inbox.count(&DeduplicationKey::all(consumer, arrivals), by, now))
    }

    pub(super) fn uncount_all(
        &self,
        tx: &mut MemoryTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        tx.check_store(self)?;
        tx.uncount(DeduplicationKey::all(consumer, arrivals));
        Ok(())
    }

    pub(super) fn verify(&self, tx: &mut MemoryTransaction) -> Result<(), Error> {
        Ok(tx.check_store(self)?)
    }
}

/// The registration of a transaction that waits for another one, until it is dropped.
pub(super) struct LockWait<'s> {
    transaction: Uuid,
    store: &'s MemoryStore,
}

impl<'s> LockWait<'s> {
    pub(super) fn register(holder: Uuid, transaction: Uuid, store: &'s MemoryStore) -> Result<Self, Error> {
        let records = &mut store.lock().inbox;
        if records.depends(holder, transaction) {
            let message = "deadlock: two transactions wait for each other; roll back and try again";
            return Err(Error::Unavailable(message.into()));
        }
        records.waiting.insert(transaction, holder);
        Ok(Self { transaction, store })
    }
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        self.store.lock().inbox.waiting.remove(&self.transaction);
    }
}
