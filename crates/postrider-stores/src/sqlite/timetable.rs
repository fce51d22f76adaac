//! The ticks of schedules. With one writer at a time, a tick is a write like any other: it records and stages, or neither.

use super::{
    SqliteStore,
    drivers::{Cells, Driver, first},
    error::store_error,
    moment::{self, Micros},
};
use async_trait::async_trait;
use postrider_core::{
    Error, Message, ScheduleName,
    timetable::{Reading, Timetable},
};
use std::time::SystemTime;

const READ: &str = "select {now}, last_at from {schedule} where name = ?1";

/// Of several that see a schedule first, one begins it.
const BEGIN: &str = "insert into {schedule} (name, last_at) values (?1, ?2) on conflict (name) do nothing";

const RECORD: &str = "insert into {schedule} (name, last_at) values (?1, ?2) \
    on conflict (name) do update set last_at = excluded.last_at where last_at < excluded.last_at";

#[async_trait]
impl Timetable for SqliteStore {
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error> {
        let inner = &self.inner;
        let names = &inner.names;
        let read = || names.statement(READ).bind(schedule.as_str());
        {
            let mut reader = inner.readers.acquire().await.map_err(store_error)?;
            if let Some(row) = first(&mut *reader, read()).await? {
                return reading(&row);
            }
        }
        let mut write = inner.writer.begin(names).await?;
        let begin = names.statement(BEGIN).bind(schedule.as_str()).bind(write.now);
        write.connection.execute(begin).await?;
        let row = first(&mut write.connection, read()).await?;
        write.commit().await?;
        row.as_ref().map_or_else(|| Err(Error::Other("the schedule was not begun".into())), reading)
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let record = names.statement(RECORD).bind(schedule.as_str()).bind(moment::of(at));
        if write.connection.execute(record).await? == 0 {
            write.undo().await?;
            return Ok(false);
        }
        // Whatever fails from here on drops the write, which undoes all of it.
        self.outbox().stage_on(&mut write.connection, messages).await?;
        write.commit().await?;
        Ok(true)
    }
}

fn reading(row: &impl Cells) -> Result<Reading, Error> {
    let (now, last): (Micros, Micros) = (row.get(0)?, row.get(1)?);
    Ok(Reading { now: moment::time(now), last: moment::time(last) })
}
