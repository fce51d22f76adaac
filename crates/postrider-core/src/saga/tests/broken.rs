//! Transitions that are wrong. A checker that finds nothing in them proves nothing about the right one.

use super::{walk::walk, *};

fn found(machine: Machine) -> &'static str {
    walk(&plan("CCCPR"), machine).err().map_or("nothing", |(broken, _)| broken)
}

/// The right answer, with the state changed.
fn but(
    plan: &Plan,
    state: &SagaState,
    entry: &LogEntry,
    change: impl FnOnce(SagaState) -> SagaState,
) -> Result<Transition, TransitionError> {
    transition(plan, state, entry).map(|outcome| match outcome {
        Transition::Moved(next) => Transition::Moved(change(next)),
        Transition::Repeated => Transition::Repeated,
    })
}

#[test]
fn compensation_in_forward_order_is_detected() {
    let broken: Machine = |plan, state, entry| match (state, entry) {
        (SagaState::Forward { step: failed @ 1.. }, LogEntry::Failed { .. }) => {
            Ok(Transition::Moved(SagaState::Backward { failed: *failed, step: 0 }))
        }
        (SagaState::Backward { failed, step }, LogEntry::Undone { .. }) if step + 1 < *failed => {
            Ok(Transition::Moved(SagaState::Backward { failed: *failed, step: step + 1 }))
        }
        _ => transition(plan, state, entry),
    };
    assert_eq!(found(broken), "a step is undone before one that came after it");
}

#[test]
fn compensation_while_in_doubt_is_detected() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            SagaState::InDoubt { step: step @ 1.. } => SagaState::Backward { failed: step, step: step - 1 },
            other => other,
        })
    };
    assert_eq!(found(broken), "a call is made in doubt");
}

#[test]
fn doubt_taken_for_success_is_detected() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            SagaState::InDoubt { step } => SagaState::Forward { step: step + 1 },
            other => other,
        })
    };
    assert_eq!(found(broken), "a call is made in doubt");
}

#[test]
fn compensation_of_the_failed_step_is_detected() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            SagaState::Backward { failed, .. } if !matches!(entry, LogEntry::Undone { .. }) => {
                SagaState::Backward { failed: failed + 1, step: failed }
            }
            other => other,
        })
    };
    assert_eq!(found(broken), "a step is undone that is not done");
}

#[test]
fn compensation_behind_the_point_of_no_return_is_detected() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            SagaState::StuckForward { step } => SagaState::Backward { failed: step, step: step - 1 },
            other => other,
        })
    };
    assert_eq!(found(broken), "a step is undone behind the point of no return");
}

#[test]
fn first_step_left_uncompensated_is_detected() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            SagaState::Backward { failed, step: 0 } => SagaState::Compensated { failed },
            other => other,
        })
    };
    assert_eq!(found(broken), "it is compensated, and something is left");
}

#[test]
fn completion_without_the_last_step_is_detected() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            SagaState::Forward { step: 4 } => SagaState::Completed,
            other => other,
        })
    };
    assert_eq!(found(broken), "it is completed, and not all is done");
}

#[test]
fn rejected_repetition_is_detected() {
    let broken: Machine = |plan, state, entry| match transition(plan, state, entry) {
        Ok(Transition::Repeated) => Err(TransitionError::Illegal { state: *state, entry: entry.clone() }),
        other => other,
    };
    assert_eq!(found(broken), "a repetition is not recognised");
}

#[test]
fn correct_transition_passes_the_same_check() {
    assert_eq!(found(transition), "nothing");
}
