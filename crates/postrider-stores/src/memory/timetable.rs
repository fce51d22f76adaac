//! The ticks of schedules.

use super::MemoryStore;
use async_trait::async_trait;
use postrider_core::{
    Error, Message, Outbox, ScheduleName,
    timetable::{ScheduleReading, Timetable},
};
use std::time::SystemTime;

#[async_trait]
impl Timetable for MemoryStore {
    async fn read(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        let (mut tables, now) = self.enter();
        let last = *tables.schedules.entry(schedule.clone()).or_insert(now);
        Ok(ScheduleReading { now, last })
    }

    async fn tick(
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
