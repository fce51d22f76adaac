//! What a run has done and found so far.

use crate::fault::Fault;
use postrider_testkit::{History, history::Violation};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The last line of a run, and a part of its state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Faults of any kind.
    pub(crate) kills: u64,
    /// Messages of committed transactions.
    pub(crate) messages: u64,
    /// Committed messages without an outcome.
    pub(crate) lost: u64,
    /// Messages of rolled-back transactions that had an outcome.
    pub(crate) invented: u64,
    /// Transactional effects that happened twice.
    pub(crate) double_effects: u64,
    /// Messages that were overtaken by a later one of their key.
    pub(crate) overtaken: u64,
    /// Messages that are dead letters and should not be, or the reverse, or that are in two states.
    pub(crate) wrong_outcome: u64,
    /// Repeated runs of plain handlers, which at-least-once delivery permits.
    pub(crate) duplicates: u64,
    /// The faults by kind.
    pub(crate) faults: BTreeMap<Fault, u64>,
}

impl Totals {
    /// What the check of one round has found.
    pub(crate) fn of(history: &History, violations: &[Violation], faults: BTreeMap<Fault, u64>) -> Self {
        let mut totals = Self {
            kills: faults.values().sum(),
            messages: history.witness.len() as u64,
            duplicates: history.repeated_runs() as u64,
            // Nothing is running any more that could deliver them.
            lost: history.waiting.len() as u64,
            faults,
            ..Self::default()
        };
        for violation in violations {
            *totals.count_of(violation) += violation.messages().len() as u64;
        }
        totals
    }

    fn count_of(&mut self, violation: &Violation) -> &mut u64 {
        match violation {
            Violation::Lost(_) => &mut self.lost,
            Violation::Invented(_) => &mut self.invented,
            Violation::Doubled(_) => &mut self.double_effects,
            Violation::Split(_) | Violation::Misjudged(_) => &mut self.wrong_outcome,
            Violation::Overtaken(_) => &mut self.overtaken,
        }
    }

    pub(crate) fn violations(&self) -> u64 {
        self.lost + self.invented + self.double_effects + self.overtaken + self.wrong_outcome
    }

    pub(crate) fn add(&mut self, round: &Self) {
        self.kills += round.kills;
        self.messages += round.messages;
        self.lost += round.lost;
        self.invented += round.invented;
        self.double_effects += round.double_effects;
        self.overtaken += round.overtaken;
        self.wrong_outcome += round.wrong_outcome;
        self.duplicates += round.duplicates;
        for (fault, count) in &round.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }
}

/// One line of JSON.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn every_violation_is_counted() {
        let ids = || vec![Uuid::nil()];
        let violations = [
            Violation::Lost(ids()),
            Violation::Invented(ids()),
            Violation::Doubled(ids()),
            Violation::Split(ids()),
            Violation::Misjudged(ids()),
            Violation::Overtaken(ids()),
        ];
        let history = History { waiting: ids(), ..History::default() };
        let mut totals = Totals::of(&history, &violations, [(Fault::Sigkill, 3)].into());
        assert_eq!((totals.kills, totals.lost, totals.violations()), (3, 2, 7));
        totals.add(&totals.clone());
        assert_eq!((totals.kills, totals.violations(), totals.faults[&Fault::Sigkill]), (6, 14, 6));
    }

    #[test]
    fn totals_are_one_line_of_json() {
        let totals = Totals { faults: [(Fault::ServerCrash, 1)].into(), kills: 1, ..Totals::default() };
        assert_eq!(
            totals.to_string(),
            r#"{"kills":1,"messages":0,"lost":0,"invented":0,"double_effects":0,"overtaken":0,"wrong_outcome":0,"duplicates":0,"faults":{"server_crash":1}}"#
        );
    }
}
