//! Looking after follow-ups. Counts are exact, and so read every message of the queue once; pages are bounded by their limit, but for
//! what they step over.

use super::{
    PostgresStore,
    batch::seconds,
    claim::{count, limit},
    error::store_error,
    queues::Queue,
    row::{self, Moment},
};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName, SubjectId, TenantId,
    follow_up::{Docket, Erased, FollowUps, Status, StatusCounts, Which},
    inspect::Action,
};
use sqlx::{Row, postgres::PgRow};

/// The status of what may run: leased until it is settled, or free. What waits in its place has failed.
const READY: &str = "case when m.token is not null then 'in_flight' when m.attempts > 0 then 'failed' \
    when m.lease_until > (select clock_timestamp()) then 'scheduled' else 'pending' end";

/// The status of what waits. A claim that lapsed is an attempt that failed.
const LATER: &str = "case when m.attempts > 0 then 'failed' when m.due_at <= (select clock_timestamp()) then 'pending' \
    when m.deliveries > 0 then 'failed' else 'scheduled' end";

const ERASE: &str =
    "select waiting, dead, archived, in_hand, follow_ups from {erase_subject}($1, $2, $3, $4)";

/// Where the columns of the message begin in a docket.
const FIRST: usize = 5;

#[async_trait]
impl FollowUps for PostgresStore {
    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        let mut counts = StatusCounts::default();
        let Some(queue) = self.queue(queue).await? else { return Ok(counts) };
        let sql = self.inner.names.sql(&counts_template());
        let rows = self.inner.connections.run(sql.query().bind(queue.number)).await?;
        for row in &rows {
            let number: i64 = row.try_get(1).map_err(store_error)?;
            counts.extend([(status(row, 0).map_err(store_error)?, number.unsigned_abs())]);
        }
        Ok(counts)
    }

    async fn dockets(&self, queue: &QueueName, which: Which, most: usize) -> Result<Vec<Docket>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let sql = self.inner.names.sql(&dockets_template(which));
        let mut query = sql.query().bind(queue.number).bind(limit(most));
        if let Which::Overdue(age) = which {
            query = query.bind(seconds(age));
        }
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(|row| docket(row, &queue)).collect::<Result<_, _>>().map_err(store_error)
    }

    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<Erased, Error> {
        action.check()?;
        let sql = self.inner.names.sql(ERASE);
        let query = sql
            .query()
            .bind(tenant.map(TenantId::as_str))
            .bind(subject.as_str())
            .bind(&action.actor)
            .bind(&action.why);
        erased(&self.inner.connections.run_for_one(query).await?).map_err(store_error)
    }
}

fn counts_template() -> String {
    format!(
        "select s.status, count(*) from ( \
           select {READY} as status from {{ready}} m where m.queue = $1 \
           union all select {LATER} from {{later}} m where m.queue = $1 \
           union all select 'abandoned' from {{dead}} m where m.queue = $1 \
           union all select 'succeeded' from {{archive}} m where m.queue = $1) s group by s.status"
    )
}

/// Columns: status, staged_at, at, deliveries, last_error.
fn dockets_template(which: Which) -> String {
    let of = |table: &str, status: &str, at: &str| {
        format!(
            "select {status} as status, m.staged_at, m.{at} as at, m.deliveries, m.last_error, {} from {{{table}}} m \
             where m.queue = $1",
            row::COLUMNS
        )
    };
    match which {
        Which::Abandoned => {
            format!("{} order by m.queue, m.failed_at, m.id limit $2", of("dead", "'abandoned'", "failed_at"))
        }
        Which::Scheduled => format!(
            "{} and m.due_at > (select clock_timestamp()) and m.attempts = 0 and m.deliveries = 0 \
             order by m.queue, m.due_at, m.id limit $2",
            of("later", "'scheduled'", "due_at")
        ),
        Which::Overdue(_) => {
            let old = "and m.staged_at < (select clock_timestamp()) - $3::float8 * interval '1 s'";
            format!(
                "{} {old} union all {} {old} union all {} {old} order by staged_at, message_id limit $2",
                of("ready", READY, "due_at"),
                of("later", LATER, "due_at"),
                of("dead", "'abandoned'", "failed_at"),
            )
        }
    }
}

fn docket(row: &PgRow, queue: &Queue) -> Result<Docket, sqlx::Error> {
    let message = row::message(row, FIRST, &queue.name)?;
    Ok(Docket {
        id: postrider_core::MessageId::from_uuid(row.try_get(FIRST)?),
        message,
        status: status(row, 0)?,
        staged_at: row.try_get::<Moment, _>(1)?.0,
        at: row.try_get::<Moment, _>(2)?.0,
        deliveries: count(row.try_get(3)?),
        error: row.try_get(4)?,
    })
}

fn status(row: &PgRow, column: usize) -> Result<Status, sqlx::Error> {
    let name: &str = row.try_get(column)?;
    let status = Status::ALL.into_iter().find(|status| status.as_str() == name);
    status.ok_or_else(|| sqlx::Error::Decode(format!("{name:?} is no status").into()))
}

fn erased(row: &PgRow) -> Result<Erased, sqlx::Error> {
    let number = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    Ok(Erased {
        waiting: number(0)?,
        dead: number(1)?,
        archived: number(2)?,
        in_hand: number(3)?,
        follow_ups: number(4)?,
    })
}
