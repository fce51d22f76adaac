//! When a run ends.

use crate::totals::Totals;
use std::time::Duration;

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Goal {
    /// End after this many kills
    #[arg(long, value_name = "NUMBER")]
    pub(crate) kills: Option<u64>,

    /// Do not end before this many messages
    #[arg(long, value_name = "NUMBER")]
    pub(crate) messages: Option<u64>,

    /// End after this many hours, whatever else was asked for
    #[arg(long, value_name = "HOURS")]
    pub(crate) hours: Option<f64>,
}

impl Goal {
    /// Whether a run has done enough.
    pub(crate) fn is_reached(&self, done: &Totals, elapsed: Duration) -> bool {
        if self.hours.is_some_and(|hours| elapsed.as_secs_f64() >= hours * 3600.0) {
            return true;
        }
        let has_count = self.kills.is_some() || self.messages.is_some();
        has_count
            && self.kills.is_none_or(|kills| done.kills >= kills)
            && self.messages.is_none_or(|messages| done.messages >= messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_reached(goal: Goal, kills: u64, messages: u64, hours: u64) -> bool {
        let done = Totals { kills, messages, ..Totals::default() };
        goal.is_reached(&done, Duration::from_secs(3600 * hours))
    }

    #[test]
    fn hours_end_a_run_whatever_else_was_asked_for() {
        let goal = Goal { kills: Some(10), messages: Some(100), hours: Some(2.0) };
        assert!(!is_reached(goal, 9, 200, 1));
        assert!(!is_reached(goal, 20, 99, 1));
        assert!(is_reached(goal, 10, 100, 1));
        assert!(is_reached(goal, 0, 0, 2));
    }

    #[test]
    fn hours_alone_are_the_only_end() {
        let goal = Goal { kills: None, messages: None, hours: Some(1.0) };
        assert!(!is_reached(goal, 1_000, 1_000, 0));
        assert!(is_reached(goal, 0, 0, 1));
    }
}
