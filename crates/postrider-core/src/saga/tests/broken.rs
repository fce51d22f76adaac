//! Transitions that are wrong. A checker that finds nothing in them proves nothing about the right one.

use super::{walk::walk, *};

fn found(machine: Machine) -> &'static str {
    walk(&plan("CCCPR"), machine).err().map_or("nothing", |(broken, _)| broken)
}

/// The right answer, with the state changed.
fn but(
    plan: &Plan,
    state: &State,
    entry: &Entry,
    change: impl FnOnce(State) -> State,
) -> Result<Outcome, Refused> {
    transition(plan, state, entry).map(|outcome| match outcome {
        Outcome::Moved(next) => Outcome::Moved(change(next)),
        Outcome::Repeated => Outcome::Repeated,
    })
}

#[test]
fn undoing_in_the_order_of_doing_is_found() {
    let broken: Machine = |plan, state, entry| match (state, entry) {
        (State::Forward { step: failed @ 1.. }, Entry::Failed { .. }) => {
            Ok(Outcome::Moved(State::Backward { failed: *failed, step: 0 }))
        }
        (State::Backward { failed, step }, Entry::Undone { .. }) if step + 1 < *failed => {
            Ok(Outcome::Moved(State::Backward { failed: *failed, step: step + 1 }))
        }
        _ => transition(plan, state, entry),
    };
    assert_eq!(found(broken), "a step is undone before one that came after it");
}

#[test]
fn compensating_in_doubt_is_found() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            State::InDoubt { step: step @ 1.. } => State::Backward { failed: step, step: step - 1 },
            other => other,
        })
    };
    assert_eq!(found(broken), "a call is made in doubt");
}

#[test]
fn taking_doubt_for_success_is_found() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            State::InDoubt { step } => State::Forward { step: step + 1 },
            other => other,
        })
    };
    assert_eq!(found(broken), "a call is made in doubt");
}

#[test]
fn undoing_what_failed_is_found() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            State::Backward { failed, .. } if !matches!(entry, Entry::Undone { .. }) => {
                State::Backward { failed: failed + 1, step: failed }
            }
            other => other,
        })
    };
    assert_eq!(found(broken), "a step is undone that is not done");
}

#[test]
fn compensating_behind_the_point_of_no_return_is_found() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            State::StuckForward { step } => State::Backward { failed: step, step: step - 1 },
            other => other,
        })
    };
    assert_eq!(found(broken), "a step is undone behind the point of no return");
}

#[test]
fn leaving_the_first_step_as_it_is_is_found() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            State::Backward { failed, step: 0 } => State::Compensated { failed },
            other => other,
        })
    };
    assert_eq!(found(broken), "it is compensated, and something is left");
}

#[test]
fn completing_without_the_last_step_is_found() {
    let broken: Machine = |plan, state, entry| {
        but(plan, state, entry, |next| match next {
            State::Forward { step: 4 } => State::Completed,
            other => other,
        })
    };
    assert_eq!(found(broken), "it is completed, and not all is done");
}

#[test]
fn refusing_a_repetition_is_found() {
    let broken: Machine = |plan, state, entry| match transition(plan, state, entry) {
        Ok(Outcome::Repeated) => Err(Refused::Illegal { state: *state, entry: entry.clone() }),
        other => other,
    };
    assert_eq!(found(broken), "a repetition is not recognised");
}

#[test]
fn the_right_one_passes_the_same_check() {
    assert_eq!(found(transition), "nothing");
}
