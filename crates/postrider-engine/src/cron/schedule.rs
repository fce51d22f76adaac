//! Schedules: a cron expression, the message of each tick, and the policy for missed ticks.

use super::expression::Expression;
use postrider_core::{
    Invalid, Message, MessageBuilder, ScheduleName, cloudevents::rfc3339, timetable::ScheduleReading,
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The header with the time of the tick, in RFC 3339: `2026-05-01T03:00:00.000Z`.
pub const SCHEDULED_AT: &str = "scheduled-at";

/// A tick that is staged within this time has not been missed.
const ON_TIME: Duration = Duration::from_secs(60);

/// Stages a message for each tick of a cron expression.
///
/// ```
/// # use postrider_core::Message;
/// # use postrider_engine::cron::{Missed, Schedule};
/// let report = Schedule::new("nightly-report", "0 3 * * *", |_| Message::builder("reports").json("sales"))
///     .in_time_zone("Europe/Berlin")
///     .on_missed(Missed::Each { at_most: 7 });
/// ```
///
/// Settings are checked when the [scheduler](super::Scheduler) is built.
#[must_use = "a schedule does nothing until it is given to a scheduler"]
pub struct Schedule {
    name: String,
    cron: String,
    time_zone: String,
    missed: Missed,
    message: Arc<Make>,
}

type Make = dyn Fn(Tick) -> MessageBuilder + Send + Sync;

/// Policy for ticks that came due while no scheduler ran, or while the store was unavailable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// They are skipped. A tick counts as missed after a minute: a program that calls
    /// [`run_until_idle`](super::Scheduler::run_until_idle) less often than that misses most of them.
    Skip,
    /// The latest of them is staged, once for all.
    #[default]
    Once,
    /// Each of them is staged, oldest first, but only the latest `at_most`.
    Each {
        /// The maximum number of ticks.
        at_most: usize,
    },
}

/// One tick of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// The schedule.
    pub schedule: ScheduleName,
    /// When the message was due by the schedule; it may be staged later.
    pub at: SystemTime,
}

impl Schedule {
    /// Stages the message that `message` returns for each tick of the expression `cron`: minute, hour, day of the month,
    /// month, day of the week, optionally with seconds in front. Processes that use the same name share its ticks.
    ///
    /// The message has the time of the tick in its header [`SCHEDULED_AT`].
    pub fn new(
        name: impl Into<String>,
        cron: impl Into<String>,
        message: impl Fn(Tick) -> MessageBuilder + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            cron: cron.into(),
            time_zone: "UTC".to_owned(),
            missed: Missed::default(),
            message: Arc::new(message),
        }
    }

    /// Time zone, by its name in the IANA database; default UTC.
    pub fn in_time_zone(mut self, name: impl Into<String>) -> Self {
        self.time_zone = name.into();
        self
    }

    /// Policy for missed ticks; default [`Missed::Once`].
    pub fn on_missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    pub(super) fn check(self) -> Result<CheckedSchedule, Invalid> {
        let name = ScheduleName::new(self.name)?;
        let of_this = |invalid: Invalid| {
            Invalid::new(format!("schedule {name}: {}", invalid.field()), invalid.problem().clone())
        };
        let expression = Expression::new(&self.cron, &self.time_zone).map_err(of_this)?;
        if self.missed == (Missed::Each { at_most: 0 }) {
            let rule = "is 0; nothing would ever be staged: set at least 1, or use Missed::Skip";
            return Err(of_this(Invalid::rule("at_most", rule)));
        }
        Ok(CheckedSchedule { name, expression, missed: self.missed, message: self.message })
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cron, time_zone, missed, message: _ } = self;
        f.debug_struct("Schedule")
            .field("name", name)
            .field("cron", cron)
            .field("time_zone", time_zone)
            .field("missed", missed)
            .finish_non_exhaustive()
    }
}

/// A schedule with valid settings.
#[derive(Clone)]
pub(super) struct CheckedSchedule {
    pub(super) name: ScheduleName,
    expression: Expression,
    missed: Missed,
    message: Arc<Make>,
}

impl CheckedSchedule {
    /// The ticks to be staged now, oldest first.
    pub(super) fn due(&self, ScheduleReading { now, last }: ScheduleReading) -> Vec<SystemTime> {
        let since = match self.missed {
            Missed::Skip => now.checked_sub(ON_TIME).map_or(last, |on_time| last.max(on_time)),
            Missed::Once | Missed::Each { .. } => last,
        };
        let at_most = match self.missed {
            Missed::Skip | Missed::Once => 1,
            Missed::Each { at_most } => at_most,
        };
        self.expression.between(since, now, at_most)
    }

    /// The time until the next tick, if there is one.
    pub(super) fn until_next_tick(&self, now: SystemTime) -> Option<Duration> {
        self.expression.after(now)?.duration_since(now).ok()
    }

    pub(super) fn message(&self, at: SystemTime) -> Result<Message, Invalid> {
        let tick = Tick { schedule: self.name.clone(), at };
        // A panic must not affect the other schedules.
        let made = catch_unwind(AssertUnwindSafe(|| (self.message)(tick)));
        let Ok(builder) = made else {
            return Err(Invalid::rule(
                format!("schedule {}", self.name),
                "panicked while it built its message",
            ));
        };
        builder.header(SCHEDULED_AT, rfc3339::format(at)).build()
    }
}

impl fmt::Debug for CheckedSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedSchedule")
            .field("name", &self.name)
            .field("missed", &self.missed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(missed: Missed, last: &str, now: &str) -> Vec<String> {
        let schedule = Schedule::new("hourly", "0 * * * *", |_| Message::builder("q")).on_missed(missed);
        let time = |text| rfc3339::parse(text).unwrap();
        let ticks = schedule.check().unwrap().due(ScheduleReading { now: time(now), last: time(last) });
        ticks.into_iter().map(|tick| rfc3339::format(tick)[11..16].to_owned()).collect()
    }

    const ALL: [Missed; 3] = [Missed::Skip, Missed::Once, Missed::Each { at_most: 2 }];

    #[test]
    fn tick_on_time_is_due_with_every_missed_policy() {
        for missed in ALL {
            assert_eq!(due(missed, "2026-05-01T11:00:00Z", "2026-05-01T11:59:59.999Z"), [""; 0]);
            assert_eq!(due(missed, "2026-05-01T11:00:00Z", "2026-05-01T12:00:00Z"), ["12:00"]);
            assert_eq!(due(missed, "2026-05-01T11:00:00Z", "2026-05-01T12:00:59Z"), ["12:00"]);
            assert_eq!(due(missed, "2026-05-01T12:00:00Z", "2026-05-01T12:00:00Z"), [""; 0]);
        }
    }

    #[test]
    fn missed_ticks_are_skipped_staged_once_or_each() {
        let (last, now) = ("2026-05-01T08:00:00Z", "2026-05-01T12:30:00Z");
        assert_eq!(due(Missed::Skip, last, now), [""; 0]);
        assert_eq!(due(Missed::Once, last, now), ["12:00"]);
        assert_eq!(due(Missed::Each { at_most: 2 }, last, now), ["11:00", "12:00"]);
        assert_eq!(due(Missed::Each { at_most: 9 }, last, now), ["09:00", "10:00", "11:00", "12:00"]);
    }

    /// The tick of this minute is on time, though those before it were missed.
    #[test]
    fn missed_skip_keeps_the_tick_that_is_on_time() {
        assert_eq!(due(Missed::Skip, "2026-05-01T08:00:00Z", "2026-05-01T12:00:01Z"), ["12:00"]);
    }

    /// A store whose clock went back stages nothing until it has caught up.
    #[test]
    fn nothing_is_due_before_the_last_tick() {
        for missed in ALL {
            assert_eq!(due(missed, "2026-05-01T15:00:00Z", "2026-05-01T12:00:00Z"), [""; 0]);
        }
    }

    #[test]
    fn message_has_the_tick_header_and_a_panic_is_an_error() {
        let at = rfc3339::parse("2026-05-01T03:00:00Z").unwrap();
        let make = |tick: Tick| Message::builder("q").payload(tick.schedule.to_string());
        let message = Schedule::new("nightly", "@daily", make).check().unwrap().message(at).unwrap();
        assert_eq!(message.headers().get(SCHEDULED_AT), Some("2026-05-01T03:00:00.000Z"));
        assert_eq!(message.payload(), "nightly");
        let rejected_ticks = Schedule::new("nightly", "@daily", |_| panic!("oh no"));
        let error = rejected_ticks.check().unwrap().message(at).unwrap_err();
        assert_eq!(error.to_string(), "schedule nightly: panicked while it built its message");
    }
}
