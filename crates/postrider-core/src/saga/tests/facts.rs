//! What a log says, kept by plain bookkeeping, and what must hold of it whatever the transition does.

use super::*;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) done: BTreeSet<u32>,
    pub(super) undone: BTreeSet<u32>,
    doubt: Option<u32>,
    failed: Option<u32>,
}

impl Facts {
    pub(super) fn note(&mut self, entry: &LogEntry) {
        if self.doubt.is_some() && self.doubt == entry.step() && !matches!(entry, LogEntry::Unknown { .. }) {
            self.doubt = None;
        }
        match entry {
            LogEntry::Done { step } | LogEntry::Resolved { step, happened: true } => {
                self.done.insert(*step);
            }
            LogEntry::Failed { step, .. } | LogEntry::Resolved { step, happened: false } => {
                self.failed = Some(*step);
            }
            LogEntry::Unknown { step, .. } => self.doubt = Some(*step),
            LogEntry::Undone { step } => {
                self.undone.insert(*step);
            }
            LogEntry::Begun { .. } | LogEntry::Stuck { .. } | LogEntry::Unstuck { .. } => {}
        }
    }

    /// What must hold in every state that a log with these facts leads to.
    pub(super) fn check(&self, plan: &Plan, state: SagaState) -> Result<(), &'static str> {
        let rule = |holds: bool, broken: &'static str| if holds { Ok(()) } else { Err(broken) };
        let all_before = |step: u32| (0..step).all(|each| self.done.contains(&each));
        let no_return = all_before(plan.point_of_no_return());
        rule(!no_return || self.undone.is_empty(), "something was undone behind the point of no return")?;
        rule(self.undone.is_subset(&self.done), "something was undone that was not done")?;
        if let Some(command) = state.pending() {
            let step = command.step;
            rule(self.doubt.is_none(), "a call is made in doubt")?;
            match command.act {
                CommandKind::Do => {
                    rule(self.failed.is_none(), "it goes forward after a failure")?;
                    rule(all_before(step), "a step is carried out before its turn")?;
                    rule(!self.done.contains(&step), "a step is carried out that is done")?;
                }
                CommandKind::Undo => {
                    rule(!no_return, "a step is undone behind the point of no return")?;
                    rule(self.failed.is_some(), "a step is undone without a failure")?;
                    rule(self.done.contains(&step), "a step is undone that is not done")?;
                    rule(!self.undone.contains(&step), "a step is undone that is undone")?;
                    let later = self.done.range(step + 1..).all(|each| self.undone.contains(each));
                    rule(later, "a step is undone before one that came after it")?;
                }
            }
            rule(plan.call(command).is_some(), "there is nobody to call")?;
        }
        let stands =
            state == SagaState::New || state.is_over() || state.needs_a_hand() || state.pending().is_some();
        rule(stands, "nobody is to do anything, and it is not over")?;
        rule(self.doubt.is_none() || state.needs_a_hand(), "a doubt is forgotten")?;
        if state == SagaState::Completed {
            rule(all_before(plan.len()) && self.undone.is_empty(), "it is completed, and not all is done")?;
        }
        if let SagaState::Compensated { .. } = state {
            rule(self.done == self.undone, "it is compensated, and something is left")?;
        }
        Ok(())
    }
}
