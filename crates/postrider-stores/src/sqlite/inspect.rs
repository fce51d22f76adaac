//! What operators see. Every look is bounded: by an index and a page, or by a cap on what is counted. Looks go through
//! connections that cannot write, and wait for no writer.

use super::{
    SqliteStore, clue,
    error::store_error,
    moment::{self, Micros, NEVER},
    page, prune,
    queues::{self, Queue},
    row::{self, limit},
    selection,
};
use async_trait::async_trait;
use postrider_core::{
    DestinationName, Error, MessageId, OrderingKey, PruneRequest, QueueName, TenantId,
    inspect::{
        Action, AuditRow, BlockedKey, Clue, Counts, DeadGroup, Entry, InboxMark, Inspect, ListRequest,
        LivingTimer, Page, Prunable, Selected, Selection, Tally,
    },
};
use sqlx::{Row, sqlite::SqliteRow};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// Where a count stops.
pub(super) const CAP: i64 = 10_000;

/// Columns: free messages of unordered queues and all of ordered ones; lapsed ones; leased ones; leased lanes; blocked lanes; what
/// waits; what has come due of that; dead letters; kept ones.
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
      (select count(*) from (select 1 from {later} where queue = q.id limit ?1)), \
      (select count(*) from (select 1 from {later} where queue = q.id and due_at <= {now} limit ?1)), \
      (select count(*) from (select 1 from {dead} where queue = q.id limit ?1)), \
      (select count(*) from (select 1 from {archive} where queue = q.id limit ?1)) \
    from {queue} q";

/// The oldest of the first few that nobody has in hand says how long the queue is behind. Of a key in hand, the head counts as
/// leased.
const LAG: &str = "select {now} - min(due_at) from ( \
      select due_at from (select r.due_at from {ready} r where r.queue = ?1 and r.token is null \
        and not (r.ordered = 1 and exists (select 1 from {lane} l where l.queue = r.queue and l.key = r.key \
          and l.lease_until > {now} and r.id = (select min(h.id) from {ready} h \
            where h.queue = r.queue and h.key = r.key and h.ordered = 1))) \
        order by r.id limit ?2) \
      union all select due_at from (select due_at from {ready} where queue = ?1 and token is not null \
        and lease_until <= {now} limit ?2) \
      union all select due_at from (select due_at from {later} where queue = ?1 order by due_at limit 1))";

const BLOCKED: &str = "select l.key, l.due_at, l.reason, l.error, (select r.message_id from {ready} r \
      where r.queue = l.queue and r.key = l.key and r.ordered = 1 order by r.id limit 1) \
    from {lane} l where l.queue = ?1 and l.due_at is not null and l.due_at > {now} \
    order by l.due_at desc limit ?2";

const AUDIT: &str = "select a.at, a.actor, a.why, a.verb, q.name, a.message_ids, a.key, a.destination from {audit} a \
    left join {queue} q on q.id = a.queue order by a.id desc limit ?1";

impl SqliteStore {
    pub(super) async fn queue(&self, name: &QueueName) -> Result<Option<Queue>, Error> {
        let mut connection = self.inner.readers.acquire().await.map_err(store_error)?;
        queues::named(&mut *connection, &self.inner.names, name).await
    }
}

#[async_trait]
impl Inspect for SqliteStore {
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error> {
        let sql = self.inner.names.sql(COUNTS);
        let rows = sql.query().bind(CAP + 1).fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| counts(row).map_err(store_error)).collect()
    }

    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        let sql = self.inner.names.sql(LAG);
        let row = sql.query().bind(queue.number).bind(CAP).fetch_one(&self.inner.readers).await;
        let lag: Option<Micros> = row.and_then(|row| row.try_get(0)).map_err(store_error)?;
        Ok(lag.and_then(|lag| u64::try_from(lag).ok()).map(Duration::from_micros))
    }

    async fn blocked_keys(&self, queue: &QueueName, most: usize) -> Result<Vec<BlockedKey>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let sql = self.inner.names.sql(BLOCKED);
        let rows = sql.query().bind(queue.number).bind(limit(most)).fetch_all(&self.inner.readers).await;
        rows.map_err(store_error)?.iter().map(|row| blocked(row).map_err(store_error)).collect()
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        match self.queue(&request.queue).await? {
            Some(queue) if request.limit > 0 => page::list(&self.inner, &queue, request).await,
            _ => Ok(Page { entries: Vec::new(), next: None }),
        }
    }

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<Entry>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        page::get(&self.inner, &queue, id).await
    }

    async fn tally(&self, selection: &Selection) -> Result<Selected, Error> {
        selection::tally(&self.inner, selection).await
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        selection::groups(&self.inner, queue, limit).await
    }

    async fn find(&self, clue: &Clue, most: usize) -> Result<Vec<Entry>, Error> {
        page::find(&self.inner, clue, most).await
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<Tally>, Error> {
        clue::ahead(&self.inner, queue, id).await
    }

    async fn marks(&self, tenant: Option<&TenantId>, id: MessageId) -> Result<Vec<InboxMark>, Error> {
        clue::marks(&self.inner, tenant, id).await
    }

    async fn timers(&self, queue: Option<&QueueName>, most: usize) -> Result<Vec<LivingTimer>, Error> {
        clue::timers(&self.inner, queue, most).await
    }

    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error> {
        prune::prunable(&self.inner, request, audit_older_than).await
    }

    async fn clock(&self) -> Result<SystemTime, Error> {
        let sql = self.inner.names.sql("select {now}");
        let row = sql.query().fetch_one(&self.inner.readers).await.map_err(store_error)?;
        row::time(&row, 0).map_err(store_error)
    }

    async fn audit_of(&self, id: MessageId, most: usize) -> Result<Vec<AuditRow>, Error> {
        clue::audit_of(&self.inner, id, most).await
    }

    async fn audit(&self, most: usize) -> Result<Vec<AuditRow>, Error> {
        let sql = self.inner.names.sql(AUDIT);
        let rows = sql.query().bind(limit(most)).fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| audit_row(row).map_err(store_error)).collect()
    }
}

fn counts(row: &SqliteRow) -> Result<(QueueName, Counts), sqlx::Error> {
    let number = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let cap = CAP.unsigned_abs();
    let (free, lapsed, leased) = (number(1)?, number(2)?, number(3)? + number(4)?);
    let (leased_lanes, blocked, later, come) = (number(4)?, number(5)?, number(6)?, number(7)?);
    // What was cut off at the cap may be in any of these states.
    let capped = [free, lapsed, leased, later].iter().any(|counted| *counted > cap);
    let tally = |counted: u64| Tally { at_least: counted.min(cap), capped };
    Ok((
        QueueName::stored(row.try_get::<String, _>(0)?),
        Counts {
            pending: tally((free + lapsed + come).saturating_sub(leased_lanes + blocked)),
            leased: tally(leased),
            waiting: tally(later.saturating_sub(come) + blocked),
            dead: Tally::new(number(8)?, cap),
            done: Tally::new(number(9)?, cap),
        },
    ))
}

fn blocked(row: &SqliteRow) -> Result<BlockedKey, sqlx::Error> {
    let due_at: Micros = row.try_get(1)?;
    let reason: Option<&str> = row.try_get(2)?;
    Ok(BlockedKey {
        key: OrderingKey::stored(row.try_get::<String, _>(0)?),
        head: MessageId::from_uuid(row.try_get::<Uuid, _>(4)?),
        due_at: (due_at != NEVER).then(|| moment::time(due_at)),
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
