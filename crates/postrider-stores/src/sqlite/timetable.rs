//! The ticks of schedules. With one writer at a time, a tick is a plain write: it is recorded and staged, or neither.

use super::{
    SqliteStore,
    drivers::{Driver, DriverRow, first_row},
    error::store_error,
    row,
    timestamp::{self, Micros},
};
use postrider_core::{Error, Message, ScheduleName, inspect::ScheduleRow, timetable::ScheduleReading};
use sqlx::{Row, sqlite::SqliteRow};
use std::time::SystemTime;

const READ: &str = "select {now}, last_at from {schedule} where name = ?1";

const LIST: &str = "select name, last_at from {schedule} order by name";

/// Of several processes that see a schedule first, one begins it.
const BEGIN: &str = "insert into {schedule} (name, last_at) values (?1, ?2) on conflict (name) do nothing";

const RECORD: &str = "insert into {schedule} (name, last_at) values (?1, ?2) \
    on conflict (name) do update set last_at = excluded.last_at where last_at < excluded.last_at";

impl SqliteStore {
    pub(super) async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        let inner = &self.inner;
        let names = &inner.names;
        let read = || names.statement(&sql!(READ)).bind(schedule.as_str());
        {
            let mut reader = inner.readers.acquire().await.map_err(store_error)?;
            if let Some(row) = first_row(&mut *reader, read()).await? {
                return reading(&row);
            }
        }
        let mut write = inner.writer.begin(names).await?;
        let begin = names.statement(&sql!(BEGIN)).bind(schedule.as_str()).bind(write.now);
        write.connection.execute(begin).await?;
        let row = first_row(&mut write.connection, read()).await?;
        write.commit().await?;
        row.as_ref().map_or_else(|| Err(Error::Other("the schedule could not be recorded".into())), reading)
    }

    pub(super) async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error> {
        let sql = self.inner.names.sql(&sql!(LIST));
        let rows = sql.query().fetch_all(&self.inner.readers).await.map_err(store_error)?;
        let row = |row: &SqliteRow| {
            let last = row::time(row, 1)?;
            Ok(ScheduleRow { name: ScheduleName::stored(row.try_get::<String, _>(0)?), last })
        };
        rows.iter().map(row).collect::<Result<_, _>>().map_err(store_error)
    }

    pub(super) async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let record =
            names.statement(&sql!(RECORD)).bind(schedule.as_str()).bind(timestamp::from_system_time(at));
        if write.connection.execute(record).await? == 0 {
            write.rollback().await?;
            return Ok(false);
        }
        // An error from here on drops the write, which rolls it back.
        self.outbox().stage_on(&mut write.connection, messages).await?;
        write.commit().await?;
        Ok(true)
    }
}

fn reading(row: &impl DriverRow) -> Result<ScheduleReading, Error> {
    let (now, last): (Micros, Micros) = (row.get(0)?, row.get(1)?);
    Ok(ScheduleReading { now: timestamp::to_system_time(now), last: timestamp::to_system_time(last) })
}
