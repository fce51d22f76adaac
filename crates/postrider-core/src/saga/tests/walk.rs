//! A walk through everything that can happen between a runner and the world: each call succeeds, fails, is lost after it had its effect, ends in
//! doubt with and without an effect, is made twice, is given up, is put back, is done by hand.

use super::{facts::Facts, *};
use std::collections::{HashSet, VecDeque};

/// What is really so, whether or not anybody knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct World {
    /// Steps that had their effect, and those whose effect was taken away.
    done: Vec<u32>,
    undone: Vec<u32>,
}

impl World {
    fn perform(&self, step: u32) -> Self {
        let mut world = self.clone();
        if !world.done.contains(&step) {
            world.done.push(step);
        }
        world
    }

    fn undo(&self, step: u32) -> Self {
        let mut world = self.clone();
        if !world.undone.contains(&step) {
            world.undone.push(step);
        }
        world
    }

    fn check(&self, plan: &Plan, state: SagaState) -> Result<(), &'static str> {
        let rule = |holds: bool, broken: &'static str| if holds { Ok(()) } else { Err(broken) };
        let reversed = self.done.iter().rev().take(self.undone.len()).eq(&self.undone);
        rule(self.undone.iter().all(|step| self.done.contains(step)), "an effect was undone that never was")?;
        rule(reversed, "effects were not undone in reverse")?;
        match state {
            SagaState::Completed => {
                rule(
                    self.done.iter().copied().eq(0..plan.len()),
                    "it is completed, and effects are missing",
                )?;
                rule(self.undone.is_empty(), "it is completed, and effects were undone")
            }
            SagaState::Compensated { .. } => {
                rule(self.done.iter().rev().eq(&self.undone), "it is compensated, and effects are left")
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Here {
    state: SagaState,
    facts: Facts,
    world: World,
}

/// What can happen next in the world, and what a truthful runner or operator writes down of it, if it gets to.
fn happenings(plan: &Plan, Here { state, world, .. }: &Here) -> Vec<(World, Option<LogEntry>)> {
    let error = || "timeout".to_owned();
    let may_fail = |step: u32| step < plan.point_of_no_return();
    match *state {
        SagaState::New => vec![(world.clone(), Some(plan.begun()))],
        SagaState::Forward { step } => {
            let had_effect = world.done.contains(&step);
            let done = world.perform(step);
            // It had its effect, and was recorded; or the runner crashed before that, and it is called again.
            let mut all = vec![(done.clone(), Some(LogEntry::Done { step })), (done.clone(), None)];
            if may_fail(step) {
                all.push((done, Some(LogEntry::Unknown { step, error: error() })));
                all.push((world.clone(), Some(LogEntry::Unknown { step, error: error() })));
                if !had_effect {
                    all.push((world.clone(), Some(LogEntry::Failed { step, error: error() })));
                }
            } else {
                all.push((done, Some(LogEntry::Stuck { step, error: error() })));
                all.push((world.clone(), Some(LogEntry::Stuck { step, error: error() })));
            }
            all
        }
        SagaState::InDoubt { step } => {
            let happened = world.done.contains(&step);
            let mut all = vec![(world.clone(), Some(LogEntry::Resolved { step, happened }))];
            // It is called again under its identity, and succeeds; the answer may be lost.
            all.push((world.perform(step), Some(LogEntry::Done { step })));
            all.push((world.perform(step), Some(LogEntry::Unknown { step, error: error() })));
            all
        }
        SagaState::StuckForward { step } => {
            vec![
                (world.clone(), Some(LogEntry::Unstuck { step })),
                (world.perform(step), Some(LogEntry::Done { step })),
            ]
        }
        SagaState::Backward { step, .. } => vec![
            (world.undo(step), Some(LogEntry::Undone { step })),
            (world.undo(step), None),
            (world.undo(step), Some(LogEntry::Stuck { step, error: error() })),
            (world.clone(), Some(LogEntry::Stuck { step, error: error() })),
        ],
        SagaState::StuckBackward { step, .. } => {
            vec![
                (world.clone(), Some(LogEntry::Unstuck { step })),
                (world.undo(step), Some(LogEntry::Undone { step })),
            ]
        }
        SagaState::Completed | SagaState::Compensated { .. } => Vec::new(),
    }
}

pub(super) struct Walked {
    pub(super) places: usize,
    pub(super) ends: HashSet<SagaState>,
}

/// Walks to every place that can be reached, and checks everything at each.
///
/// # Errors
/// What does not hold, and the log that led there.
pub(super) fn walk(plan: &Plan, machine: Machine) -> Result<Walked, (&'static str, Vec<LogEntry>)> {
    let start = Here { state: SagaState::New, facts: Facts::default(), world: World::default() };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = VecDeque::from([(start, Vec::new())]);
    let mut ends = HashSet::new();
    while let Some((here, log)) = open.pop_front() {
        let fault = |broken| (broken, log.clone());
        here.facts.check(plan, here.state).map_err(fault)?;
        here.world.check(plan, here.state).map_err(fault)?;
        let mut state = SagaState::New;
        for entry in &log {
            // A late repetition of a known entry changes nothing, except that a requeued call can be abandoned once more.
            match machine(plan, &here.state, entry) {
                Ok(Transition::Repeated) => {}
                Ok(Transition::Moved(_))
                    if matches!(entry, LogEntry::Stuck { .. } | LogEntry::Unstuck { .. }) => {}
                _ => return Err(fault("a repetition is not recognised")),
            }
            match machine(plan, &state, entry) {
                Ok(Transition::Moved(next)) => state = next,
                _ => return Err(fault("its own log is refused")),
            }
        }
        if state != here.state {
            return Err(fault("its log leads elsewhere"));
        }
        let happenings = happenings(plan, &here);
        if happenings.is_empty() {
            ends.insert(here.state);
        }
        for (world, entry) in happenings {
            let mut next = Here { world, ..here.clone() };
            let mut log = log.clone();
            if let Some(entry) = entry {
                match machine(plan, &here.state, &entry) {
                    Ok(Transition::Moved(state)) => {
                        next.state = state;
                        next.facts.note(&entry);
                        log.push(entry);
                    }
                    Ok(Transition::Repeated) => {}
                    Err(_) => return Err(("the truth is refused", log)),
                }
            }
            if seen.insert(next.clone()) {
                open.push_back((next, log));
            }
        }
    }
    Ok(Walked { places: seen.len(), ends })
}

#[test]
fn invariants_hold_on_every_walk() {
    for shape in (1..=5).flat_map(shapes) {
        let plan = plan(&shape);
        let walked = walk(&plan, transition).unwrap_or_else(|fault| panic!("{shape}: {fault:#?}"));
        let turns = (0..plan.point_of_no_return()).map(|failed| SagaState::Compensated { failed });
        assert_eq!(
            walked.ends,
            turns.chain([SagaState::Completed]).collect(),
            "{shape}: every end is reached"
        );
        assert!(walked.places > shape.len(), "{shape}");
    }
}

#[test]
fn every_state_can_reach_an_end() {
    for shape in (1..=5).flat_map(shapes) {
        let plan = plan(&shape);
        let entries = entries(&plan);
        let states = model::Model::reachable(&shape, &entries);
        let mut ending: HashSet<SagaState> =
            states.keys().map(model::Model::state).filter(|state| state.is_over()).collect();
        let moves = |state: SagaState| {
            let plan = &plan;
            entries.iter().filter_map(move |entry| match transition(plan, &state, entry) {
                Ok(Transition::Moved(next)) => Some(next),
                _ => None,
            })
        };
        for end in &ending {
            assert_eq!(moves(*end).next(), None, "{shape}: nothing leaves {end:?}");
        }
        while let Some(state) = states
            .keys()
            .map(model::Model::state)
            .find(|state| !ending.contains(state) && moves(*state).any(|next| ending.contains(&next)))
        {
            ending.insert(state);
        }
        assert_eq!(ending.len(), states.len(), "{shape}");
    }
}
