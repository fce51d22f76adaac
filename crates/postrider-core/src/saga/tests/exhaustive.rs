//! Every state, every entry, every plan of up to five steps.

use super::{model::Model, *};
use std::collections::HashMap;

/// Every state that can be written down, whether or not it makes sense.
fn states(plan: &Plan) -> Vec<SagaState> {
    let mut states = vec![SagaState::New, SagaState::Completed];
    for step in steps_and_beyond(plan) {
        states.extend([
            SagaState::Forward { step },
            SagaState::InDoubt { step },
            SagaState::StuckForward { step },
        ]);
        states.push(SagaState::Compensated { failed: step });
        for failed in steps_and_beyond(plan) {
            states.extend([SagaState::Backward { failed, step }, SagaState::StuckBackward { failed, step }]);
        }
    }
    states
}

#[test]
fn transition_matches_the_model_for_all_plans_up_to_five_steps() {
    let (mut moved, mut repeated, mut refused) = (0, 0, 0);
    for shape in (1..=5).flat_map(shapes) {
        let (plan, other) = (plan(&shape), plan("CCCCCC"));
        let entries = entries(&plan);
        let reachable = Model::reachable(&shape, &entries);
        let models: HashMap<_, _> =
            reachable.iter().map(|(model, held)| (model.state(), (model, held))).collect();
        assert_eq!(models.len(), reachable.len(), "{shape}: each row of outcomes has a state of its own");
        for state in states(&plan) {
            let known = models.get(&state);
            assert_eq!(state.fits(&plan), known.is_some(), "{shape}: {state:?}");
            for entry in &entries {
                let says = transition(&plan, &state, entry);
                let expected = known.and_then(|(model, held)| {
                    let next = model.after(entry).map(|next| Transition::Moved(next.state()));
                    next.or_else(|| held.contains(entry).then_some(Transition::Repeated))
                });
                match expected {
                    Some(Transition::Moved(_)) => moved += 1,
                    Some(Transition::Repeated) => repeated += 1,
                    None => refused += 1,
                }
                let illegal = || TransitionError::Illegal { state, entry: entry.clone() };
                assert_eq!(says, expected.ok_or_else(illegal), "{shape}: {state:?} and {entry:?}");
            }
            let says = transition(&plan, &state, &other.begun());
            assert!(matches!(says, Err(TransitionError::OtherPlan { .. })), "{shape}: {state:?}");
        }
    }
    // So that pairs that are no longer asked about are missed.
    assert_eq!((moved, repeated, refused), (955, 4_556, 229_307));
}

#[test]
fn transition_table_of_two_steps_and_a_pivot() {
    let plan = plan("CP");
    let mut states: Vec<_> = states(&plan).into_iter().filter(|state| state.fits(&plan)).collect();
    states.sort();
    let mut table = String::new();
    for state in states {
        table += &format!("{state:?}\n");
        for entry in std::iter::once(plan.begun()).chain((0..2).flat_map(about)) {
            let says = match transition(&plan, &state, &entry) {
                Ok(Transition::Moved(next)) => format!("{next:?}"),
                Ok(Transition::Repeated) => "(repeated)".to_owned(),
                Err(_) => continue,
            };
            let entry = if entry == plan.begun() { "begun".to_owned() } else { entry.to_string() };
            table += &format!("    {entry:36} {says}\n");
        }
    }
    insta::assert_snapshot!(table, @"
    New
        begun                                Forward { step: 0 }
    Forward { step: 0 }
        begun                                (repeated)
        step 0 done                          Forward { step: 1 }
        step 0 failed (timeout)              Compensated { failed: 0 }
        step 0 unknown (timeout)             InDoubt { step: 0 }
    Forward { step: 1 }
        begun                                (repeated)
        step 0 done                          (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         (repeated)
        step 1 done                          Completed
        step 1 failed (timeout)              Backward { failed: 1, step: 0 }
        step 1 unknown (timeout)             InDoubt { step: 1 }
    InDoubt { step: 0 }
        begun                                (repeated)
        step 0 done                          Forward { step: 1 }
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         Forward { step: 1 }
        step 0 resolved: it did not happen   Compensated { failed: 0 }
    InDoubt { step: 1 }
        begun                                (repeated)
        step 0 done                          (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         (repeated)
        step 1 done                          Completed
        step 1 unknown (timeout)             (repeated)
        step 1 resolved: it happened         Completed
        step 1 resolved: it did not happen   Backward { failed: 1, step: 0 }
    Backward { failed: 1, step: 0 }
        begun                                (repeated)
        step 0 done                          (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         (repeated)
        step 0 undone                        Compensated { failed: 1 }
        step 0 stuck (timeout)               StuckBackward { failed: 1, step: 0 }
        step 0 unstuck                       (repeated)
        step 1 failed (timeout)              (repeated)
        step 1 unknown (timeout)             (repeated)
        step 1 resolved: it did not happen   (repeated)
    StuckBackward { failed: 1, step: 0 }
        begun                                (repeated)
        step 0 done                          (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         (repeated)
        step 0 undone                        Compensated { failed: 1 }
        step 0 stuck (timeout)               (repeated)
        step 0 unstuck                       Backward { failed: 1, step: 0 }
        step 1 failed (timeout)              (repeated)
        step 1 unknown (timeout)             (repeated)
        step 1 resolved: it did not happen   (repeated)
    Completed
        begun                                (repeated)
        step 0 done                          (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         (repeated)
        step 1 done                          (repeated)
        step 1 unknown (timeout)             (repeated)
        step 1 resolved: it happened         (repeated)
    Compensated { failed: 0 }
        begun                                (repeated)
        step 0 failed (timeout)              (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it did not happen   (repeated)
    Compensated { failed: 1 }
        begun                                (repeated)
        step 0 done                          (repeated)
        step 0 unknown (timeout)             (repeated)
        step 0 resolved: it happened         (repeated)
        step 0 undone                        (repeated)
        step 0 stuck (timeout)               (repeated)
        step 0 unstuck                       (repeated)
        step 1 failed (timeout)              (repeated)
        step 1 unknown (timeout)             (repeated)
        step 1 resolved: it did not happen   (repeated)
    ");
}

#[test]
fn saga_state_has_a_name() {
    let plan = plan("CCPR");
    let shown: Vec<_> = [
        SagaState::New,
        SagaState::Forward { step: 0 },
        SagaState::InDoubt { step: 1 },
        SagaState::StuckForward { step: 3 },
        SagaState::Backward { failed: 2, step: 1 },
        SagaState::StuckBackward { failed: 2, step: 0 },
        SagaState::Completed,
        SagaState::Compensated { failed: 2 },
    ]
    .into_iter()
    .inspect(|state| assert!(state.fits(&plan)))
    .map(|state| {
        let pending = state.pending().map_or("-".to_owned(), |command| command.to_string());
        format!("{:15} {pending:12} {state}", state.as_str())
    })
    .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    new             -            new
    forward         do step 0    going forward at step 0
    in_doubt        -            in doubt about step 1
    stuck_forward   -            stuck at step 3
    backward        undo step 1  compensating step 1 because step 2 failed
    stuck_backward  -            stuck compensating step 0 because step 2 failed
    completed       -            completed
    compensated     -            compensated because step 2 failed
    ");
}
