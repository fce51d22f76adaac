//! The ticks of schedules.
//!
//! A tick is a transaction of the store's own: first the row of its schedule, which lets one process through while the others
//! wait, and then the messages, through the outbox. A process that waited finds the tick recorded if the first committed, and
//! makes the tick itself if the first rolled back.

use super::{
    PostgresStore, connections::ConnectionMode, error::store_error, row::Moment,
    transaction_connection::TransactionConnection,
};
use postrider_core::{
    Error, Invalid, Message, Outbox, ScheduleName, inspect::ScheduleRow, timetable::ScheduleReading,
};
use sqlx::{Row, postgres::PgRow};
use std::time::SystemTime;
use time::OffsetDateTime;

const READ: &str = "select clock_timestamp(), s.last_at from {schedule} s where s.name = $1";

const LIST: &str = "select s.name, s.last_at from {schedule} s order by s.name";

/// When several processes see a new schedule at once, one of them inserts it.
const INSERT: &str =
    "insert into {schedule} (name, last_at) values ($1, clock_timestamp()) on conflict (name) do nothing";

const RECORD: &str = "insert into {schedule} as s (name, last_at) values ($1, $2) \
    on conflict (name) do update set last_at = excluded.last_at where s.last_at < excluded.last_at";

impl PostgresStore {
    pub(super) async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        let inner = &self.inner;
        let read = inner.names.sql(&sql!(READ));
        if let Some(row) = inner.connections.run(read.query().bind(schedule.as_str())).await?.first() {
            return reading(row).map_err(store_error);
        }
        let begin = inner.names.sql(&sql!(INSERT));
        inner.connections.run(begin.query().bind(schedule.as_str())).await?;
        let row = inner.connections.run_for_one(read.query().bind(schedule.as_str())).await?;
        reading(&row).map_err(store_error)
    }

    pub(super) async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error> {
        let sql = self.inner.names.sql(&sql!(LIST));
        let rows = self.inner.connections.run(sql.query()).await?;
        let row = |row: &PgRow| {
            let name = ScheduleName::stored(row.try_get::<String, _>(0)?);
            Ok(ScheduleRow { name, last: row.try_get::<Moment, _>(1)?.0 })
        };
        rows.iter().map(row).collect::<Result<_, _>>().map_err(store_error)
    }

    pub(super) async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let inner = &self.inner;
        let at = moment(at)?;
        let ticking = async {
            let mut connection = TransactionConnection::acquire(&inner.connections).await?;
            let mut tx = connection.begin(inner.mode).await?;
            let record = match inner.mode {
                ConnectionMode::Direct => inner.names.sql(&sql!(RECORD)),
                ConnectionMode::Pooled => inner.names.sql(&sql!(RECORD)).unprepared(),
            };
            let record = record.query().bind(schedule.as_str()).bind(at);
            let is_new = record.execute(&mut *tx).await.map_err(store_error)?.rows_affected() > 0;
            if is_new {
                self.outbox().stage_all(&mut tx, messages).await?;
            }
            tx.commit().await.map_err(store_error)?;
            connection.release();
            Ok(is_new)
        };
        inner.connections.within_timeout(ticking).await
    }
}

fn moment(at: SystemTime) -> Result<OffsetDateTime, Invalid> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok();
    let since = since.and_then(|since| time::Duration::try_from(since).ok());
    let moment = since.and_then(|since| OffsetDateTime::UNIX_EPOCH.checked_add(since));
    moment.ok_or_else(|| Invalid::rule("at", "must be between the years 1970 and 9999"))
}

fn reading(row: &PgRow) -> Result<ScheduleReading, sqlx::Error> {
    Ok(ScheduleReading { now: row.try_get::<Moment, _>(0)?.0, last: row.try_get::<Moment, _>(1)?.0 })
}
