//! The seam to what is known of recurring messages: which tick of each schedule was the last.

use crate::{Error, Message, ScheduleName};
use async_trait::async_trait;
use std::{fmt::Debug, time::SystemTime};

/// The last tick of every schedule, in the store, beside the messages.
///
/// Any number of processes may go by the same schedules. They agree through two rules, which the store suite checks on
/// every implementation:
///
/// - **The store's clock decides** what is due: [`Reading::now`] is its time.
/// - **Compare and set.** A tick is recorded in the transaction that stages its messages, and only if neither it nor a
///   later one was recorded before. So it is staged once or not at all, whoever tries, however often, and by whatever
///   clock; and whoever dies before the commit has recorded nothing, so that somebody else stages it.
#[async_trait]
pub trait Timetable: Debug + Send + Sync + 'static {
    /// Reads where a schedule stands. One that nobody has read before begins now: its past is not made up for.
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error>;

    /// Stages the messages of the tick at `at`, and records it. Answers `false`, and has changed nothing, when this tick
    /// or a later one was recorded before. Without messages it only records.
    ///
    /// # Errors
    /// When a message breaks a rule or the store fails. Then nothing was staged or recorded, unless the error came
    /// instead of the answer to a commit: trying again is safe either way.
    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error>;
}

/// Where a schedule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The store's time.
    pub now: SystemTime,
    /// The last tick that was recorded, or else the moment when the schedule was read first.
    pub last: SystemTime,
}
