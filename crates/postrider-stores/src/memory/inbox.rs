//! What has been received.
//!
//! A mark is held by the transaction that made it, until that ends: then it is kept, or gone. Whoever admits what another transaction holds
//! waits for its end, as in a database. A batch holds nothing while it waits. Two transactions that wait for each other would do so for
//! ever, so the second one is told.

use super::{MemoryStore, Transaction};
use postrider_core::{Admission, Arrival, ConsumerName, Error, Inbox, Parked, Receive, inspect::InboxMark};
use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};
use uuid::Uuid;

/// A message that a consumer has received.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    consumer: ConsumerName,
    arrival: Arrival,
}

impl Mark {
    pub(super) fn all(consumer: &ConsumerName, arrivals: &[Arrival]) -> Vec<Self> {
        let mark = |arrival: &Arrival| Self { consumer: consumer.clone(), arrival: arrival.clone() };
        arrivals.iter().map(mark).collect()
    }
}

/// All marks.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// When each was made.
    kept: HashMap<Mark, SystemTime>,
    /// The transaction that holds each.
    held: HashMap<Mark, Uuid>,
    /// Transactions that wait, and for which one.
    waiting: HashMap<Uuid, Uuid>,
    /// How often each was delivered that has not been handled yet, and when that was counted.
    counts: HashMap<Mark, (u32, SystemTime)>,
}

impl Marks {
    /// Admits a batch in a transaction, and adds what is new to `made`. Where another transaction holds some of it, nothing is admitted
    /// and that one is the answer.
    pub(super) fn admit(
        &mut self,
        transaction: Uuid,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        made: &mut Vec<Mark>,
    ) -> Result<Vec<Admission>, Uuid> {
        let marks = Mark::all(consumer, arrivals);
        let mut holders = marks.iter().filter_map(|mark| self.held.get(mark));
        if let Some(other) = holders.find(|holder| **holder != transaction) {
            return Err(*other);
        }
        let admitted = marks.into_iter().map(|mark| {
            if self.kept.contains_key(&mark) || self.held.contains_key(&mark) {
                return Admission::Duplicate;
            }
            self.held.insert(mark.clone(), transaction);
            made.push(mark);
            Admission::First
        });
        Ok(admitted.collect())
    }

    /// Keeps what a transaction held.
    pub(super) fn keep(&mut self, marks: Vec<Mark>, now: SystemTime) {
        for mark in marks {
            self.held.remove(&mark);
            self.kept.insert(mark, now);
        }
    }

    /// Forgets what a transaction held.
    pub(super) fn release(&mut self, marks: &[Mark]) {
        for mark in marks {
            self.held.remove(mark);
        }
    }

    /// Counts a delivery of each.
    pub(super) fn count(&mut self, marks: &[Mark], by: i32, now: SystemTime) -> Vec<u32> {
        let distinct: HashSet<&Mark> = marks.iter().collect();
        for mark in distinct {
            let (deliveries, counted_at) = self.counts.entry(mark.clone()).or_insert((0, now));
            (*deliveries, *counted_at) = (deliveries.saturating_add_signed(by), now);
        }
        marks.iter().map(|mark| self.counts.get(mark).map_or(0, |(deliveries, _)| *deliveries)).collect()
    }

    /// Forgets how often these were delivered.
    pub(super) fn uncount(&mut self, marks: &[Mark]) {
        for mark in marks {
            self.counts.remove(mark);
        }
    }

    /// Who has admitted it.
    pub(super) fn of(&self, arrival: &Arrival) -> Vec<InboxMark> {
        let kept = self.kept.iter().filter(|(mark, _)| mark.arrival == *arrival);
        let mut marks: Vec<_> =
            kept.map(|(mark, at)| InboxMark { consumer: mark.consumer.clone(), admitted_at: *at }).collect();
        marks.sort_by(|one, other| one.consumer.cmp(&other.consumer));
        marks
    }

    /// How many were made by then, by this consumer if one is named.
    pub(super) fn older(&self, of: Option<&ConsumerName>, by: SystemTime) -> usize {
        let is_meant = |mark: &Mark| of.is_none_or(|consumer| mark.consumer == *consumer);
        self.kept.iter().filter(|(mark, made)| **made <= by && is_meant(mark)).count()
    }

    /// Removes up to so many of those that were made by then, by this consumer if one is named. Answers how many.
    pub(super) fn prune(&mut self, of: Option<&ConsumerName>, by: SystemTime, most: usize) -> usize {
        let is_meant = |mark: &Mark| of.is_none_or(|consumer| mark.consumer == *consumer);
        self.counts.retain(|mark, (_, counted_at)| !is_meant(mark) || *counted_at > by);
        let old = self.kept.iter().filter(|(mark, made)| **made <= by && is_meant(mark));
        let old = old.map(|(mark, _)| mark.clone());
        let old: Vec<Mark> = old.take(most).collect();
        for mark in &old {
            self.kept.remove(mark);
        }
        old.len()
    }

    /// Whether the end of one transaction depends on that of another.
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

impl Inbox<Transaction> for MemoryStore {
    async fn admit_all(
        &self,
        tx: &mut Transaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        tx.check_store(self)?;
        loop {
            // Before the look, so that no end in between is missed.
            let ended = self.shared.ended.notified();
            let holder = match tx.admit(consumer, arrivals) {
                Ok(admitted) => return Ok(admitted),
                Err(holder) => holder,
            };
            let _waiting = Waiting::for_end_of(holder, tx.id(), self)?;
            ended.await;
        }
    }
}

impl Receive for MemoryStore {
    type Store = Self;

    fn store(&self) -> Self {
        self.clone()
    }

    async fn park_all(&self, tx: &mut Transaction, parked: &[Parked]) -> Result<(), Error> {
        tx.check_store(self)?;
        if self.lock().dead_letters_broken && !parked.is_empty() {
            return Err(Error::Unavailable("dead letters cannot be written".into()));
        }
        tx.park(parked);
        Ok(())
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        let (mut rooms, now) = self.enter();
        Ok(rooms.marks.count(&Mark::all(consumer, arrivals), by, now))
    }

    async fn uncount_all(
        &self,
        tx: &mut Transaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        tx.check_store(self)?;
        tx.uncount(Mark::all(consumer, arrivals));
        Ok(())
    }

    async fn verify(&self, tx: &mut Transaction) -> Result<(), Error> {
        Ok(tx.check_store(self)?)
    }
}

/// A transaction that waits for another one, until this is dropped.
pub(super) struct Waiting<'s> {
    transaction: Uuid,
    store: &'s MemoryStore,
}

impl<'s> Waiting<'s> {
    pub(super) fn for_end_of(holder: Uuid, transaction: Uuid, store: &'s MemoryStore) -> Result<Self, Error> {
        let marks = &mut store.lock().marks;
        if marks.depends(holder, transaction) {
            let told = "two transactions wait for each other: roll back and begin again";
            return Err(Error::Unavailable(told.into()));
        }
        marks.waiting.insert(transaction, holder);
        Ok(Self { transaction, store })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.store.lock().marks.waiting.remove(&self.transaction);
    }
}
