//! The last tick of each cron schedule.

use crate::{Error, Message, ScheduleName};
use async_trait::async_trait;
use std::{fmt::Debug, time::SystemTime};

/// The last tick of every schedule, in the store, beside the messages.
///
/// Any number of processes may run the same schedules. They agree by two rules, which the store suite checks on every
/// implementation:
///
/// - **The store's clock decides** what is due: [`ScheduleReading::now`] is its time.
/// - **Compare and set.** A tick is recorded in the transaction that stages its messages, and only if neither it nor a
///   later one was recorded before. So each tick is staged at most once, by whichever process and clock; a process that dies
///   before the commit has recorded nothing, and another process stages the tick.
#[async_trait]
pub trait Timetable: Debug + Send + Sync + 'static {
    /// Reads the state of a schedule. A schedule that is read for the first time begins now: missed ticks before that are not staged.
    async fn read(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error>;

    /// Stages the messages of the tick at `at`, and records it. Returns `false`, and changes nothing, when this tick or a later one
    /// was recorded before. Without messages it only records.
    ///
    /// # Errors
    /// When a message is invalid or the store fails. Then nothing was staged or recorded, unless the commit itself failed with an
    /// unknown outcome: a retry is safe either way.
    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error>;
}

/// The state of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleReading {
    /// The store's time.
    pub now: SystemTime,
    /// The last recorded tick, or the time when the schedule was first read.
    pub last: SystemTime,
}
