//! Pruning expired data.
//!
//! The archive is partitioned by the day on which a message expires. A partition whose day is over is dropped whole; rows in the
//! default partition are deleted one by one, like dead letters and deduplication records, in bounded chunks.
//!
//! Dropping or creating a partition waits for every reader of the archive, so it comes after the rows, in calls of its own which
//! give up soon: a long reader delays the partitions, and neither the rows nor the producers.

use super::{PostgresNames, claim::limit, connections::Connections, error::store_error};
use postrider_core::{
    ConsumerName, Error, PruneReport, PruneRequest,
    inspect::{Action, Prunable},
};
use sqlx::Row;
use std::time::Duration;
use time::Date;

/// Consumers are found one by one, each with an index probe: there are few, and they have many deduplication records.
const PRUNE: &str = "with recursive archived as ( \
      delete from {archive_rest} a where a.ctid = any(array( \
        select r.ctid from {archive_rest} r where r.expires_at <= (select clock_timestamp()) \
        order by r.expires_at limit $1)) returning 1), \
    dead as ( \
      delete from {dead} d where d.ctid = any(array( \
        select s.ctid from {queue} q, lateral ( \
          select r.ctid from {dead} r where r.queue = q.id \
            and r.failed_at <= (select clock_timestamp() - $2::float8 * interval '1 s') \
          order by r.queue, r.failed_at, r.id limit $1) s \
        limit greatest(0, $1 - (select count(*) from archived)))) returning 1), \
    consumers as ( \
      (select i.consumer from {inbox} i where $4::text is null and $3::float8 is not null order by i.consumer limit 1) \
      union all \
      select (select i.consumer from {inbox} i where i.consumer > c.consumer order by i.consumer limit 1) \
      from consumers c where c.consumer is not null), \
    records as ( \
      delete from {inbox} i where i.ctid = any(array( \
        select s.ctid from (select consumer from consumers union all select $4::text) c, lateral ( \
          select r.ctid from {inbox} r where r.consumer = c.consumer \
            and r.admitted_at <= (select clock_timestamp() - $3::float8 * interval '1 s') \
          order by r.consumer, r.admitted_at limit $1) s \
        limit greatest(0, $1 - (select count(*) from archived) - (select count(*) from dead)))) returning 1), \
    counts as ( \
      delete from {inbox_count} n where n.counted_at <= (select clock_timestamp() - $3::float8 * interval '1 s') \
        and ($4::text is null or n.consumer = $4)) \
    select (select count(*) from archived), (select count(*) from dead), (select count(*) from records)";

/// Deletes one chunk.
pub(super) async fn prune(
    connections: &Connections,
    names: &PostgresNames,
    request: &PruneRequest,
) -> Result<PruneReport, Error> {
    let sql = names.sql(&sql!(PRUNE));
    let query = sql.query().bind(limit(request.limit));
    let query = query.bind(request.dead_older_than.map(|age| age.as_secs_f64()));
    let query = query.bind(request.inbox_older_than.map(|age| age.as_secs_f64()));
    let query = query.bind(request.inbox_of.as_ref().map(ConsumerName::as_str));
    let row = connections.run_for_one(query).await?;
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs).map_err(store_error);
    let (archived, dead, inbox) = (count(0)?, count(1)?, count(2)?);
    let dropped = change_partitions(connections, names).await?;
    Ok(PruneReport {
        archived: archived + dropped,
        dead,
        inbox,
        more: archived + dead + inbox >= limit(request.limit).unsigned_abs(),
    })
}

/// Attempts to change a partition while the archive is read, and the pause between them. The next call tries again.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// Drops the partitions of past days, and creates those of the coming days. Returns the number of rows dropped.
pub(super) async fn change_partitions(
    connections: &Connections,
    names: &PostgresNames,
) -> Result<u64, Error> {
    let mut dropped = 0;
    for row in connections.run(names.sql(&sql!("select {partition_changes}()")).query()).await? {
        let day: Date = row.try_get(0).map_err(store_error)?;
        match change_partition(connections, names, day).await {
            Ok(rows) => dropped += rows,
            // The same reader holds up the other days, too.
            Err(error) if error.is_contention() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(dropped)
}

async fn change_partition(connections: &Connections, names: &PostgresNames, day: Date) -> Result<u64, Error> {
    let sql = names.sql(&sql!("select {change_partition}($1)"));
    let mut attempt = 1;
    loop {
        match connections.run_for_one(sql.query().bind(day)).await {
            Err(error) if error.is_contention() && attempt < ATTEMPTS => tokio::time::sleep(PAUSE).await,
            row => return row?.try_get::<i64, _>(0).map(i64::unsigned_abs).map_err(store_error),
        }
        attempt += 1;
    }
}

/// The number of rows that pruning would delete: of the archive, those of past days and expired rows of the default partition.
const PRUNABLE: &str = "with recursive today as materialized ( \
      select date_trunc('day', clock_timestamp() at time zone 'UTC') at time zone 'UTC' as begins), \
    consumers as ( \
      (select i.consumer from {inbox} i where $3::text is null and $2::float8 is not null order by i.consumer limit 1) \
      union all \
      select (select i.consumer from {inbox} i where i.consumer > c.consumer order by i.consumer limit 1) \
      from consumers c where c.consumer is not null) \
    select \
      (select count(*) from {archive} a where a.expires_at < (select begins from today)) \
        + (select count(*) from {archive_rest} a where a.expires_at >= (select begins from today) \
           and a.expires_at <= (select clock_timestamp())), \
      (select coalesce(sum(s.n), 0)::bigint from {queue} q, lateral ( \
        select count(*) as n from {dead} d where d.queue = q.id \
          and d.failed_at <= (select clock_timestamp() - $1::float8 * interval '1 s')) s), \
      (select coalesce(sum(s.n), 0)::bigint from (select consumer from consumers union all select $3::text) c, lateral ( \
        select count(*) as n from {inbox} i where i.consumer = c.consumer \
          and i.admitted_at <= (select clock_timestamp() - $2::float8 * interval '1 s')) s), \
      (select count(*) from {audit} a where a.at <= (select clock_timestamp() - $4::float8 * interval '1 s'))";

pub(super) async fn prunable(
    connections: &Connections,
    names: &PostgresNames,
    request: &PruneRequest,
    audit_older_than: Option<Duration>,
) -> Result<Prunable, Error> {
    let sql = names.sql(&sql!(PRUNABLE));
    let query = sql
        .query()
        .bind(request.dead_older_than.map(|age| age.as_secs_f64()))
        .bind(request.inbox_older_than.map(|age| age.as_secs_f64()))
        .bind(request.inbox_of.as_ref().map(ConsumerName::as_str))
        .bind(audit_older_than.map(|age| age.as_secs_f64()));
    let row = connections.run_for_one(query).await?;
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs).map_err(store_error);
    Ok(Prunable { archived: count(0)?, dead: count(1)?, inbox: count(2)?, audit: count(3)? })
}

/// In the order of `audit_pkey`, which is that of time. Only the owner of the tables may do it: no role can delete its own traces.
const AUDIT: &str = "with gone as ( \
      delete from {audit} a where a.ctid = any(array( \
        select r.ctid from {audit} r where r.at <= (select clock_timestamp() - $1::float8 * interval '1 s') \
        order by r.id limit $2)) returning 1), \
    audited as ( \
      insert into {audit} (actor, why, verb) select $3, $4, 'prune_audit' where exists (select from gone)) \
    select count(*) from gone";

pub(super) async fn audit(
    connections: &Connections,
    names: &PostgresNames,
    age: Duration,
    max: usize,
    action: &Action,
) -> Result<u64, Error> {
    let sql = names.sql(&sql!(AUDIT));
    let query = sql.query().bind(age.as_secs_f64()).bind(limit(max)).bind(&action.actor).bind(&action.why);
    let row = connections.run_for_one(query).await?;
    row.try_get::<i64, _>(0).map(i64::unsigned_abs).map_err(store_error)
}
