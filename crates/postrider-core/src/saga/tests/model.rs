//! What the transition is compared with: a saga as a row of outcomes, one for each step. It knows no positions, and rules are told of outcomes
//! alone.

use super::*;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ExpectedFate {
    Open,
    Doubtful,
    Done,
    Failed,
    Undone,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Model {
    shape: String,
    begun: bool,
    outcomes: Vec<ExpectedFate>,
    stuck: bool,
}

impl Model {
    pub(super) fn new(shape: &str) -> Self {
        Self {
            shape: shape.to_owned(),
            begun: false,
            outcomes: vec![ExpectedFate::Open; shape.len()],
            stuck: false,
        }
    }

    fn may_fail(&self, step: usize) -> bool {
        self.shape.as_bytes()[step] != b'R'
    }

    /// The one step that can be carried out.
    fn doable(&self) -> Option<usize> {
        let step = self.outcomes.iter().position(|fate| *fate != ExpectedFate::Done)?;
        matches!(self.outcomes[step], ExpectedFate::Open | ExpectedFate::Doubtful).then_some(step)
    }

    /// The one step that can be undone.
    fn undoable(&self) -> Option<usize> {
        self.outcomes
            .contains(&ExpectedFate::Failed)
            .then(|| self.outcomes.iter().rposition(|fate| *fate == ExpectedFate::Done))?
    }

    fn with(&self, step: usize, fate: ExpectedFate) -> Self {
        let mut next = Self { stuck: false, ..self.clone() };
        next.outcomes[step] = fate;
        next
    }

    /// What becomes of it, if anything may.
    pub(super) fn after(&self, entry: &LogEntry) -> Option<Self> {
        if let LogEntry::Begun { .. } = entry {
            return (!self.begun).then(|| Self { begun: true, ..self.clone() });
        }
        let step = entry.step().and_then(|step| usize::try_from(step).ok())?;
        let fate = *self.outcomes.get(step).filter(|_| self.begun)?;
        let (doable, undoable) = (self.doable() == Some(step), self.undoable() == Some(step));
        let fresh = doable && fate == ExpectedFate::Open && !self.stuck;
        match entry {
            LogEntry::Done { .. } if doable => Some(self.with(step, ExpectedFate::Done)),
            LogEntry::Failed { .. } if fresh && self.may_fail(step) => {
                Some(self.with(step, ExpectedFate::Failed))
            }
            LogEntry::Unknown { .. } if fresh && self.may_fail(step) => {
                Some(self.with(step, ExpectedFate::Doubtful))
            }
            LogEntry::Resolved { happened, .. } if fate == ExpectedFate::Doubtful => {
                Some(self.with(step, if *happened { ExpectedFate::Done } else { ExpectedFate::Failed }))
            }
            LogEntry::Undone { .. } if undoable => Some(self.with(step, ExpectedFate::Undone)),
            LogEntry::Stuck { .. } if !self.stuck && (undoable || doable && !self.may_fail(step)) => {
                Some(Self { stuck: true, ..self.clone() })
            }
            LogEntry::Unstuck { .. } if self.stuck && (undoable || doable) => {
                Some(Self { stuck: false, ..self.clone() })
            }
            _ => None,
        }
    }

    /// The state that a saga with these outcomes has to be in.
    pub(super) fn state(&self) -> SagaState {
        let at = |step: usize| u32::try_from(step).unwrap();
        let find = |fate| self.outcomes.iter().position(|each| *each == fate).map(at);
        if !self.begun {
            return SagaState::New;
        }
        if let Some(failed) = find(ExpectedFate::Failed) {
            return match self.undoable().map(at) {
                None => SagaState::Compensated { failed },
                Some(step) if self.stuck => SagaState::StuckBackward { failed, step },
                Some(step) => SagaState::Backward { failed, step },
            };
        }
        match (find(ExpectedFate::Doubtful), find(ExpectedFate::Open)) {
            (Some(step), _) => SagaState::InDoubt { step },
            (None, Some(step)) if self.stuck => SagaState::StuckForward { step },
            (None, Some(step)) => SagaState::Forward { step },
            (None, None) => SagaState::Completed,
        }
    }

    /// All that can be reached, each with everything that any log leading there holds.
    pub(super) fn reachable(shape: &str, entries: &[LogEntry]) -> HashMap<Self, HashSet<LogEntry>> {
        let mut held = HashMap::from([(Self::new(shape), HashSet::new())]);
        let mut open = vec![Self::new(shape)];
        while let Some(model) = open.pop() {
            for entry in entries {
                let Some(next) = model.after(entry) else { continue };
                let mut log = held[&model].clone();
                log.insert(entry.clone());
                let known = held.contains_key(&next);
                let there: &mut HashSet<_> = held.entry(next.clone()).or_default();
                let before = there.len();
                there.extend(log);
                if !known || there.len() > before {
                    open.push(next);
                }
            }
        }
        held
    }
}
