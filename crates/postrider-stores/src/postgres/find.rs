//! Facts about a message: its predecessors in order, its deduplication records; and active timers.

use super::{PostgresStore, claim::limit, error::store_error, inspect::CAP, row::Moment};
use postrider_core::{
    ConsumerName, Error, EventType, MessageId, QueueName, TenantId, TimerName,
    inspect::{ActiveTimer, CappedCount, DeduplicationRecord},
};
use sqlx::{Row, postgres::PgRow};

/// By the index `ready_key`, as claims do.
const AHEAD: &str = "select (select count(*) from (select from {ready} r \
        where r.queue = m.queue and (r.key, r.id) > (m.key, 0) and r.key <= m.key and r.ordered and r.id < m.id \
        order by r.key, r.id limit $3) r) \
    from {ready} m where m.message_id = $2 and m.queue + 0 = $1 and m.ordered";

/// Consumers are found one by one, each with an index probe.
const DEDUPLICATION_RECORDS: &str = "with recursive consumers as ( \
      (select i.consumer from {inbox} i order by i.consumer limit 1) \
      union all \
      select (select i.consumer from {inbox} i where i.consumer > c.consumer order by i.consumer limit 1) \
      from consumers c where c.consumer is not null) \
    select i.consumer, i.admitted_at from consumers c, lateral ( \
      select m.consumer, m.admitted_at from {inbox} m \
      where m.consumer = c.consumer and m.tenant = $1 and m.message_id = $2 offset 0) i";

/// In the order of `timer_pkey`; each message by its id.
const TIMERS: &str = "select q.name, t.name, t.message_id, m.due_at, m.event_type, m.state \
    from (select q.id, q.name from {queue} q where $1::text is null or q.name = $1 order by q.name) q, lateral ( \
      select t.name, t.message_id from {timer} t where t.queue = q.id order by t.queue, t.name limit $2) t, lateral ( \
      select l.due_at, l.event_type, case when l.due_at > clock_timestamp() then 'scheduled' else 'pending' end as state \
      from {scheduled} l where l.message_id = t.message_id and l.queue + 0 = q.id \
      union all \
      select r.due_at, r.event_type, case when r.lease_until > clock_timestamp() then \
          case when r.token is null then 'scheduled' else 'leased' end \
        when exists (select from {lane} a where a.queue = r.queue and a.key = r.key and r.ordered \
          and a.lease_until > clock_timestamp()) then 'leased' else 'pending' end \
      from {ready} r where r.message_id = t.message_id and r.queue + 0 = q.id) m limit $2";

impl PostgresStore {
    pub(super) async fn count_ahead(
        &self,
        queue: &QueueName,
        id: MessageId,
    ) -> Result<Option<CappedCount>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        let sql = self.inner.names.sql(&sql!(AHEAD));
        let query = sql.query().bind(queue.number).bind(id.as_uuid()).bind(CAP + 1);
        let rows = self.inner.connections.run(query).await?;
        let ahead = rows.first().map(|row| row.try_get::<i64, _>(0)).transpose().map_err(store_error)?;
        Ok(ahead.map(|ahead| CappedCount::new(ahead.unsigned_abs(), CAP.unsigned_abs())))
    }

    pub(super) async fn deduplication_records(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> Result<Vec<DeduplicationRecord>, Error> {
        let sql = self.inner.names.sql(&sql!(DEDUPLICATION_RECORDS));
        let query = sql.query().bind(tenant.map_or("", TenantId::as_str)).bind(id.as_uuid());
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(deduplication_record).collect::<Result<_, _>>().map_err(store_error)
    }

    pub(super) async fn active_timers(
        &self,
        queue: Option<&QueueName>,
        max: usize,
    ) -> Result<Vec<ActiveTimer>, Error> {
        let sql = self.inner.names.sql(&sql!(TIMERS));
        let query = sql.query().bind(queue.map(QueueName::as_str)).bind(limit(max));
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(timer).collect::<Result<_, _>>().map_err(store_error)
    }
}

fn deduplication_record(row: &PgRow) -> Result<DeduplicationRecord, sqlx::Error> {
    Ok(DeduplicationRecord {
        consumer: ConsumerName::stored(row.try_get::<String, _>(0)?),
        admitted_at: row.try_get::<Moment, _>(1)?.0,
    })
}

fn timer(row: &PgRow) -> Result<ActiveTimer, sqlx::Error> {
    let state: &str = row.try_get(5)?;
    Ok(ActiveTimer {
        queue: QueueName::stored(row.try_get::<String, _>(0)?),
        name: TimerName::stored(row.try_get::<String, _>(1)?),
        id: MessageId::from_uuid(row.try_get(2)?),
        due_at: row.try_get::<Moment, _>(3)?.0,
        event_type: row.try_get::<Option<String>, _>(4)?.map(EventType::stored),
        state: state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
    })
}
