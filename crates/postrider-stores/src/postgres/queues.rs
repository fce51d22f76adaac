//! A cache of the queues: their numbers and policies, read again every second.

use super::{PostgresNames, connections::Fetch, error::store_error, names::Sql};
use postrider_core::{Error, OnFailure, Ordering, QueueName, QueuePolicy};
use sqlx::{Row, postgres::types::PgInterval};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The age after which the cache is read again: a policy that another process declared takes effect here within this time.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// A queue as the database knows it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) number: i16,
    pub(super) name: QueueName,
    pub(super) policy: QueuePolicy,
    /// No message of the queue is claimed.
    pub(super) is_paused: bool,
}

/// Every queue.
#[derive(Debug, Default)]
pub(super) struct QueueMap(HashMap<QueueName, Arc<Queue>>);

impl QueueMap {
    pub(super) fn named(&self, name: &QueueName) -> Option<&Arc<Queue>> {
        self.0.get(name)
    }
}

/// Reads the queues when the cache is old, or lacks a queue.
#[derive(Debug)]
pub(super) struct QueueCache {
    sql: Sql,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Arc<QueueMap>,
    /// When the queues were read; `None` to read them again.
    read_at: Option<Instant>,
    /// The number of reads that have started.
    started: u64,
    /// The number of the read whose result is cached; the results of earlier reads are dropped.
    kept: u64,
}

impl QueueCache {
    pub(super) fn new(names: &PostgresNames) -> Self {
        let sql = names.sql(&sql!("select q.id, q.name, q.ordered, q.on_failure, q.keep_for, q.dead_letters, q.fair, \
             exists (select from {pause} p where p.kind = 'queue' and p.name = q.name) from {queue} q order by q.name"));
        Self { sql, state: Mutex::default() }
    }

    /// The queues as they were at most a second ago; reads them again if one of `names` is not among them.
    pub(super) async fn known<'n>(
        &self,
        on: &mut impl Fetch,
        names: impl IntoIterator<Item = &'n QueueName>,
    ) -> Result<Arc<QueueMap>, Error> {
        let fresh = {
            let state = self.lock();
            let is_fresh = state.read_at.is_some_and(|read_at| read_at.elapsed() < FRESH_FOR);
            is_fresh.then(|| Arc::clone(&state.known))
        };
        match fresh {
            Some(known) if names.into_iter().all(|name| known.named(name).is_some()) => Ok(known),
            _ => self.read(on).await,
        }
    }

    /// The queue of this name, if there is one.
    pub(super) async fn named(
        &self,
        on: &mut impl Fetch,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, Error> {
        Ok(self.known(on, [name]).await?.named(name).cloned())
    }

    /// Invalidates the cache.
    pub(super) fn invalidate(&self) {
        self.lock().invalidate();
    }

    /// A notification arrived for the queue: if it was paused, it may have been resumed.
    pub(super) fn notified(&self, name: &QueueName) {
        let mut state = self.lock();
        if state.known.named(name).is_some_and(|queue| queue.is_paused) {
            state.invalidate();
        }
    }

    /// Reads the queues.
    pub(super) async fn read(&self, on: &mut impl Fetch) -> Result<Arc<QueueMap>, Error> {
        let number = self.lock().begin();
        let mut known = QueueMap::default();
        for row in on.fetch_all(self.sql.query()).await? {
            let queue = Arc::new(queue(&row).map_err(store_error)?);
            known.0.insert(queue.name.clone(), queue);
        }
        let known = Arc::new(known);
        self.lock().store(number, &known);
        Ok(known)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// Caches the result of a read, unless a later one has finished already.
    fn store(&mut self, number: u64, known: &Arc<QueueMap>) {
        if number > self.kept {
            (self.kept, self.read_at, self.known) = (number, Some(Instant::now()), Arc::clone(known));
        }
    }

    /// Invalidates the cache, and drops the results of reads that are running.
    fn invalidate(&mut self) {
        (self.kept, self.read_at) = (self.started, None);
    }
}

fn queue(row: &sqlx::postgres::PgRow) -> Result<Queue, sqlx::Error> {
    let ordered: bool = row.try_get(2)?;
    let on_failure = match row.try_get::<&str, _>(3)? {
        "park" => OnFailure::Park,
        "skip" => OnFailure::Skip,
        _ => OnFailure::Block,
    };
    Ok(Queue {
        number: row.try_get(0)?,
        name: QueueName::stored(row.try_get::<String, _>(1)?),
        policy: QueuePolicy {
            ordering: if ordered { Ordering::ByKey(on_failure) } else { Ordering::Unordered },
            keep_for: row.try_get::<Option<PgInterval>, _>(4)?.map(|interval| duration(&interval)),
            dead_letters: row.try_get(5)?,
            fair_by_tenant: row.try_get::<Option<bool>, _>(6)?.unwrap_or(false),
        },
        is_paused: row.try_get(7)?,
    })
}

fn duration(interval: &PgInterval) -> Duration {
    let days = u64::try_from(i64::from(interval.months) * 30 + i64::from(interval.days)).unwrap_or(0);
    Duration::from_secs(days * 86_400)
        + Duration::from_micros(u64::try_from(interval.microseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(state: &State) -> *const QueueMap {
        Arc::as_ptr(&state.known)
    }

    #[test]
    fn slow_read_does_not_replace_result_of_later_read() {
        let (mut state, older, newer) = (State::default(), Arc::default(), Arc::default());
        let (slow, fast) = (state.begin(), state.begin());
        state.store(fast, &newer);
        state.store(slow, &older);
        assert_eq!(known(&state), Arc::as_ptr(&newer));
    }

    #[test]
    fn result_of_read_started_before_invalidation_is_dropped() {
        let (mut state, before, after) = (State::default(), Arc::default(), Arc::default());
        let slow = state.begin();
        state.invalidate();
        state.store(slow, &before);
        assert!(state.read_at.is_none(), "read again");
        let next = state.begin();
        state.store(next, &after);
        assert_eq!((known(&state), state.read_at.is_some()), (Arc::as_ptr(&after), true));
    }
}
