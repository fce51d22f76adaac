//! Inspecting follow-ups and erasing subjects. Counts are exact, and so read every message of the queue once; pages are bounded by
//! their limit, except for the rows that they skip.

use super::{
    PostgresStore,
    claim::{count, limit},
    error::store_error,
    queues::Queue,
    row::{self, Moment},
    settle_batch::seconds,
};
use crate::template::Template;
use postrider_core::{
    Error, QueueName, SubjectId, TenantId,
    follow_up::{ErasureReport, FollowUpFilter, FollowUpRow, FollowUpStatus, StatusCounts},
    inspect::Action,
};
use sqlx::{Row, postgres::PgRow};

/// The status of a ready row: leased until it is settled, or free. A retry in place has failed.
const READY: &str = "case when m.token is not null then 'in_flight' when m.attempts > 0 then 'failed' \
    when m.lease_until > (select clock_timestamp()) then 'scheduled' else 'pending' end";

/// The status of a scheduled row. An expired lease counts as a failed attempt.
const SCHEDULED: &str = "case when m.attempts > 0 then 'failed' when m.due_at <= (select clock_timestamp()) then 'pending' \
    when m.deliveries > 0 then 'failed' else 'scheduled' end";

const ERASE: &str =
    "select waiting, dead, archived, in_flight, follow_ups from {erase_subject}($1, $2, $3, $4)";

/// The index of the first column of the message in a row.
const FIRST: usize = 5;

impl PostgresStore {
    pub(super) async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        let mut counts = StatusCounts::default();
        let Some(queue) = self.queue(queue).await? else { return Ok(counts) };
        let sql = self.inner.names.sql(&sql!(COUNTS, of_ready = sql!(READY), of_scheduled = sql!(SCHEDULED)));
        let rows = self.inner.connections.run(sql.query().bind(queue.number)).await?;
        for row in &rows {
            let number: i64 = row.try_get(1).map_err(store_error)?;
            counts.extend([(status(row, 0).map_err(store_error)?, number.unsigned_abs())]);
        }
        Ok(counts)
    }

    pub(super) async fn follow_up_rows(
        &self,
        queue: &QueueName,
        filter: FollowUpFilter,
        max: usize,
    ) -> Result<Vec<FollowUpRow>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let sql = self.inner.names.sql(&rows_template(filter));
        let mut query = sql.query().bind(queue.number).bind(limit(max));
        if let FollowUpFilter::Overdue(age) = filter {
            query = query.bind(seconds(age));
        }
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(|row| follow_up_row(row, &queue)).collect::<Result<_, _>>().map_err(store_error)
    }

    pub(super) async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, Error> {
        action.check()?;
        let sql = self.inner.names.sql(&sql!(ERASE));
        let query = sql
            .query()
            .bind(tenant.map(TenantId::as_str))
            .bind(subject.as_str())
            .bind(&action.actor)
            .bind(&action.why);
        erasure_report(&self.inner.connections.run_for_one(query).await?).map_err(store_error)
    }
}

const COUNTS: &str = "select s.status, count(*) from ( \
      select {of_ready} as status from {ready} m where m.queue = $1 \
      union all select {of_scheduled} from {scheduled} m where m.queue = $1 \
      union all select 'abandoned' from {dead} m where m.queue = $1 \
      union all select 'succeeded' from {archive} m where m.queue = $1) s group by s.status";

/// Columns: status, staged_at, at, deliveries, last_error.
const ROWS: &str = "select {status} as status, m.staged_at, m.{at} as at, m.deliveries, m.last_error, {columns} from {table} m \
    where m.queue = $1";

fn rows_template(filter: FollowUpFilter) -> Template {
    let columns = sql!(row::COLUMNS);
    let ready = sql!(ROWS, table = sql!("{ready}"), status = sql!(READY), at = sql!("due_at"), columns);
    let scheduled = |status| sql!(ROWS, table = sql!("{scheduled}"), status, at = sql!("due_at"), columns);
    let dead =
        sql!(ROWS, table = sql!("{dead}"), status = sql!("'abandoned'"), at = sql!("failed_at"), columns);
    match filter {
        FollowUpFilter::Abandoned => sql!("{rows} order by m.queue, m.failed_at, m.id limit $2", rows = dead),
        FollowUpFilter::Scheduled => sql!(
            "{rows} and m.due_at > (select clock_timestamp()) and m.attempts = 0 and m.deliveries = 0 \
             order by m.queue, m.due_at, m.id limit $2",
            rows = scheduled(sql!("'scheduled'"))
        ),
        FollowUpFilter::Overdue(_) => {
            let old = |rows: Template| {
                sql!(
                    "{rows} and m.staged_at < (select clock_timestamp()) - $3::float8 * interval '1 s'",
                    rows
                )
            };
            let rows = [ready, scheduled(sql!(SCHEDULED)), dead].map(old);
            sql!("{rows} order by staged_at, message_id limit $2", rows = Template::join(rows, " union all "))
        }
    }
}

fn follow_up_row(row: &PgRow, queue: &Queue) -> Result<FollowUpRow, sqlx::Error> {
    let message = row::message(row, FIRST, &queue.name)?;
    Ok(FollowUpRow {
        id: postrider_core::MessageId::from_uuid(row.try_get(FIRST)?),
        message,
        status: status(row, 0)?,
        staged_at: row.try_get::<Moment, _>(1)?.0,
        at: row.try_get::<Moment, _>(2)?.0,
        deliveries: count(row.try_get(3)?),
        error: row.try_get(4)?,
    })
}

fn status(row: &PgRow, column: usize) -> Result<FollowUpStatus, sqlx::Error> {
    let name: &str = row.try_get(column)?;
    let status = FollowUpStatus::ALL.into_iter().find(|status| status.as_str() == name);
    status.ok_or_else(|| sqlx::Error::Decode(format!("{name:?} is no status").into()))
}

fn erasure_report(row: &PgRow) -> Result<ErasureReport, sqlx::Error> {
    let number = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    Ok(ErasureReport {
        waiting: number(0)?,
        dead: number(1)?,
        archived: number(2)?,
        in_flight: number(3)?,
        follow_ups: number(4)?,
    })
}
