//! Random reports about plans of any size, true or not.

use super::{facts::Facts, *};
use proptest::{prelude::*, sample::Index};

fn any_shape() -> impl Strategy<Value = String> {
    (0..8_usize, 0..=1_usize, 0..8_usize)
        .prop_map(|(c, p, r)| "C".repeat(c) + &"P".repeat(p) + &"R".repeat(r))
        .prop_filter("a plan has a step", |shape| !shape.is_empty())
}

/// Mostly about the step at which the saga stands, so that it gets somewhere.
fn report(plan: &Plan, state: SagaState, here: bool, which: &Index, step: &Index) -> LogEntry {
    match state.step() {
        Some(step) if here => which.get(&about(step)).clone(),
        _ => {
            let step = step.index(plan.steps().len() + 1);
            let mut entries = about(u32::try_from(step).unwrap()).to_vec();
            entries.push(plan.begun());
            which.get(&entries).clone()
        }
    }
}

proptest! {
    #[test]
    fn no_sequence_of_reports_breaks_a_promise(
        shape in any_shape(),
        reports in prop::collection::vec((prop::bool::weighted(0.8), any::<Index>(), any::<Index>()), 0..150),
    ) {
        let plan = plan(&shape);
        let (mut state, mut facts, mut log) = (SagaState::New, Facts::default(), Vec::new());
        for (here, which, step) in &reports {
            let entry = report(&plan, state, *here, which, step);
            match transition(&plan, &state, &entry) {
                Ok(Transition::Moved(next)) => {
                    prop_assert!(!state.is_over(), "{state:?} was left by {entry:?}");
                    prop_assert!(next.fits(&plan));
                    state = next;
                    facts.note(&entry);
                    log.push(entry);
                }
                Ok(Transition::Repeated) => log.push(entry),
                Err(refused) => {
                    let is_illegal = matches!(refused, TransitionError::Illegal { .. });
                    prop_assert!(is_illegal, "{refused}");
                }
            }
            prop_assert_eq!(facts.check(&plan, state), Ok(()));
        }
        prop_assert_eq!(replay(&plan, &log), Ok(state));
    }
}
