//! Lookups about one message: messages ahead of it, deduplication records, audit rows; and timers.

use super::{
    Inner,
    error::store_error,
    inspect::{CAP, audit_row},
    operate, queues,
    row::{self, sql_limit},
    timers, timestamp,
};
use postrider_core::{
    ConsumerName, Error, EventType, MessageId, OrderingKey, QueueName, TenantId, TimerName,
    inspect::{Action, ActiveTimer, AuditRow, CappedCount, DeduplicationRecord},
};
use sqlx::{Row, sqlite::SqliteRow};
use uuid::Uuid;

const AHEAD: &str = "select (select count(*) from (select 1 from {ready} r indexed by {ready_key} \
        where r.queue = m.queue and r.key = m.key and r.ordered = 1 and r.id < m.id limit ?3)) \
    from {ready} m indexed by {ready_message} where m.message_id = ?2 and m.queue = ?1 and m.ordered = 1";

/// Finds the consumers one after the other, each by one probe of the index.
const DEDUPLICATION_RECORDS: &str = "with recursive consumers (name) as ( \
      select min(consumer) from {inbox} \
      union all select (select min(consumer) from {inbox} where consumer > name) from consumers where name is not null) \
    select i.consumer, i.admitted_at from consumers c \
    cross join {inbox} i on i.consumer = c.name and i.tenant = ?1 and i.message_id = ?2 order by i.consumer";

const TIMERS: &str = "select q.name, t.name, t.message_id, coalesce(l.due_at, r.due_at), \
      case when l.id is null then r.event_type else l.event_type end, \
      case when coalesce(l.due_at, 0) > {now} then 'scheduled' when r.lease_until > {now} or exists (select 1 from {lane} a \
        where a.queue = r.queue and a.key = r.key and r.ordered = 1 and a.lease_until > {now}) then 'leased' else 'pending' end \
    from {queue} q cross join {timer} t on t.queue = q.id \
    left join {scheduled} l indexed by {scheduled_message} on l.message_id = t.message_id and l.queue = t.queue \
    left join {ready} r indexed by {ready_message} on r.message_id = t.message_id and r.queue = t.queue \
    where (?1 is null or q.name = ?1) and (l.id is not null or r.id is not null) order by q.name, t.name limit ?2";

/// Reads all audit rows: there is one for each action of an operator, and no index by message.
const AUDIT_OF: &str = "select a.at, a.actor, a.why, a.verb, q.name, a.message_ids, a.key, a.destination from {audit} a \
    left join {queue} q on q.id = a.queue \
    where exists (select 1 from json_each(a.message_ids) j where j.value = ?2) order by a.id desc limit ?1";

pub(super) async fn ahead(
    inner: &Inner,
    queue: &QueueName,
    id: MessageId,
) -> Result<Option<CappedCount>, Error> {
    let mut connection = inner.readers.acquire().await.map_err(store_error)?;
    let Some(queue) = queues::by_name(&mut *connection, &inner.names, queue).await? else { return Ok(None) };
    let sql = inner.names.sql(&sql!(AHEAD));
    let query = sql.query().bind(queue.number).bind(id.as_uuid()).bind(CAP + 1);
    let row = query.fetch_optional(&mut *connection).await.map_err(store_error)?;
    let ahead = row.map(|row| row.try_get::<i64, _>(0)).transpose().map_err(store_error)?;
    Ok(ahead.map(|ahead| CappedCount::new(ahead.unsigned_abs(), CAP.unsigned_abs())))
}

pub(super) async fn deduplication_records(
    inner: &Inner,
    tenant: Option<&TenantId>,
    id: MessageId,
) -> Result<Vec<DeduplicationRecord>, Error> {
    let sql = inner.names.sql(&sql!(DEDUPLICATION_RECORDS));
    let query = sql.query().bind(tenant.map_or("", TenantId::as_str)).bind(id.as_uuid());
    let rows = query.fetch_all(&inner.readers).await.map_err(store_error)?;
    rows.iter().map(|row| deduplication_record(row).map_err(store_error)).collect()
}

pub(super) async fn timers(
    inner: &Inner,
    queue: Option<&QueueName>,
    limit: usize,
) -> Result<Vec<ActiveTimer>, Error> {
    let sql = inner.names.sql(&sql!(TIMERS));
    let query = sql.query().bind(queue.map(QueueName::as_str)).bind(sql_limit(limit));
    let rows = query.fetch_all(&inner.readers).await.map_err(store_error)?;
    rows.iter().map(|row| timer(row).map_err(store_error)).collect()
}

pub(super) async fn drop_timer(
    inner: &Inner,
    queue: &QueueName,
    timer: &TimerName,
    action: &Action,
) -> Result<bool, Error> {
    let names = &inner.names;
    let mut write = inner.writer.begin(names).await?;
    let now = write.now;
    let connection = &mut write.connection;
    let Some(known) = queues::by_name(&mut *connection, names, queue).await? else { return Ok(false) };
    let Some(id) = timers::active(connection, names, known.number, timer).await? else { return Ok(false) };
    if !timers::cancel(connection, names, queue, timer, now).await? {
        return Ok(false);
    }
    let (ids, name) = ([MessageId::from_uuid(id)], OrderingKey::stored(timer.as_str()));
    operate::write_audit_row(
        connection,
        names,
        action,
        "cancel_timer",
        Some(known.number),
        &ids,
        Some(&name),
        now,
    )
    .await?;
    write.commit().await?;
    Ok(true)
}

pub(super) async fn audit_of(inner: &Inner, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error> {
    let sql = inner.names.sql(&sql!(AUDIT_OF));
    let query = sql.query().bind(sql_limit(limit)).bind(id.to_string());
    let rows = query.fetch_all(&inner.readers).await.map_err(store_error)?;
    rows.iter().map(|row| audit_row(row).map_err(store_error)).collect()
}

fn deduplication_record(row: &SqliteRow) -> Result<DeduplicationRecord, sqlx::Error> {
    Ok(DeduplicationRecord {
        consumer: ConsumerName::stored(row.try_get::<String, _>(0)?),
        admitted_at: row::time(row, 1)?,
    })
}

fn timer(row: &SqliteRow) -> Result<ActiveTimer, sqlx::Error> {
    let state: &str = row.try_get(5)?;
    Ok(ActiveTimer {
        queue: QueueName::stored(row.try_get::<String, _>(0)?),
        name: TimerName::stored(row.try_get::<String, _>(1)?),
        id: MessageId::from_uuid(row.try_get::<Uuid, _>(2)?),
        due_at: timestamp::to_system_time(row.try_get(3)?),
        event_type: row.try_get::<Option<String>, _>(4)?.map(EventType::stored),
        state: state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
    })
}
