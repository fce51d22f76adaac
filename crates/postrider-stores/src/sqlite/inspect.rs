//! Queries for operators. Every query is bounded: by an index and a page, or by a cap on the count. Reads go through read-only
//! connections and wait for no writer.

use super::{
    SqliteStore,
    error::store_error,
    find, list, prune,
    queues::{self, Queue},
    row::{self, sql_limit},
    selection,
    timestamp::{self, Micros, NEVER},
};
use async_trait::async_trait;
use postrider_core::{
    DestinationName, Error, MessageId, OrderingKey, PruneRequest, QueueName, TenantId,
    follow_up::{FollowUpFilter, FollowUpRow, StatusCounts},
    inspect::{
        Action, ActiveTimer, AuditRow, BlockedKey, CappedCount, Counts, DeadGroup, DeduplicationRecord,
        FindBy, Inspect, ListRequest, MessageRow, Page, Prunable, ScheduleRow, Selection, SelectionSummary,
    },
};
use sqlx::{Row, sqlite::SqliteRow};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// Counting stops at this number.
pub(super) const CAP: i64 = 10_000;

/// Columns: free messages of unordered queues and all of ordered ones; messages with an expired lease; leased messages; leased lanes;
/// blocked lanes; scheduled messages; scheduled messages that are due; dead letters; archived messages.
const COUNTS: &str = "select q.name, \
      (select count(*) from (select 1 from {ready} where queue = q.id and token is null limit ?1)), \
      (select count(*) from (select 1 from {ready} where queue = q.id and token is not null and lease_until <= {now} \
        limit ?1)), \
      (select count(*) from (select 1 from {ready} where queue = q.id and token is not null and lease_until > {now} \
        limit ?1)), \
      (select count(*) from (select 1 from {lane} where queue = q.id and token is not null and lease_until > {now} \
        limit ?1)), \
      (select count(*) from (select 1 from {lane} where queue = q.id and due_at is not null and due_at > {now} \
        limit ?1)), \
      (select count(*) from (select 1 from {scheduled} where queue = q.id limit ?1)), \
      (select count(*) from (select 1 from {scheduled} where queue = q.id and due_at <= {now} limit ?1)), \
      (select count(*) from (select 1 from {dead} where queue = q.id limit ?1)), \
      (select count(*) from (select 1 from {archive} where queue = q.id limit ?1)) \
    from {queue} q";

/// The lag is the age of the oldest of the first messages that are not leased. The head of a leased key counts as leased.
const LAG: &str = "select {now} - min(due_at) from ( \
      select due_at from (select r.due_at from {ready} r where r.queue = ?1 and r.token is null \
        and not (r.ordered = 1 and exists (select 1 from {lane} l where l.queue = r.queue and l.key = r.key \
          and l.lease_until > {now} and r.id = (select min(h.id) from {ready} h \
            where h.queue = r.queue and h.key = r.key and h.ordered = 1))) \
        order by r.id limit ?2) \
      union all select due_at from (select due_at from {ready} where queue = ?1 and token is not null \
        and lease_until <= {now} limit ?2) \
      union all select due_at from (select due_at from {scheduled} where queue = ?1 order by due_at limit 1))";

const BLOCKED: &str = "select l.key, l.due_at, l.reason, l.error, (select r.message_id from {ready} r \
      where r.queue = l.queue and r.key = l.key and r.ordered = 1 order by r.id limit 1) \
    from {lane} l where l.queue = ?1 and l.due_at is not null and l.due_at > {now} \
    order by l.due_at desc limit ?2";

const AUDIT: &str = "select a.at, a.actor, a.why, a.verb, q.name, a.message_ids, a.key, a.destination from {audit} a \
    left join {queue} q on q.id = a.queue order by a.id desc limit ?1";

impl SqliteStore {
    pub(super) async fn queue(&self, name: &QueueName) -> Result<Option<Queue>, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        queues::by_name(&mut *connection, &self.inner.names, name).await
    }
}

#[async_trait]
impl Inspect for SqliteStore {
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error> {
        let sql = self.inner.names.sql(&sql!(COUNTS));
        let rows = sql.query().bind(CAP + 1).fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| counts(row).map_err(store_error)).collect()
    }

    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        let sql = self.inner.names.sql(&sql!(LAG));
        let row = sql.query().bind(queue.number).bind(CAP).fetch_one(&self.inner.readers).await;
        let lag: Option<Micros> = row.and_then(|row| row.try_get(0)).map_err(store_error)?;
        Ok(lag.and_then(|lag| u64::try_from(lag).ok()).map(Duration::from_micros))
    }

    async fn blocked_keys(&self, queue: &QueueName, limit: usize) -> Result<Vec<BlockedKey>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let sql = self.inner.names.sql(&sql!(BLOCKED));
        let rows = sql.query().bind(queue.number).bind(sql_limit(limit)).fetch_all(&self.inner.readers).await;
        rows.map_err(store_error)?.iter().map(|row| blocked(row).map_err(store_error)).collect()
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        match self.queue(&request.queue).await? {
            Some(queue) if request.limit > 0 => list::list(&self.inner, &queue, request).await,
            _ => Ok(Page { entries: Vec::new(), next: None }),
        }
    }

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<MessageRow>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        list::get(&self.inner, &queue, id).await
    }

    async fn summarize(&self, selection: &Selection) -> Result<SelectionSummary, Error> {
        selection::summarize(&self.inner, selection).await
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        selection::groups(&self.inner, queue, limit).await
    }

    async fn find(&self, find_by: &FindBy, limit: usize) -> Result<Vec<MessageRow>, Error> {
        list::find(&self.inner, find_by, limit).await
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<CappedCount>, Error> {
        find::ahead(&self.inner, queue, id).await
    }

    async fn deduplication_records(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> Result<Vec<DeduplicationRecord>, Error> {
        find::deduplication_records(&self.inner, tenant, id).await
    }

    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<ActiveTimer>, Error> {
        find::timers(&self.inner, queue, limit).await
    }

    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error> {
        prune::prunable(&self.inner, request, audit_older_than).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error> {
        Self::schedules(self).await
    }

    async fn clock(&self) -> Result<SystemTime, Error> {
        let sql = self.inner.names.sql(&sql!("select {now}"));
        let row = sql.query().fetch_one(&self.inner.readers).await.map_err(store_error)?;
        row::time(&row, 0).map_err(store_error)
    }

    async fn audit_of(&self, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error> {
        find::audit_of(&self.inner, id, limit).await
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error> {
        let sql = self.inner.names.sql(&sql!(AUDIT));
        let rows =
            sql.query().bind(sql_limit(limit)).fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| audit_row(row).map_err(store_error)).collect()
    }

    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        Self::status_counts(self, queue).await
    }

    async fn follow_up_rows(
        &self,
        queue: &QueueName,
        filter: FollowUpFilter,
        limit: usize,
    ) -> Result<Vec<FollowUpRow>, Error> {
        Self::follow_up_rows(self, queue, filter, limit).await
    }
}

fn counts(row: &SqliteRow) -> Result<(QueueName, Counts), sqlx::Error> {
    let number = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let cap = CAP.unsigned_abs();
    let (free, expired, leased) = (number(1)?, number(2)?, number(3)? + number(4)?);
    let (leased_lanes, blocked, scheduled, due) = (number(4)?, number(5)?, number(6)?, number(7)?);
    // Messages beyond the cap may be in any of these states.
    let capped = [free, expired, leased, scheduled].iter().any(|counted| *counted > cap);
    let count = |counted: u64| CappedCount { at_least: counted.min(cap), capped };
    Ok((
        QueueName::stored(row.try_get::<String, _>(0)?),
        Counts {
            pending: count((free + expired + due).saturating_sub(leased_lanes + blocked)),
            leased: count(leased),
            scheduled: count(scheduled.saturating_sub(due) + blocked),
            dead: CappedCount::new(number(8)?, cap),
            done: CappedCount::new(number(9)?, cap),
        },
    ))
}

fn blocked(row: &SqliteRow) -> Result<BlockedKey, sqlx::Error> {
    let due_at: Micros = row.try_get(1)?;
    let reason: Option<&str> = row.try_get(2)?;
    Ok(BlockedKey {
        key: OrderingKey::stored(row.try_get::<String, _>(0)?),
        head: MessageId::from_uuid(row.try_get::<Uuid, _>(4)?),
        due_at: (due_at != NEVER).then(|| timestamp::to_system_time(due_at)),
        reason: reason.and_then(|reason| reason.parse().ok()),
        error: row.try_get(3)?,
    })
}

pub(super) fn audit_row(row: &SqliteRow) -> Result<AuditRow, sqlx::Error> {
    let ids: Vec<MessageId> = serde_json::from_str(row.try_get(5)?).unwrap_or_default();
    Ok(AuditRow {
        at: row::time(row, 0)?,
        action: Action { actor: row.try_get(1)?, why: row.try_get(2)? },
        verb: row.try_get(3)?,
        queue: row.try_get::<Option<String>, _>(4)?.map(QueueName::stored),
        destination: row.try_get::<Option<String>, _>(7)?.map(DestinationName::stored),
        ids,
        key: row.try_get::<Option<String>, _>(6)?.map(OrderingKey::stored),
    })
}
