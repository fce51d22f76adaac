//! Recurring messages: cron schedules that stage a message for each tick, once, whatever the number of processes.
//!
//! ```text
//!   Schedule ──▶ which ticks have passed since the last? ──▶ Timetable::tick: stage and record, in one transaction
//!                         ▲ Timetable::read: the last tick, and the store's time
//! ```
//!
//! **Who is authoritative.** The store: its clock says what is due, and its row for each schedule says what was staged. This
//! process remembers nothing but when to look again, so any number of them may run the same schedules, and any of
//! them may die at any moment. A tick is staged once or not at all.
//!
//! **On failure.** A store that fails is asked again, with pauses, and says so once each way. What came due meanwhile is
//! what [`Missed`] is about: it treats an outage, a stopped process and a long night alike. A message that breaks a
//! rule is not staged; its tick is tried again until it is right or a later tick takes its place.
//!
//! **Daylight saving.** A tick at a fixed time that the clocks skip comes when they have jumped; one that they repeat comes
//! once, the first time. A schedule with a `*`, a range or a step in its minutes or hours goes by what has passed: it skips
//! what does not exist, and runs through what is repeated.
//!
//! **Why it is not simpler.** Message ids made from the tick would need no table, but a delivered message leaves no trace, and
//! with it goes the proof that its tick was staged.

mod expression;
mod schedule;
mod scheduler;

pub use schedule::{Missed, SCHEDULED_AT, Schedule, Tick};
pub use scheduler::{Scheduler, SchedulerBuilder, Scheduling};
