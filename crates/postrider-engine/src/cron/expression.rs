//! The ticks of a schedule: a cron expression in a time zone.

use croner::Cron;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use postrider_core::Invalid;
use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

#[derive(Debug, Clone)]
pub(super) struct Expression {
    cron: Cron,
    zone: TimeZone,
}

impl Expression {
    pub(super) fn new(cron: &str, zone: &str) -> Result<Self, Invalid> {
        let parsed = Cron::from_str(cron).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.trim_end_matches('.');
            Invalid::rule(
                "cron",
                format!(
                    "{cron:?} is not a valid cron expression ({reason}): give minute, hour, day of the month, month and day of the week, \
                     such as \"0 3 * * *\" for every night at three, optionally with seconds in front"
                ),
            )
        })?;
        let known = TimeZone::get(zone).map_err(|_| {
            Invalid::rule(
                "time_zone",
                format!(
                    "{zone:?} is not a known time zone: give a name of the IANA database, such as Europe/Berlin or UTC"
                ),
            )
        })?;
        let expression = Self { cron: parsed, zone: known };
        if expression.after(SystemTime::UNIX_EPOCH).is_none() {
            return Err(Invalid::rule(
                "cron",
                format!(
                    "{cron:?} has no future tick: give a day that exists in its month, and a year that is not over"
                ),
            ));
        }
        Ok(expression)
    }

    /// The last tick at `time` or before it.
    pub(super) fn at_or_before(&self, time: SystemTime) -> Option<SystemTime> {
        let found = self.cron.find_previous_occurrence(&self.zoned(time)?, true).ok()?;
        // Before 1970 there are no ticks.
        moment(&found).filter(|found| *found <= time)
    }

    /// The first tick after `time`.
    pub(super) fn after(&self, time: SystemTime) -> Option<SystemTime> {
        let found = self.cron.find_next_occurrence(&self.zoned(time)?, false).ok()?;
        moment(&found).filter(|found| *found > time)
    }

    /// The ticks after `last` and up to `now`: the latest `at_most` of them, oldest first.
    pub(super) fn between(&self, last: SystemTime, now: SystemTime, at_most: usize) -> Vec<SystemTime> {
        let mut ticks = Vec::new();
        let mut next = self.at_or_before(now);
        while let Some(tick) = next.filter(|tick| *tick > last && ticks.len() < at_most) {
            ticks.push(tick);
            next = tick.checked_sub(Duration::from_secs(1)).and_then(|before| self.at_or_before(before));
        }
        ticks.reverse();
        ticks
    }

    /// Ticks are whole seconds, so fractions do not matter.
    fn zoned(&self, time: SystemTime) -> Option<Zoned> {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        let timestamp = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
        Some(timestamp.to_zoned(self.zone.clone()))
    }
}

fn moment(zoned: &Zoned) -> Option<SystemTime> {
    let seconds = u64::try_from(zoned.timestamp().as_second()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::cloudevents::rfc3339;

    fn time(text: &str) -> SystemTime {
        rfc3339::parse(text).unwrap()
    }

    /// The ticks between two times.
    fn ticks(cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
        let expression = Expression::new(cron, zone).unwrap();
        let backward = expression.between(time(from), time(to), 1000);
        let mut forward = Vec::new();
        let mut next = expression.after(time(from));
        while let Some(tick) = next.filter(|tick| *tick <= time(to)) {
            forward.push(tick);
            next = expression.after(tick);
        }
        assert_eq!(backward, forward, "both directions find the same ticks");
        backward.into_iter().map(|tick| rfc3339::format(tick).replace(":00.000Z", "Z")).collect()
    }

    #[test]
    fn ticks_between_excludes_the_last_and_includes_now() {
        let between = |from, to| ticks("0 3 * * *", "UTC", from, to);
        assert_eq!(between("2026-05-01T03:00:00Z", "2026-05-02T02:59:59.999Z"), [""; 0]);
        assert_eq!(between("2026-05-01T03:00:00Z", "2026-05-02T03:00:00Z"), ["2026-05-02T03:00Z"]);
        assert_eq!(
            between("2026-05-01T02:59:59.999Z", "2026-05-02T03:00:00.001Z"),
            ["2026-05-01T03:00Z", "2026-05-02T03:00Z"]
        );
    }

    #[test]
    fn ticks_between_returns_the_latest_up_to_the_limit() {
        let expression = Expression::new("* * * * *", "UTC").unwrap();
        let year = expression.between(time("2025-01-01T00:00:00Z"), time("2026-01-01T00:00:30Z"), 2);
        assert_eq!(year, [time("2025-12-31T23:59:00Z"), time("2026-01-01T00:00:00Z")]);
        assert!(expression.between(time("2025-01-01T00:00:00Z"), time("2026-01-01T00:00:30Z"), 0).is_empty());
    }

    /// On 29 March 2026 the clocks of Berlin go from two to three: half past two does not exist.
    #[test]
    fn fixed_time_skipped_by_daylight_saving_ticks_after_the_jump() {
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z"),
            ["2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"]
        );
    }

    /// On 25 October 2026 they go from three to two: half past two comes twice.
    #[test]
    fn fixed_time_repeated_by_daylight_saving_ticks_once() {
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
            ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]
        );
    }

    #[test]
    fn interval_ticks_by_elapsed_time_across_daylight_saving() {
        assert_eq!(
            ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z"),
            ["2026-03-29T00:30Z", "2026-03-29T01:00Z", "2026-03-29T01:30Z", "2026-03-29T02:00Z"]
        );
        assert_eq!(
            ticks("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"),
            ["2026-10-25T00:30Z", "2026-10-25T01:00Z", "2026-10-25T01:30Z", "2026-10-25T02:00Z"]
        );
    }

    #[test]
    fn seconds_nicknames_and_leap_days_are_understood() {
        assert_eq!(
            ticks("0 */30 * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ["2026-01-01T00:30Z", "2026-01-01T01:00Z"]
        );
        assert_eq!(
            ticks("@daily", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ["2026-01-02T00:00Z"]
        );
        assert_eq!(
            ticks("0 0 29 2 *", "UTC", "2021-01-01T00:00:00Z", "2028-12-01T00:00:00Z"),
            ["2024-02-29T00:00Z", "2028-02-29T00:00Z"]
        );
    }

    #[test]
    fn parsing_random_text_never_panics() {
        use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
        let mut random = StdRng::seed_from_u64(7);
        let parts: Vec<&str> =
            "0 1 5 29 30 31 59 61 99999999999999999999 * ? / - , # L W LW + @ @daily @yearly MON FRI JAN \
            ß é 🕒 x * * * * 0 0 0 1 2 5-1 1-5 */7 */0 1/2 FRI#5 5L 31W 2030 1969"
                .split_whitespace()
                .collect();
        let mut good = 0;
        for _ in 0..5_000 {
            let mut text = String::new();
            for _ in 0..random.random_range(1..9) {
                text.push_str(parts.choose(&mut random).unwrap());
                text.push_str(if random.random_bool(0.9) { " " } else { "" });
            }
            if let Ok(expression) = Expression::new(&text, "Europe/Berlin") {
                good += 1;
                expression.between(SystemTime::UNIX_EPOCH, time("2026-03-29T01:30:00Z"), 3);
            }
        }
        assert!(good > 10, "only {good} of them were valid");
    }

    /// A schedule that has not begun, or is over, has no ticks, and nothing panics at the ends of the calendar.
    #[test]
    fn schedule_without_ticks_returns_none() {
        let once = Expression::new("0 0 0 1 1 * 2030", "UTC").unwrap();
        assert_eq!(once.at_or_before(time("2026-01-01T00:00:00Z")), None);
        assert_eq!(once.after(time("2031-01-01T00:00:00Z")), None);
        let daily = Expression::new("@daily", "UTC").unwrap();
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50);
        assert_eq!((daily.at_or_before(far), daily.after(far)), (None, None));
        let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!((daily.at_or_before(early), daily.after(early)), (None, None));
    }
}
