//! The ticks of schedules.

use super::MemoryStore;
use postrider_core::{
    Error, Message, Outbox, ScheduleName, inspect::ScheduleRow, timetable::ScheduleReading,
};
use std::time::SystemTime;

impl MemoryStore {
    pub(super) fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        let (mut tables, now) = self.enter();
        let last = *tables.schedules.entry(schedule.clone()).or_insert(now);
        Ok(ScheduleReading { now, last })
    }

    pub(super) fn schedules(&self) -> Vec<ScheduleRow> {
        let tables = self.lock();
        let row =
            |(name, last): (&ScheduleName, &SystemTime)| ScheduleRow { name: name.clone(), last: *last };
        let mut rows: Vec<_> = tables.schedules.iter().map(row).collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
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
