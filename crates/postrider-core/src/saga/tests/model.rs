//! What the transition is compared with: a saga as a row of fates, one for each step. It knows no positions, and rules are told of fates
//! alone.

use super::*;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Fate {
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
    fates: Vec<Fate>,
    stuck: bool,
}

impl Model {
    pub(super) fn new(shape: &str) -> Self {
        Self { shape: shape.to_owned(), begun: false, fates: vec![Fate::Open; shape.len()], stuck: false }
    }

    fn may_fail(&self, step: usize) -> bool {
        self.shape.as_bytes()[step] != b'R'
    }

    /// The one step that can be carried out.
    fn doable(&self) -> Option<usize> {
        let step = self.fates.iter().position(|fate| *fate != Fate::Done)?;
        matches!(self.fates[step], Fate::Open | Fate::Doubtful).then_some(step)
    }

    /// The one step that can be undone.
    fn undoable(&self) -> Option<usize> {
        self.fates.contains(&Fate::Failed).then(|| self.fates.iter().rposition(|fate| *fate == Fate::Done))?
    }

    fn with(&self, step: usize, fate: Fate) -> Self {
        let mut next = Self { stuck: false, ..self.clone() };
        next.fates[step] = fate;
        next
    }

    /// What becomes of it, if anything may.
    pub(super) fn after(&self, entry: &Entry) -> Option<Self> {
        if let Entry::Begun { .. } = entry {
            return (!self.begun).then(|| Self { begun: true, ..self.clone() });
        }
        let step = entry.step().and_then(|step| usize::try_from(step).ok())?;
        let fate = *self.fates.get(step).filter(|_| self.begun)?;
        let (doable, undoable) = (self.doable() == Some(step), self.undoable() == Some(step));
        let fresh = doable && fate == Fate::Open && !self.stuck;
        match entry {
            Entry::Done { .. } if doable => Some(self.with(step, Fate::Done)),
            Entry::Failed { .. } if fresh && self.may_fail(step) => Some(self.with(step, Fate::Failed)),
            Entry::Unknown { .. } if fresh && self.may_fail(step) => Some(self.with(step, Fate::Doubtful)),
            Entry::Resolved { happened, .. } if fate == Fate::Doubtful => {
                Some(self.with(step, if *happened { Fate::Done } else { Fate::Failed }))
            }
            Entry::Undone { .. } if undoable => Some(self.with(step, Fate::Undone)),
            Entry::Stuck { .. } if !self.stuck && (undoable || doable && !self.may_fail(step)) => {
                Some(Self { stuck: true, ..self.clone() })
            }
            Entry::Unstuck { .. } if self.stuck && (undoable || doable) => {
                Some(Self { stuck: false, ..self.clone() })
            }
            _ => None,
        }
    }

    /// The state that a saga with these fates has to be in.
    pub(super) fn state(&self) -> State {
        let at = |step: usize| u32::try_from(step).unwrap();
        let find = |fate| self.fates.iter().position(|each| *each == fate).map(at);
        if !self.begun {
            return State::New;
        }
        if let Some(failed) = find(Fate::Failed) {
            return match self.undoable().map(at) {
                None => State::Compensated { failed },
                Some(step) if self.stuck => State::StuckBackward { failed, step },
                Some(step) => State::Backward { failed, step },
            };
        }
        match (find(Fate::Doubtful), find(Fate::Open)) {
            (Some(step), _) => State::InDoubt { step },
            (None, Some(step)) if self.stuck => State::StuckForward { step },
            (None, Some(step)) => State::Forward { step },
            (None, None) => State::Completed,
        }
    }

    /// All that can be reached, each with everything that any log leading there holds.
    pub(super) fn reachable(shape: &str, entries: &[Entry]) -> HashMap<Self, HashSet<Entry>> {
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
