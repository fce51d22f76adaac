//! Counting, listing and erasing follow-ups. The table that a follow-up is in determines its status. Reads go through read-only
//! connections and wait for no writer.

use super::{
    SqliteStore, erase,
    error::store_error,
    list::{table, time},
    queues::Queue,
    row::{self, COLUMNS, sql_limit},
    timestamp::micros,
};
use crate::template::Template;
use postrider_core::{
    BoxError, Error, MessageId, QueueName, SubjectId, TenantId,
    follow_up::{ErasureReport, FollowUpFilter, FollowUpRow, FollowUpStatus, StatusCounts},
    inspect::{Action, StateFilter},
};
use sqlx::{Row, sqlite::SqliteRow};

/// The index of the first column of the message.
const FIRST: usize = 5;

/// The status of a follow-up `m`, by its table. It is in flight even if its lease has expired.
fn status(filter: StateFilter) -> Template {
    match filter {
        StateFilter::Ready => sql!(
            "case when m.token is not null then 'in_flight' when m.attempts > 0 then 'failed' \
               when m.due_at > {now} then 'scheduled' else 'pending' end"
        ),
        StateFilter::Scheduled => sql!(
            "case when m.attempts > 0 then 'failed' when m.due_at > {now} then 'scheduled' else 'pending' end"
        ),
        StateFilter::Dead => sql!("'abandoned'"),
        StateFilter::Done => sql!("'succeeded'"),
    }
}

/// Reads all tables in one statement, so that a message that moves in the meantime is counted once.
pub(super) fn counts_template() -> Template {
    let selects = [
        (StateFilter::Ready, sql!("indexed by {ready_free} where m.token is null")),
        (StateFilter::Ready, sql!("indexed by {ready_leased} where m.token is not null")),
        (StateFilter::Scheduled, sql!("indexed by {scheduled_due} where true")),
        (StateFilter::Dead, sql!("indexed by {dead_failed} where true")),
        (StateFilter::Done, sql!("indexed by {archive_page} where true")),
    ];
    let selects = selects.map(|(filter, found)| {
        let (status, table) = (status(filter), table(filter));
        sql!("select {status} as status from {table} m {found} and m.queue = ?1", status, table, found)
    });
    let selects = Template::join(selects, " union all ");
    sql!("select status, count(*) from ({selects}) group by status", selects)
}

/// Columns: staged_at, time, deliveries, status, error, and those of the message.
fn select(filter: StateFilter, indexed: &Template) -> Template {
    const SELECT: &str = "select m.staged_at, m.{time}, m.deliveries, {status}, m.last_error, {columns} from {table} m {indexed} \
        where m.queue = ?1";
    let (time, status, table) = (time(filter), status(filter), table(filter));
    sql!(SELECT, time, status, columns = sql!(COLUMNS), table, indexed)
}

pub(super) fn abandoned_template() -> Template {
    let select = select(StateFilter::Dead, &sql!("indexed by {dead_failed}"));
    sql!("{select} order by m.failed_at, m.id limit ?2", select)
}

pub(super) fn scheduled_template() -> Template {
    let select = select(StateFilter::Scheduled, &sql!("indexed by {scheduled_due}"));
    sql!("{select} and m.due_at > {now} and m.attempts = 0 order by m.due_at, m.id limit ?2", select)
}

/// No index has the time of staging, which no other query needs: this reads all follow-ups that have not succeeded.
fn overdue_template() -> Template {
    let selects = [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead]
        .map(|filter| sql!("{select} and m.staged_at < {now} - ?3", select = select(filter, &sql!(""))));
    sql!("{selects} order by 1 limit ?2", selects = Template::join(selects, " union all "))
}

impl SqliteStore {
    pub(super) async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        let mut counts = StatusCounts::default();
        let Some(queue) = self.queue(queue).await? else { return Ok(counts) };
        let sql = self.inner.names.sql(&counts_template());
        let rows =
            sql.query().bind(queue.number).fetch_all(&self.inner.readers).await.map_err(store_error)?;
        for row in &rows {
            counts.extend([status_count(row).map_err(store_error)?]);
        }
        Ok(counts)
    }

    pub(super) async fn follow_up_rows(
        &self,
        queue: &QueueName,
        which: FollowUpFilter,
        limit: usize,
    ) -> Result<Vec<FollowUpRow>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let (template, age) = match which {
            FollowUpFilter::Abandoned => (abandoned_template(), None),
            FollowUpFilter::Scheduled => (scheduled_template(), None),
            FollowUpFilter::Overdue(age) => (overdue_template(), Some(micros(age))),
        };
        let sql = self.inner.names.sql(&template);
        let query = sql.query().bind(queue.number).bind(sql_limit(limit));
        let query = if age.is_some() { query.bind(age) } else { query };
        let rows = query.fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| follow_up_row(row, &queue).map_err(store_error)).collect()
    }

    pub(super) async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let erased = erase::subject(&mut write, &self.inner.names, tenant, subject, action).await?;
        write.commit().await?;
        Ok(erased)
    }
}

fn status_count(row: &SqliteRow) -> Result<(FollowUpStatus, u64), sqlx::Error> {
    Ok((parse_status(row.try_get(0)?)?, row.try_get::<i64, _>(1)?.unsigned_abs()))
}

fn parse_status(name: &str) -> Result<FollowUpStatus, sqlx::Error> {
    let status = FollowUpStatus::ALL.into_iter().find(|status| status.as_str() == name);
    status.ok_or_else(|| sqlx::Error::Decode(BoxError::from(format!("unknown status {name:?}"))))
}

fn follow_up_row(row: &SqliteRow, queue: &Queue) -> Result<FollowUpRow, sqlx::Error> {
    let message = row::message(row, FIRST, &queue.name)?;
    Ok(FollowUpRow {
        id: MessageId::from_uuid(row.try_get(FIRST)?),
        message,
        status: parse_status(row.try_get(3)?)?,
        staged_at: row::time(row, 0)?,
        at: row::time(row, 1)?,
        deliveries: row::count(row, 2)?,
        error: row.try_get(4)?,
    })
}
