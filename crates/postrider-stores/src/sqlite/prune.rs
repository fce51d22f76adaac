//! Pruning: removal of expired data, in bounded chunks.

use super::{
    Inner, SqliteNames,
    drivers::{Driver, DriverRow},
    error::store_error,
    operate,
    row::sql_limit,
    statement_batch::{execute_each_position, query_each},
    timestamp::{Micros, micros},
    writer::Write,
};
use crate::template::Template;
use postrider_core::{
    ConsumerName, Error, PruneReport, PruneRequest,
    inspect::{Action, Prunable},
};
use sqlx::Row;
use std::time::Duration;
use uuid::Uuid;

pub(super) const ARCHIVED: &str = "select id from {archive} indexed by {archive_expires} where expires_at <= ?1 \
    order by expires_at limit ?2";

/// Queue by queue, because the index has dead letters by queue and time.
pub(super) const DEAD: &str = "select d.id from {queue} q cross join {dead} d indexed by {dead_failed} \
    on d.queue = q.id and d.failed_at <= ?1 limit ?2";

/// Consumer by consumer, because each has its own retention: one probe of the index for each.
pub(super) const NEXT_CONSUMER: &str =
    "select min(consumer) from {inbox} indexed by {inbox_admitted} where consumer > ?1";

pub(super) const DEDUPLICATION_RECORDS: &str = "select tenant, message_id from {inbox} indexed by {inbox_admitted} \
    where consumer = ?1 and admitted_at <= ?2 order by admitted_at limit ?3";

const COUNTS: &str = "delete from {inbox_count} where counted_at <= ?1 and (?2 is null or consumer = ?2)";

/// Removes one chunk.
pub(super) async fn prune(
    write: &mut Write,
    names: &SqliteNames,
    request: &PruneRequest,
) -> Result<PruneReport, Error> {
    let archived = expired(write, names, &sql!(ARCHIVED), write.now, request.limit).await?;
    let delete = sql!("delete from {archive} where id = ?");
    execute_each_position(&mut write.connection, names, &delete, &archived).await?;
    let mut dead = Vec::new();
    if let Some(age) = request.dead_older_than {
        let failed_by = write.now.saturating_sub(micros(age));
        dead = expired(write, names, &sql!(DEAD), failed_by, request.limit - archived.len()).await?;
        let delete = sql!("delete from {dead} where id = ?");
        execute_each_position(&mut write.connection, names, &delete, &dead).await?;
    }
    let mut inbox = 0;
    if let Some(age) = request.inbox_older_than {
        let by = write.now.saturating_sub(micros(age));
        let only = request.inbox_of.as_ref().map(ConsumerName::as_str);
        for consumer in consumers(write, names, only).await? {
            let left = request.limit - archived.len() - dead.len() - inbox;
            inbox += prune_inbox(write, names, &consumer, by, left).await?;
        }
        let counts = names.statement(&sql!(COUNTS)).bind(by).bind(only.map(str::to_owned));
        write.connection.execute(counts).await?;
    }
    let more = request.limit > 0 && archived.len() + dead.len() + inbox >= request.limit;
    Ok(PruneReport { archived: archived.len() as u64, dead: dead.len() as u64, inbox: inbox as u64, more })
}

async fn consumers(write: &mut Write, names: &SqliteNames, only: Option<&str>) -> Result<Vec<String>, Error> {
    if let Some(only) = only {
        return Ok(vec![only.to_owned()]);
    }
    let mut consumers: Vec<String> = Vec::new();
    loop {
        let last = consumers.last().cloned().unwrap_or_default();
        let rows = write.connection.rows(names.statement(&sql!(NEXT_CONSUMER)).bind(last)).await?;
        match rows.first().map(|row| DriverRow::get::<Option<String>>(row, 0)).transpose()?.flatten() {
            Some(next) => consumers.push(next),
            None => return Ok(consumers),
        }
    }
}

/// Removes up to `limit` deduplication records of a consumer made until then, and returns their number.
async fn prune_inbox(
    write: &mut Write,
    names: &SqliteNames,
    consumer: &str,
    by: Micros,
    limit: usize,
) -> Result<usize, Error> {
    let old = names.statement(&sql!(DEDUPLICATION_RECORDS)).bind(consumer).bind(by).bind(sql_limit(limit));
    let mut records: Vec<(String, Uuid)> = Vec::new();
    for row in write.connection.rows(old).await? {
        records.push((DriverRow::get(&row, 0)?, DriverRow::get(&row, 1)?));
    }
    let delete = sql!("delete from {inbox} where consumer = ? and tenant = ? and message_id = ?");
    query_each(&mut write.connection, names, &delete, &records, |statement, (tenant, id)| {
        statement.bind(consumer.to_owned()).bind(tenant.clone()).bind(*id)
    })
    .await?;
    Ok(records.len())
}

async fn expired(
    write: &mut Write,
    names: &SqliteNames,
    template: &Template,
    by: Micros,
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let sql = names.sql(template);
    let rows = sql.query().bind(by).bind(sql_limit(limit)).fetch_all(&mut write.connection).await;
    rows.map_err(store_error)?.iter().map(|row| row.try_get(0).map_err(store_error)).collect()
}

/// The numbers of rows that pruning would remove, by the same indexes.
const PRUNABLE: &str = "select \
      (select count(*) from {archive} indexed by {archive_expires} where expires_at <= {now}), \
      (select count(*) from {queue} q cross join {dead} d indexed by {dead_failed} \
        on d.queue = q.id and d.failed_at <= {now} - ?1), \
      (select count(*) from {inbox} where ?2 is not null and admitted_at <= {now} - ?2 and (?3 is null or consumer = ?3)), \
      (select count(*) from {audit} where at <= {now} - ?4)";

pub(super) async fn prunable(
    inner: &Inner,
    request: &PruneRequest,
    audit_older_than: Option<Duration>,
) -> Result<Prunable, Error> {
    let sql = inner.names.sql(&sql!(PRUNABLE));
    let query = sql
        .query()
        .bind(request.dead_older_than.map(micros))
        .bind(request.inbox_older_than.map(micros))
        .bind(request.inbox_of.as_ref().map(ConsumerName::as_str))
        .bind(audit_older_than.map(micros));
    let row = query.fetch_one(&inner.readers).await.map_err(store_error)?;
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs).map_err(store_error);
    Ok(Prunable { archived: count(0)?, dead: count(1)?, inbox: count(2)?, audit: count(3)? })
}

/// Removes old audit rows, and writes an audit row about it.
pub(super) async fn audit(
    write: &mut Write,
    names: &SqliteNames,
    age: Duration,
    limit: usize,
    action: &Action,
) -> Result<u64, Error> {
    let now = write.now;
    let by = now.saturating_sub(micros(age));
    let sql = names.sql(&sql!("select id from {audit} where at <= ?1 order by id limit ?2"));
    let rows = sql.query().bind(by).bind(sql_limit(limit)).fetch_all(&mut write.connection).await;
    let position = |row: &sqlx::sqlite::SqliteRow| row.try_get::<i64, _>(0).map_err(store_error);
    let positions = rows.map_err(store_error)?.iter().map(position).collect::<Result<Vec<_>, _>>()?;
    let delete = sql!("delete from {audit} where id = ?");
    execute_each_position(&mut write.connection, names, &delete, &positions).await?;
    if !positions.is_empty() {
        operate::write_audit_row(&mut write.connection, names, action, "prune_audit", None, &[], None, now)
            .await?;
    }
    Ok(positions.len() as u64)
}
