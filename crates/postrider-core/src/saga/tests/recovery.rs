//! Recovery is replay.

use super::{facts::Facts, *};
use std::collections::HashSet;

/// Visits every log in which nothing is said twice, and so every prefix of each. `open` is the call that was asked for and not answered.
fn every_log(plan: &Plan, visit: &mut impl FnMut(&[Entry], State, Option<Command>)) {
    fn grow(
        plan: &Plan,
        log: &mut Vec<Entry>,
        (state, open): (State, Option<Command>),
        visit: &mut impl FnMut(&[Entry], State, Option<Command>),
    ) {
        visit(log, state, open);
        let news = std::iter::once(plan.begun()).chain(state.step().into_iter().flat_map(about));
        for entry in news {
            let Ok(Outcome::Moved(next)) = transition(plan, &state, &entry) else { continue };
            if log.contains(&entry) {
                continue;
            }
            let unanswered = open.filter(|call| Some(call.step) != entry.step());
            assert_eq!(unanswered, None, "two calls at a time: {log:?} and {entry:?}");
            log.push(entry);
            grow(plan, log, (next, next.pending()), visit);
            log.pop();
        }
    }
    grow(plan, &mut Vec::new(), (State::New, None), visit);
}

#[test]
fn every_prefix_of_every_log_leads_to_where_the_saga_was() {
    let mut logs = 0;
    for shape in shapes(5) {
        let plan = plan(&shape);
        every_log(&plan, &mut |log, state, open| {
            logs += 1;
            assert_eq!(replay(&plan, log), Ok(state), "{shape}: {log:?}");
            assert_eq!(state.pending(), open, "{shape}: {log:?}");
            let twice = log.iter().flat_map(|entry| [entry, entry]);
            assert_eq!(replay(&plan, twice), Ok(state), "{shape}: each said twice: {log:?}");
            let mut facts = Facts::default();
            log.iter().for_each(|entry| facts.note(entry));
            assert_eq!(facts.check(&plan, state), Ok(()), "{shape}: {log:?}");
        });
    }
    assert!(logs > 10_000, "{logs}");
}

#[test]
fn no_call_is_asked_for_twice_unless_it_was_put_back() {
    let plan = plan("CCP");
    every_log(&plan, &mut |log, _, _| {
        let mut calls = HashSet::new();
        for end in 1..=log.len() {
            let state = replay(&plan, &log[..end]).unwrap();
            if !matches!(log[end - 1], Entry::Unstuck { .. }) {
                assert!(state.pending().is_none_or(|call| calls.insert(call)), "{log:?}");
            }
        }
    });
}

#[test]
fn a_log_of_another_plan_is_refused() {
    let log = [plan("CCP").begun(), Entry::Done { step: 0 }];
    let error = replay(&plan("CPR"), &log).unwrap_err();
    assert_eq!(error.position, 1);
    assert!(matches!(error.refused, Refused::OtherPlan { .. }));
    insta::assert_snapshot!(error, @r#"entry 1 of the saga's log cannot be: the saga was begun under the plan "plan-CCP" (b895571c-5fe0-5ffc-906b-705b3f5163f1), and this is "plan-CPR" (076cf3ee-8114-5d7d-9e18-2eeb64abf101): run it with the plan under which it was begun, and give a plan whose steps change another name"#);
}

#[test]
fn a_plan_is_told_by_its_name_and_by_its_steps() {
    let plan = plan("CCP");
    let Entry::Begun { plan: name, fingerprint } = plan.begun() else { unreachable!() };
    let other = super::plan("CPR").fingerprint();
    for begun in [
        Entry::Begun { plan: "another".to_owned(), fingerprint },
        Entry::Begun { plan: name, fingerprint: other },
    ] {
        let refused = transition(&plan, &State::New, &begun);
        assert!(matches!(refused, Err(Refused::OtherPlan { .. })), "{begun}");
    }
}

#[test]
fn a_log_that_cannot_be_is_refused_where_it_breaks() {
    let plan = plan("CCP");
    let log = [plan.begun(), Entry::Done { step: 0 }, Entry::Undone { step: 0 }];
    let error = replay(&plan, &log).unwrap_err();
    assert_eq!(error.position, 3);
    insta::assert_snapshot!(error, @r#"entry 3 of the saga's log cannot be: "step 0 undone" is refused: the saga is going forward at step 1, which this contradicts, or it comes out of turn; somebody has to look at what happened"#);
    assert_eq!(replay(&plan, &[Entry::Done { step: 0 }]).unwrap_err().position, 1, "it was never begun");
}
