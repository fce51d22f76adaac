//! The ticks of schedules.

use super::MemoryStore;
use async_trait::async_trait;
use postrider_core::{
    Error, Message, Outbox, ScheduleName,
    timetable::{Reading, Timetable},
};
use std::time::SystemTime;

#[async_trait]
impl Timetable for MemoryStore {
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error> {
        let (mut rooms, now) = self.enter();
        let last = *rooms.schedules.entry(schedule.clone()).or_insert(now);
        Ok(Reading { now, last })
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
