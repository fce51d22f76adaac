//! The queues: their numbers and policies. Every transaction that needs them reads them, so there is no cache to invalidate: the
//! table is tiny, and its page is in this process's memory.

use super::{
    drivers::{Driver, DriverError, DriverRow, first_row},
    names::SqliteNames,
    row::json,
    timestamp::{Micros, micros},
};
use postrider_core::{Error, OnFailure, Ordering, QueueName, QueuePolicy};
use std::{collections::HashMap, time::Duration};

/// A row of the table of queues.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) number: i64,
    pub(super) name: QueueName,
    pub(super) policy: QueuePolicy,
    /// Whether a worker of the queue is idle.
    pub(super) has_idle_workers: bool,
    /// An operator has paused it: none of its messages is claimed.
    pub(super) is_paused: bool,
}

impl Queue {
    pub(super) fn is_ordered(&self) -> bool {
        self.policy.ordering != Ordering::Unordered
    }
}

const READ: &str = "select q.id, q.name, q.ordered, q.on_failure, q.keep_for, q.dead_letters, \
      exists (select 1 from {idle} s where s.queue = q.name and s.until > {now}), q.fair, \
      exists (select 1 from {pause} p where p.kind = 'queue' and p.name = q.name) \
    from {queue} q where q.name in (select j.value from json_each(?1) j) order by q.name";

/// The queues among these that exist, sorted by name.
pub(super) async fn existing<'n>(
    driver: &mut impl Driver,
    names: &SqliteNames,
    wanted: impl IntoIterator<Item = &'n QueueName>,
) -> Result<Vec<Queue>, Error> {
    let wanted = json(wanted.into_iter().map(QueueName::as_str));
    driver.rows(names.statement(&sql!(READ)).bind(wanted)).await?.iter().map(queue).collect()
}

/// The queue of this name, if it exists.
pub(super) async fn by_name(
    driver: &mut impl Driver,
    names: &SqliteNames,
    name: &QueueName,
) -> Result<Option<Queue>, Error> {
    Ok(existing(driver, names, [name]).await?.pop())
}

/// All of these queues. Missing ones are created with the default policy.
pub(super) async fn get_or_create(
    driver: &mut impl Driver,
    names: &SqliteNames,
    wanted: &[&QueueName],
) -> Result<HashMap<QueueName, Queue>, Error> {
    let mut known = existing(driver, names, wanted.iter().copied()).await?;
    if known.len() < wanted.len() {
        let make = names.statement(&sql!(
            "insert into {queue} (name) select j.value from json_each(?1) j where true on conflict (name) do nothing"
        ));
        let all = json(wanted.iter().map(|name| name.as_str()));
        driver.execute(make.bind(all)).await?;
        known = existing(driver, names, wanted.iter().copied()).await?;
    }
    Ok(known.into_iter().map(|queue| (queue.name.clone(), queue)).collect())
}

/// Notifies the idle workers of these queues when the transaction commits.
pub(super) async fn signal(
    driver: &mut impl Driver,
    names: &SqliteNames,
    queues: impl IntoIterator<Item = i64>,
) -> Result<(), Error> {
    let signal = names.statement(&sql!(
        "update {queue} set signals = signals + 1 where id in (select j.value from json_each(?1) j)"
    ));
    driver.execute(signal.bind(json(queues))).await?;
    Ok(())
}

/// Draws `count` positions and returns the first one and the time. Takes the write lock if the transaction does not have it yet.
pub(super) async fn draw_positions<D: Driver>(
    driver: &mut D,
    names: &SqliteNames,
    count: usize,
) -> Result<(i64, Micros), DriverError> {
    let count = super::row::sql_limit(count);
    let draw =
        names.statement(&sql!("update {position} set last = last + ?1 returning last, {now}")).bind(count);
    let rows = driver.rows(draw).await?;
    let read = |row: &D::Row| Ok((row.get::<i64>(0)? - count + 1, row.get(1)?));
    let missing = || Error::SchemaMismatch("the table of positions is empty; restore its row".to_owned());
    let drawn = rows.first().map_or_else(|| Err(missing()), read);
    drawn.map_err(|error| DriverError { error, is_busy: false })
}

/// Takes the write lock if the transaction does not have it yet, and changes nothing.
pub(super) const LOCK: &str = "update {position} set last = last where id = 0";

/// Takes the write lock and returns the time: nothing that the transaction reads from now on can change before it writes.
pub(super) async fn lock(driver: &mut impl Driver, names: &SqliteNames) -> Result<Micros, Error> {
    let row = first_row(driver, names.statement(&sql!("{lock}; select {now}", lock = sql!(LOCK)))).await?;
    row.map_or_else(|| Err(Error::Other("SQLite returned no time".into())), |row| row.get(0))
}

/// A policy as the columns of the table.
pub(super) fn columns(policy: &QueuePolicy) -> (bool, &'static str, Option<Micros>, bool) {
    let (ordered, on_failure) = match policy.ordering {
        Ordering::Unordered => (false, "block"),
        Ordering::ByKey(OnFailure::Block) => (true, "block"),
        Ordering::ByKey(OnFailure::Park) => (true, "park"),
        Ordering::ByKey(OnFailure::Skip) => (true, "skip"),
    };
    (ordered, on_failure, policy.keep_for.map(|keep_for| micros(keep_for).max(1)), policy.dead_letters)
}

fn queue(row: &impl DriverRow) -> Result<Queue, Error> {
    let on_failure = match row.get::<&str>(3)? {
        "park" => OnFailure::Park,
        "skip" => OnFailure::Skip,
        _ => OnFailure::Block,
    };
    let keep_for: Option<Micros> = row.get(4)?;
    Ok(Queue {
        number: row.get(0)?,
        name: QueueName::stored(row.get::<String>(1)?),
        policy: QueuePolicy {
            ordering: if row.get(2)? { Ordering::ByKey(on_failure) } else { Ordering::Unordered },
            keep_for: keep_for.map(|keep_for| Duration::from_micros(keep_for.unsigned_abs())),
            dead_letters: row.get(5)?,
            fair_by_tenant: row.get(7)?,
        },
        has_idle_workers: row.get(6)?,
        is_paused: row.get(8)?,
    })
}
