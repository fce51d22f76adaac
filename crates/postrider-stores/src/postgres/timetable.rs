//! The ticks of schedules.
//!
//! A tick is a transaction of ours: the row of its schedule first, which lets
//! one process through and the others wait, and then the messages, by the outbox. Whoever waited finds the tick recorded when
//! the first has committed, and does it when the first has not.

use super::{PostgresStore, connections::Route, error::store_error, lent::Lent, row::Moment};
use async_trait::async_trait;
use postrider_core::{
    Error, Invalid, Message, Outbox, ScheduleName,
    timetable::{Reading, Timetable},
};
use sqlx::{Row, postgres::PgRow};
use std::time::SystemTime;
use time::OffsetDateTime;

const READ: &str = "select clock_timestamp(), s.last_at from {schedule} s where s.name = $1";

/// Of several that see a schedule first, one begins it.
const BEGIN: &str =
    "insert into {schedule} (name, last_at) values ($1, clock_timestamp()) on conflict (name) do nothing";

const RECORD: &str = "insert into {schedule} as s (name, last_at) values ($1, $2) \
    on conflict (name) do update set last_at = excluded.last_at where s.last_at < excluded.last_at";

#[async_trait]
impl Timetable for PostgresStore {
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error> {
        let inner = &self.inner;
        let read = inner.names.sql(READ);
        if let Some(row) = inner.connections.run(read.query().bind(schedule.as_str())).await?.first() {
            return reading(row).map_err(store_error);
        }
        let begin = inner.names.sql(BEGIN);
        inner.connections.run(begin.query().bind(schedule.as_str())).await?;
        let row = inner.connections.run_for_one(read.query().bind(schedule.as_str())).await?;
        reading(&row).map_err(store_error)
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let inner = &self.inner;
        let mut lent = Lent::by(&inner.pool).await?;
        let mut tx = lent.begin(inner.route).await?;
        let record = match inner.route {
            Route::Direct => inner.names.sql(RECORD),
            Route::Pooled => inner.names.sql(RECORD).unprepared(),
        };
        let record = record.query().bind(schedule.as_str()).bind(moment(at)?);
        let is_new = record.execute(&mut *tx).await.map_err(store_error)?.rows_affected() > 0;
        if is_new {
            self.outbox().stage_all(&mut tx, messages).await?;
        }
        tx.commit().await.map_err(store_error)?;
        lent.give_back();
        Ok(is_new)
    }
}

fn moment(at: SystemTime) -> Result<OffsetDateTime, Invalid> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok();
    let since = since.and_then(|since| time::Duration::try_from(since).ok());
    let moment = since.and_then(|since| OffsetDateTime::UNIX_EPOCH.checked_add(since));
    moment.ok_or_else(|| Invalid::rule("at", "must lie between the years 1970 and 9999"))
}

fn reading(row: &PgRow) -> Result<Reading, sqlx::Error> {
    Ok(Reading { now: row.try_get::<Moment, _>(0)?.0, last: row.try_get::<Moment, _>(1)?.0 })
}
