//! Plans of every shape, everything that can be said of them, and the tests that go through it.

mod broken;
mod call;
mod exhaustive;
mod facts;
mod model;
mod plan;
mod random;
mod recovery;
mod walk;
mod wire;

use super::*;

/// `C` is compensatable, `P` the pivot, `R` retryable.
fn plan(shape: &str) -> Plan {
    let mut plan = Plan::builder(format!("plan-{shape}"));
    for (index, kind) in shape.chars().enumerate() {
        let (name, call) = (format!("step-{index}"), StepCall::to(format!("resolver-{index}"), "do-it"));
        plan = match kind {
            'C' => plan.compensatable(name, call.undone_by("undo-it")),
            'P' => plan.pivot(name, call),
            _ => plan.retryable(name, call),
        };
    }
    plan.build().unwrap()
}

/// Every shape of a plan with this number of steps.
fn shapes(steps: usize) -> Vec<String> {
    let mut shapes = Vec::new();
    for pivots in 0..=steps.min(1) {
        for compensatable in 0..=steps - pivots {
            let retryable = steps - pivots - compensatable;
            shapes.push("C".repeat(compensatable) + &"P".repeat(pivots) + &"R".repeat(retryable));
        }
    }
    shapes
}

/// Indexes of all steps, of two that are not there, and of one that would overflow.
fn steps_and_beyond(plan: &Plan) -> impl Iterator<Item = u32> + Clone {
    (0..plan.len() + 2).chain([u32::MAX])
}

/// Everything that can be said of one step.
fn about(step: u32) -> [LogEntry; 8] {
    let error = || "timeout".to_owned();
    [
        LogEntry::Done { step },
        LogEntry::Failed { step, error: error() },
        LogEntry::Unknown { step, error: error() },
        LogEntry::Resolved { step, happened: true },
        LogEntry::Resolved { step, happened: false },
        LogEntry::Undone { step },
        LogEntry::Stuck { step, error: error() },
        LogEntry::Unstuck { step },
    ]
}

/// Everything that can be said of a saga of this plan, and of steps that it does not have.
fn entries(plan: &Plan) -> Vec<LogEntry> {
    std::iter::once(plan.begun()).chain(steps_and_beyond(plan).flat_map(about)).collect()
}

type Machine = fn(&Plan, &SagaState, &LogEntry) -> Result<Transition, TransitionError>;
