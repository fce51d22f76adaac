//! Inspection for operators. Every query is bounded: by an index and a page, or by a cap on the count.

use super::{
    PostgresStore,
    claim::{count, limit},
    error::store_error,
    prune, row,
};
use crate::template::Template;
use async_trait::async_trait;
use postrider_core::{
    BoxError, DestinationName, Error, MessageId, OrderingKey, PruneRequest, QueueName, TenantId,
    follow_up::{FollowUpFilter, FollowUpRow, StatusCounts},
    inspect::{
        Action, ActiveTimer, AuditRow, BlockedKey, CappedCount, Counts, Cursor, DeadGroup,
        DeduplicationRecord, FindBy, Inspect, ListRequest, MessageRow, Page, Prunable, ScheduleRow,
        Selection, SelectionSummary, StateFilter,
    },
};
use sqlx::{Row, postgres::PgRow};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;

/// The number at which a count stops.
pub(super) const CAP: i64 = 10_000;

const COUNTS: &str = "select q.name, r.n, r.leased, \
      (select count(*) from (select from {lane} l where l.queue = q.id and l.due_at is null \
         and l.lease_until > clock_timestamp() limit $1) l), \
      (select count(*) from (select from {lane} l where l.queue = q.id and l.due_at > clock_timestamp() limit $1) l), \
      (select count(*) from (select from {scheduled} w where w.queue = q.id limit $1) w), \
      (select count(*) from (select from {scheduled} w where w.queue = q.id and w.due_at <= (select clock_timestamp()) \
         limit $1) w), \
      (select count(*) from (select from {dead} d where d.queue = q.id limit $1) d), \
      (select count(*) from (select from {archive} a where a.queue = q.id limit $1) a), r.waiting \
    from {queue} q, lateral ( \
      select count(*) as n, \
        count(*) filter (where s.lease_until > clock_timestamp() and s.token is not null) as leased, \
        count(*) filter (where s.lease_until > clock_timestamp() and s.token is null) as waiting \
      from (select r.lease_until, r.token from {ready} r where r.queue = q.id order by r.queue, r.id limit $1) s) r";

/// Leased rows are in flight, so the oldest of the first free rows shows how far the queue is behind.
const LAG: &str = "select extract(epoch from clock_timestamp() - least( \
      (select min(s.due_at) from (select r.due_at, r.lease_until from {ready} r where r.queue = $1 \
         order by r.queue, r.id limit $2) s where s.lease_until <= clock_timestamp()), \
      (select w.due_at from {scheduled} w where w.queue = $1 and w.due_at <= (select clock_timestamp()) \
         order by w.queue, w.due_at, w.id limit 1)))::float8";

const BLOCKED: &str = "select l.key, nullif(l.due_at, 'infinity'), l.reason, l.error, ( \
      select r.message_id from {ready} r \
      where r.queue = l.queue and (r.key, r.id) > (l.key, l.after) and r.key <= l.key and r.ordered \
      order by r.key, r.id limit 1) \
    from {lane} l where l.queue = $1 and l.due_at is not null order by l.queue, l.due_at desc limit $2";

const AUDIT: &str = "select a.at, a.actor, a.why, a.verb, q.name, a.message_ids, a.key, a.destination from {audit} a \
    left join {queue} q on q.id = a.queue order by a.id desc limit $1";

/// The table has one row per action, and an index would have an entry per message: the statement reads all rows.
const AUDIT_OF: &str = "select a.at, a.actor, a.why, a.verb, q.name, a.message_ids, a.key, a.destination from {audit} a \
    left join {queue} q on q.id = a.queue where $2 = any(a.message_ids) order by a.id desc limit $1";

/// The index of the first column of the message in a page.
const FIRST: usize = 8;

impl PostgresStore {
    pub(super) async fn queue(&self, name: &QueueName) -> Result<Option<Arc<super::queues::Queue>>, Error> {
        self.inner.queues.named(&mut &self.inner.connections, name).await
    }
}

#[async_trait]
impl Inspect for PostgresStore {
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error> {
        let sql = self.inner.names.sql(&sql!(COUNTS));
        let rows = self.inner.connections.run(sql.query().bind(CAP + 1)).await?;
        rows.iter().map(|row| counts(row).map_err(store_error)).collect()
    }

    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        let sql = self.inner.names.sql(&sql!(LAG));
        let row = self.inner.connections.run_for_one(sql.query().bind(queue.number).bind(CAP)).await?;
        let seconds: Option<f64> = row.try_get(0).map_err(store_error)?;
        Ok(seconds.map(|seconds| Duration::from_secs_f64(seconds.max(0.0))))
    }

    async fn blocked_keys(&self, queue: &QueueName, max: usize) -> Result<Vec<BlockedKey>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let sql = self.inner.names.sql(&sql!(BLOCKED));
        let rows = self.inner.connections.run(sql.query().bind(queue.number).bind(limit(max))).await?;
        rows.iter().filter_map(|row| blocked(row).transpose()).collect::<Result<_, _>>().map_err(store_error)
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let empty = Page { entries: Vec::new(), next: None };
        if request.limit == 0 {
            return Ok(empty);
        }
        let Some(queue) = self.queue(&request.queue).await? else { return Ok(empty) };
        let sql = self.inner.names.sql(&page_template(request.state, PageScope::Page));
        let after = request.after.as_ref();
        let query = sql
            .query()
            .bind(queue.number)
            .bind(after.and_then(|cursor| cursor.at).map(OffsetDateTime::from))
            .bind(after.map(|cursor| cursor.position))
            .bind(request.key.as_ref().map(OrderingKey::as_str))
            .bind(request.event_type.as_ref().map(postrider_core::EventType::as_str))
            .bind(request.reason.map(postrider_core::Reason::as_str))
            .bind(limit(request.limit))
            .bind(request.error.as_deref());
        let rows = self.inner.connections.run(query).await?;
        let entries: Result<Vec<_>, _> = rows.iter().map(|row| entry(row, &queue.name)).collect();
        let next = rows.last().filter(|_| rows.len() >= request.limit).map(cursor).transpose();
        Ok(Page { entries: entries.map_err(store_error)?, next: next.map_err(store_error)? })
    }

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<MessageRow>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(None) };
        for state_filter in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done]
        {
            let sql = self.inner.names.sql(&page_template(state_filter, PageScope::One));
            let rows = self.inner.connections.run(sql.query().bind(queue.number).bind(id.as_uuid())).await?;
            if let Some(row) = rows.first() {
                return entry(row, &queue.name).map(Some).map_err(store_error);
            }
        }
        Ok(None)
    }

    async fn summarize(&self, selection: &Selection) -> Result<SelectionSummary, Error> {
        self.summarize(selection).await
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        self.group_dead(queue, limit).await
    }

    async fn find(&self, by: &FindBy, max: usize) -> Result<Vec<MessageRow>, Error> {
        let sql = self.inner.names.sql(&find_template(by));
        let query = match by {
            FindBy::Id(id) => sql.query().bind(id.as_uuid()).bind(None::<&str>),
            FindBy::Subject(tenant, subject) => {
                sql.query().bind(subject.as_str()).bind(tenant.as_ref().map(TenantId::as_str))
            }
            FindBy::Key(key) => sql.query().bind(key.as_str()).bind(None::<&str>),
            FindBy::Trace(trace) => sql.query().bind(trace).bind(None::<&str>),
        };
        let rows = self.inner.connections.run(query.bind(limit(max))).await?;
        let found = rows.iter().map(|row| {
            let queue = QueueName::stored(row.try_get::<String, _>(FIRST + row::COLUMN_COUNT)?);
            entry(row, &queue)
        });
        found.collect::<Result<_, _>>().map_err(store_error)
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<CappedCount>, Error> {
        self.count_ahead(queue, id).await
    }

    async fn deduplication_records(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> Result<Vec<DeduplicationRecord>, Error> {
        self.deduplication_records(tenant, id).await
    }

    async fn timers(&self, queue: Option<&QueueName>, max: usize) -> Result<Vec<ActiveTimer>, Error> {
        self.active_timers(queue, max).await
    }

    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error> {
        prune::prunable(&self.inner.connections, &self.inner.names, request, audit_older_than).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error> {
        Self::schedules(self).await
    }

    async fn clock(&self) -> Result<SystemTime, Error> {
        let sql = self.inner.names.sql(&sql!("select clock_timestamp()"));
        let row = self.inner.connections.run_for_one(sql.query()).await?;
        row.try_get::<row::Moment, _>(0).map(|moment| moment.0).map_err(store_error)
    }

    async fn audit_of(&self, id: MessageId, max: usize) -> Result<Vec<AuditRow>, Error> {
        let sql = self.inner.names.sql(&sql!(AUDIT_OF));
        let rows = self.inner.connections.run(sql.query().bind(limit(max)).bind(id.as_uuid())).await?;
        rows.iter().map(audit_row).collect::<Result<_, _>>().map_err(store_error)
    }

    async fn audit(&self, max: usize) -> Result<Vec<AuditRow>, Error> {
        let sql = self.inner.names.sql(&sql!(AUDIT));
        let rows = self.inner.connections.run(sql.query().bind(limit(max))).await?;
        rows.iter().map(audit_row).collect::<Result<_, _>>().map_err(store_error)
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

/// Selects a page, or the message of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageScope {
    Page,
    One,
}

/// Columns: position, staged_at, time, deliveries, attempts, state, reason, error, and those of the message.
const ROW: &str =
    "m.id, m.staged_at, m.{time}, m.deliveries, m.attempts, {state}, {reason}, m.last_error, {message}";

/// The listing of a state: its table, its time column, its reason, and the columns of [`ROW`].
fn listing(state_filter: StateFilter) -> (Template, Template, Template, Template) {
    let (table, time, state, reason) = match state_filter {
        StateFilter::Ready => {
            // On an ordered queue the key is leased or waits; the message at its head shows that.
            let lane = sql!(
                "(select case when l.lease_until > clock_timestamp() then 'leased' \
                          when l.due_at > clock_timestamp() then 'scheduled' end \
                        from {lane} l where l.queue = m.queue and l.key = m.key and m.id = ( \
                          select r.id from {ready} r where r.queue = l.queue and (r.key, r.id) > (l.key, l.after) \
                          and r.key <= l.key and r.ordered order by r.key, r.id limit 1))"
            );
            let state = sql!(
                "case when m.lease_until > clock_timestamp() then case when m.token is null then 'scheduled' else 'leased' end \
                 when m.ordered then coalesce({head}, 'pending') \
                 else 'pending' end",
                head = lane
            );
            (sql!("{ready}"), sql!("due_at"), state, sql!("null::text"))
        }
        StateFilter::Scheduled => {
            let state = sql!("case when m.due_at > clock_timestamp() then 'scheduled' else 'pending' end");
            (sql!("{scheduled}"), sql!("due_at"), state, sql!("null::text"))
        }
        StateFilter::Dead => (sql!("{dead}"), sql!("failed_at"), sql!("'dead'"), sql!("m.reason")),
        StateFilter::Done => (sql!("{archive}"), sql!("archived_at"), sql!("'done'"), sql!("null::text")),
    };
    let columns = sql!(ROW, time, state, reason, message = sql!(row::COLUMNS));
    (table, time, reason, columns)
}

/// Messages found by an id, a subject, a key or a trace. In one statement, so that a message that moves meanwhile is not missed.
fn find_template(by: &FindBy) -> Template {
    let fits = match by {
        FindBy::Id(_) => sql!("m.message_id = $1"),
        FindBy::Subject(..) => sql!("m.subject = $1 and m.tenant is not distinct from $2"),
        FindBy::Key(_) => sql!("m.key = $1"),
        FindBy::Trace(_) => sql!("split_part(m.headers ->> 'traceparent', '-', 2) = $1"),
    };
    let selects = [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done].map(
        |state_filter| {
            let (table, _, _, columns) = listing(state_filter);
            sql!(
                "select {columns}, q.name from {table} m join {queue} q on q.id = m.queue \
             where {fits} and ($2::text is null or true)",
                columns,
                table,
                fits
            )
        },
    );
    sql!("{selects} order by 2, 1 limit $3", selects = Template::join(selects, " union all "))
}

/// A page of a state, in the order of the table's index.
fn page_template(state_filter: StateFilter, scope: PageScope) -> Template {
    let (table, time, reason, columns) = listing(state_filter);
    if scope == PageScope::One {
        const ONE: &str =
            "select {columns} from {table} m where m.message_id = $2 and m.queue + 0 = $1 limit 1";
        return sql!(ONE, columns, table);
    }
    let select = sql!("select {columns} from {table} m where m.queue = $1", columns, table);
    let (after, order) = if state_filter == StateFilter::Ready {
        // $2 is the time by which other states are paged.
        (sql!("($2::timestamptz is null or true) and m.id > coalesce($3, 0)"), sql!("m.queue, m.id"))
    } else {
        (
            sql!("(m.{time}, m.id) > (coalesce($2, '-infinity'::timestamptz), coalesce($3, 0))", time),
            sql!("m.queue, m.{time}, m.id", time),
        )
    };
    const PAGE: &str = "{select} and {after} and ($4::text is null or m.key = $4) and ($5::text is null or m.event_type = $5) \
        and ($6::text is null or {reason} = $6) and ($8::text is null or starts_with(m.last_error, $8)) order by {order} limit $7";
    sql!(PAGE, select, after, reason, order)
}

fn entry(row: &PgRow, queue: &QueueName) -> Result<MessageRow, sqlx::Error> {
    let state: &str = row.try_get(5)?;
    let reason: Option<&str> = row.try_get(6)?;
    Ok(MessageRow {
        message: row::message(row, FIRST, queue)?,
        state: state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error) as BoxError))?,
        staged_at: row.try_get::<OffsetDateTime, _>(1)?.into(),
        at: row.try_get::<OffsetDateTime, _>(2)?.into(),
        deliveries: count(row.try_get(3)?),
        attempts: count(row.try_get(4)?),
        reason: reason.and_then(|reason| reason.parse().ok()),
        error: row.try_get(7)?,
    })
}

fn cursor(row: &PgRow) -> Result<Cursor, sqlx::Error> {
    Ok(Cursor { at: Some(row.try_get::<OffsetDateTime, _>(2)?.into()), position: row.try_get(0)? })
}

fn counts(row: &PgRow) -> Result<(QueueName, Counts), sqlx::Error> {
    let number = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let cap = CAP.unsigned_abs();
    let (ready, leased, blocked) = (number(1)?, number(2)? + number(3)?, number(4)?);
    let (scheduled, due, in_place) = (number(5)?, number(6)?, number(9)?);
    // Rows beyond the cap may be in any of these states.
    let capped = ready > cap || scheduled > cap;
    let capped_count = |counted: u64| CappedCount { at_least: counted.min(cap), capped };
    Ok((
        QueueName::stored(row.try_get::<String, _>(0)?),
        Counts {
            pending: capped_count((ready + due).saturating_sub(leased + blocked + in_place)),
            leased: capped_count(leased),
            scheduled: capped_count(scheduled.saturating_sub(due) + in_place + blocked),
            dead: CappedCount::new(number(7)?, cap),
            done: CappedCount::new(number(8)?, cap),
        },
    ))
}

/// A lane without messages is not listed: there is nothing to release.
fn blocked(row: &PgRow) -> Result<Option<BlockedKey>, sqlx::Error> {
    let Some(head) = row.try_get::<Option<uuid::Uuid>, _>(4)? else { return Ok(None) };
    let due: Option<OffsetDateTime> = row.try_get(1)?;
    let reason: Option<&str> = row.try_get(2)?;
    Ok(Some(BlockedKey {
        key: OrderingKey::stored(row.try_get::<String, _>(0)?),
        head: MessageId::from_uuid(head),
        due_at: due.map(Into::into),
        reason: reason.and_then(|reason| reason.parse().ok()),
        error: row.try_get(3)?,
    }))
}

fn audit_row(row: &PgRow) -> Result<AuditRow, sqlx::Error> {
    let ids: Vec<uuid::Uuid> = row.try_get(5)?;
    Ok(AuditRow {
        at: row.try_get::<OffsetDateTime, _>(0)?.into(),
        action: Action { actor: row.try_get(1)?, why: row.try_get(2)? },
        verb: row.try_get(3)?,
        queue: row.try_get::<Option<String>, _>(4)?.map(QueueName::stored),
        destination: row.try_get::<Option<String>, _>(7)?.map(DestinationName::stored),
        ids: ids.into_iter().map(MessageId::from_uuid).collect(),
        key: row.try_get::<Option<String>, _>(6)?.map(OrderingKey::stored),
    })
}
