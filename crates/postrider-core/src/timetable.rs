//! The last tick of each cron schedule, which the store keeps beside the messages.
//!
//! Any number of processes may run the same schedules. They agree by two rules, which the store suite checks on every
//! implementation:
//!
//! - **The store's clock decides** what is due: [`ScheduleReading::now`] is its time.
//! - **Compare and set.** A [tick](crate::Store::tick) is recorded in the transaction that stages its messages, and only if neither it
//!   nor a later one was recorded before. So each tick is staged at most once, by whichever process and clock; a process that dies
//!   before the commit has recorded nothing, and another process stages the tick.

use std::time::SystemTime;

/// The state of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleReading {
    /// The store's time.
    pub now: SystemTime,
    /// The last recorded tick, or the time when the schedule was first read.
    pub last: SystemTime,
}
