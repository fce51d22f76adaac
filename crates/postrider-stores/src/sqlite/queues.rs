//! The queues: their numbers and policies. They are read in every transaction that needs them, so there is nothing to keep in
//! step: the table is tiny, and it is in this process's memory.

use super::{
    error::store_error,
    moment::{Micros, micros},
    names::Names,
    row::json,
};
use postrider_core::{Error, OnFailure, Ordering, QueueName, QueuePolicy};
use sqlx::{Row, SqliteConnection, SqliteExecutor, sqlite::SqliteRow};
use std::{collections::HashMap, time::Duration};

/// A queue as the database knows it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) number: i64,
    pub(super) name: QueueName,
    pub(super) policy: QueuePolicy,
    /// Whether somebody sleeps for it.
    pub(super) is_slept_on: bool,
}

impl Queue {
    pub(super) fn is_ordered(&self) -> bool {
        self.policy.ordering != Ordering::Unordered
    }
}

const READ: &str = "select q.id, q.name, q.ordered, q.on_failure, q.keep_for, q.dead_letters, \
      exists (select 1 from {sleeper} s where s.queue = q.name and s.until > {now}) \
    from {queue} q where q.name in (select j.value from json_each(?1) j) order by q.name";

/// Those of the queues that exist, sorted by name.
pub(super) async fn existing<'n>(
    executor: impl SqliteExecutor<'_>,
    names: &Names,
    wanted: impl IntoIterator<Item = &'n QueueName>,
) -> Result<Vec<Queue>, Error> {
    let wanted = json(wanted.into_iter().map(QueueName::as_str));
    let rows = names.sql(READ).query().bind(wanted).fetch_all(executor).await.map_err(store_error)?;
    rows.iter().map(|row| queue(row).map_err(store_error)).collect()
}

/// The queue of this name, if there is one.
pub(super) async fn named(
    executor: impl SqliteExecutor<'_>,
    names: &Names,
    name: &QueueName,
) -> Result<Option<Queue>, Error> {
    Ok(existing(executor, names, [name]).await?.pop())
}

/// All of these queues. Those that nobody has used yet are made, with the default policy.
pub(super) async fn used(
    connection: &mut SqliteConnection,
    names: &Names,
    wanted: &[&QueueName],
) -> Result<HashMap<QueueName, Queue>, Error> {
    let mut known = existing(&mut *connection, names, wanted.iter().copied()).await?;
    if known.len() < wanted.len() {
        let sql = names.sql(
            "insert into {queue} (name) select j.value from json_each(?1) j where true on conflict (name) do nothing",
        );
        let all = json(wanted.iter().map(|name| name.as_str()));
        sql.query().bind(all).execute(&mut *connection).await.map_err(store_error)?;
        known = existing(connection, names, wanted.iter().copied()).await?;
    }
    Ok(known.into_iter().map(|queue| (queue.name.clone(), queue)).collect())
}

/// Wakes those who sleep for these queues, once the transaction commits.
pub(super) async fn signal(
    connection: &mut SqliteConnection,
    names: &Names,
    queues: impl IntoIterator<Item = i64>,
) -> Result<(), Error> {
    let sql = names
        .sql("update {queue} set signals = signals + 1 where id in (select j.value from json_each(?1) j)");
    sql.query().bind(json(queues)).execute(connection).await.map(|_| ()).map_err(store_error)
}

/// Draws places: `count` of them, beginning with the one in the answer. Also tells the time, and takes the write lock if the
/// transaction does not have it yet.
pub(super) async fn draw(
    connection: &mut SqliteConnection,
    names: &Names,
    count: usize,
) -> Result<(i64, Micros), sqlx::Error> {
    let count = super::row::limit(count);
    let sql = names.sql("update {line} set last = last + ?1 returning last, {now}");
    let row = sql.query().bind(count).fetch_one(connection).await?;
    Ok((row.try_get::<i64, _>(0)? - count + 1, row.try_get(1)?))
}

/// A policy as the table keeps it.
pub(super) fn columns(policy: &QueuePolicy) -> (bool, &'static str, Option<Micros>, bool) {
    let (ordered, on_failure) = match policy.ordering {
        Ordering::Unordered => (false, "block"),
        Ordering::ByKey(OnFailure::Block) => (true, "block"),
        Ordering::ByKey(OnFailure::Park) => (true, "park"),
        Ordering::ByKey(OnFailure::Skip) => (true, "skip"),
    };
    (ordered, on_failure, policy.keep_for.map(|keep_for| micros(keep_for).max(1)), policy.dead_letters)
}

fn queue(row: &SqliteRow) -> Result<Queue, sqlx::Error> {
    let on_failure = match row.try_get::<&str, _>(3)? {
        "park" => OnFailure::Park,
        "skip" => OnFailure::Skip,
        _ => OnFailure::Block,
    };
    let keep_for: Option<Micros> = row.try_get(4)?;
    Ok(Queue {
        number: row.try_get(0)?,
        name: QueueName::stored(row.try_get::<String, _>(1)?),
        policy: QueuePolicy {
            ordering: if row.try_get(2)? { Ordering::ByKey(on_failure) } else { Ordering::Unordered },
            keep_for: keep_for.map(|keep_for| Duration::from_micros(keep_for.unsigned_abs())),
            dead_letters: row.try_get(5)?,
        },
        is_slept_on: row.try_get(6)?,
    })
}
