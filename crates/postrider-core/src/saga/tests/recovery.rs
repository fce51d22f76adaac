//! Recovery is replay.

use super::{facts::Facts, *};
use std::collections::HashSet;

/// Visits every log in which nothing is said twice, and so every prefix of each. `open` is the call that was asked for and not answered.
fn every_log(plan: &Plan, visit: &mut impl FnMut(&[LogEntry], SagaState, Option<Command>)) {
    fn grow(
        plan: &Plan,
        log: &mut Vec<LogEntry>,
        (state, open): (SagaState, Option<Command>),
        visit: &mut impl FnMut(&[LogEntry], SagaState, Option<Command>),
    ) {
        visit(log, state, open);
        let news = std::iter::once(plan.begun()).chain(state.step().into_iter().flat_map(about));
        for entry in news {
            let Ok(Transition::Moved(next)) = transition(plan, &state, &entry) else { continue };
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
    grow(plan, &mut Vec::new(), (SagaState::New, None), visit);
}

#[test]
fn replay_of_every_log_prefix_restores_the_state() {
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
fn call_is_pending_once_unless_requeued() {
    let plan = plan("CCP");
    every_log(&plan, &mut |log, _, _| {
        let mut calls = HashSet::new();
        for end in 1..=log.len() {
            let state = replay(&plan, &log[..end]).unwrap();
            if !matches!(log[end - 1], LogEntry::Unstuck { .. }) {
                assert!(state.pending().is_none_or(|call| calls.insert(call)), "{log:?}");
            }
        }
    });
}

#[test]
fn replay_of_another_plans_log_is_rejected() {
    let log = [plan("CCP").begun(), LogEntry::Done { step: 0 }];
    let error = replay(&plan("CPR"), &log).unwrap_err();
    assert_eq!(error.position, 1);
    assert!(matches!(error.refused, TransitionError::OtherPlan { .. }));
    insta::assert_snapshot!(error, @r#"entry 1 of the saga log is impossible: the saga was started under the plan "plan-CCP" (b895571c-5fe0-5ffc-906b-705b3f5163f1), and this is "plan-CPR" (076cf3ee-8114-5d7d-9e18-2eeb64abf101): run it with that plan, and give a plan with changed steps another name"#);
}

#[test]
fn replay_compares_plan_name_and_steps() {
    let plan = plan("CCP");
    let LogEntry::Begun { plan: name, fingerprint } = plan.begun() else { unreachable!() };
    let other = super::plan("CPR").fingerprint();
    for begun in [
        LogEntry::Begun { plan: "another".to_owned(), fingerprint },
        LogEntry::Begun { plan: name, fingerprint: other },
    ] {
        let refused = transition(&plan, &SagaState::New, &begun);
        assert!(matches!(refused, Err(TransitionError::OtherPlan { .. })), "{begun}");
    }
}

#[test]
fn replay_of_an_impossible_log_names_the_first_bad_entry() {
    let plan = plan("CCP");
    let log = [plan.begun(), LogEntry::Done { step: 0 }, LogEntry::Undone { step: 0 }];
    let error = replay(&plan, &log).unwrap_err();
    assert_eq!(error.position, 3);
    insta::assert_snapshot!(error, @r#"entry 3 of the saga log is impossible: "step 0 undone" is rejected: it contradicts the state of the saga (going forward at step 1) or is out of order; the saga needs manual intervention"#);
    assert_eq!(replay(&plan, &[LogEntry::Done { step: 0 }]).unwrap_err().position, 1, "it was never begun");
}
