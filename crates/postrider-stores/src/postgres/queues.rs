//! What this process knows of the queues: their numbers and policies, read again every second.

use super::{Names, connections::Fetch, error::store_error, names::Sql};
use postrider_core::{Error, OnFailure, Ordering, QueueName, QueuePolicy};
use sqlx::{Row, postgres::types::PgInterval};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A policy that another process declared is in force here after so long.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// A queue as the database knows it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) number: i16,
    pub(super) name: QueueName,
    pub(super) policy: QueuePolicy,
    /// Nothing is claimed of it.
    pub(super) is_paused: bool,
}

/// Every queue.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<QueueName, Arc<Queue>>);

impl Known {
    pub(super) fn named(&self, name: &QueueName) -> Option<&Arc<Queue>> {
        self.0.get(name)
    }
}

/// Reads the queues when what is known is old, or does not hold what is asked for.
#[derive(Debug)]
pub(super) struct Queues {
    sql: Sql,
    known: Mutex<(Option<Instant>, Arc<Known>)>,
}

impl Queues {
    pub(super) fn new(names: &Names) -> Self {
        let sql = names.sql(
            "select q.id, q.name, q.ordered, q.on_failure, q.keep_for, q.dead_letters, q.fair, \
             exists (select from {pause} p where p.kind = 'queue' and p.name = q.name) from {queue} q order by q.name",
        );
        Self { sql, known: Mutex::default() }
    }

    /// The queues as they were at most a second ago.
    pub(super) async fn known(&self, on: &mut impl Fetch) -> Result<Arc<Known>, Error> {
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.0.is_some_and(|read| read.elapsed() < FRESH_FOR) {
                return Ok(Arc::clone(&known.1));
            }
        }
        self.read(on).await
    }

    /// The queue of this name, if there is one.
    pub(super) async fn named(
        &self,
        on: &mut impl Fetch,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, Error> {
        if let Some(queue) = self.known(on).await?.named(name) {
            return Ok(Some(Arc::clone(queue)));
        }
        Ok(self.read(on).await?.named(name).cloned())
    }

    /// Whatever is asked next is read anew.
    pub(super) fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
    }

    /// Something happened to this queue: if it was paused, it may not be any more.
    pub(super) fn was_signalled(&self, name: &QueueName) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.1.named(name).is_some_and(|queue| queue.is_paused) {
            known.0 = None;
        }
    }

    /// The queues as they are now.
    pub(super) async fn read(&self, on: &mut impl Fetch) -> Result<Arc<Known>, Error> {
        let mut known = Known::default();
        for row in on.fetch_all(self.sql.query()).await? {
            let queue = Arc::new(queue(&row).map_err(store_error)?);
            known.0.insert(queue.name.clone(), queue);
        }
        let known = Arc::new(known);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            (Some(Instant::now()), Arc::clone(&known));
        Ok(known)
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
