//! The ticks of schedules.

use super::MemoryStore;
use postrider_core::{Error, Message, Outbox, ScheduleName, timetable::ScheduleReading};
use std::time::SystemTime;

impl MemoryStore {
    pub(super) fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        let (mut tables, now) = self.enter();
        let last = *tables.schedules.entry(schedule.clone()).or_insert(now);
        Ok(ScheduleReading { now, last })
    }

    pub(super) async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let mut tx = self.begin();
        self.stage_all(&mut tx, messages).await?;
        Ok(tx.commit_tick(schedule, at))
    }
}
