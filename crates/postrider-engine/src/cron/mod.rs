//! Recurring messages: cron schedules that stage one message per tick, once, whatever the number of processes.
//!
//! ```text
//!   Schedule ──▶ which ticks have passed since the last? ──▶ Store::tick: stage and record, in one transaction
//!                         ▲ Store::read_schedule: the last tick, and the store's time
//! ```
//!
//! **Who is authoritative.** The store: its clock decides what is due, and its row for each schedule records what was staged.
//! This process remembers nothing but when to check again, so any number of processes may run the same schedules, and any of
//! them may die at any moment. A tick is staged once or not at all.
//!
//! **On failure.** A store that fails is queried again with backoff, and the outage is logged once, and once when it is
//! resolved. Ticks that came due meanwhile are subject to [`Missed`], which treats an outage, a stopped process and a suspended
//! machine alike. An invalid message is not staged; its tick is retried until the message is valid or a later tick takes its
//! place.
//!
//! **Daylight saving.** A tick at a fixed time that the clocks skip happens when they have jumped; one that they repeat happens
//! once, the first time. A schedule with a `*`, a range or a step in its minutes or hours goes by elapsed time: it skips times
//! that do not exist, and runs through times that are repeated.
//!
//! **Why it is not simpler.** Message ids derived from the tick would need no table, but a delivered message leaves no trace,
//! and with it goes the proof that its tick was staged.

mod expression;
mod schedule;
mod scheduler;

pub use schedule::{Missed, SCHEDULED_AT, Schedule, Tick};
pub use scheduler::{RunningScheduler, Scheduler, SchedulerBuilder};
