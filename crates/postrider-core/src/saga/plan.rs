//! Saga plans.

use super::{Command, CommandKind, LogEntry, Step, StepCall, StepKind, Undoable};
use crate::{
    EventType, Invalid, Problem, ResolverName,
    limits::{self, Charset},
};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, fmt, sync::Arc};
use uuid::Uuid;

/// The steps allowed in a plan.
pub const MOST_STEPS: usize = 100;

/// A saga plan: compensatable steps, then at most one pivot, then retryable steps.
///
/// ```
/// # use postrider_core::saga::{StepCall, Plan};
/// let plan = Plan::builder("book-trip")
///     .compensatable("flight", StepCall::to("airline", "reserve").undone_by("cancel"))
///     .compensatable("room", StepCall::to("hotel", "reserve").undone_by("cancel"))
///     .pivot("payment", StepCall::to("bank", "charge"))
///     .retryable("tickets", StepCall::to("mailer", "send"))
///     .build()?;
/// assert_eq!(plan.point_of_no_return(), 3);
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    name: Arc<str>,
    steps: Arc<[Step]>,
    // Both follow from the steps; every transition needs them.
    point_of_no_return: u32,
    fingerprint: Fingerprint,
}

impl Plan {
    /// A plan of this name. The log of every saga of the plan has the name.
    pub fn builder(name: impl Into<String>) -> PlanBuilder {
        PlanBuilder { name: name.into(), steps: Vec::new() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its steps, in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// One of its steps, from 0.
    pub fn step(&self, step: u32) -> Option<&Step> {
        self.steps.get(usize::try_from(step).ok()?)
    }

    /// The number of steps: 1 to [`MOST_STEPS`].
    pub fn len(&self) -> u32 {
        as_step(self.steps.len())
    }

    /// Always false: a plan has at least one step.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The number of steps that must succeed before the saga can only go forward: all steps that are not retryable.
    pub fn point_of_no_return(&self) -> u32 {
        self.point_of_no_return
    }

    /// The fingerprint of its steps.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The first log entry of a saga of this plan.
    pub fn begun(&self) -> LogEntry {
        LogEntry::Begun { plan: self.name.to_string(), fingerprint: self.fingerprint }
    }

    /// The resolver and the operation of a command; `None` for an unknown step, or one without compensation.
    pub fn call(&self, command: Command) -> Option<(&ResolverName, &EventType)> {
        let step = self.step(command.step)?;
        let operation = match (command.act, step.kind()) {
            (CommandKind::Do, _) => step.operation(),
            (CommandKind::Undo, StepKind::Compensatable { undo }) => undo,
            (CommandKind::Undo, StepKind::Pivot | StepKind::Retryable) => return None,
        };
        Some((step.resolver(), operation))
    }
}

/// Never saturates: [`MOST_STEPS`] is far below.
fn as_step(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Builds a plan, step by step, in the order of execution.
#[derive(Debug, Clone)]
#[must_use]
pub struct PlanBuilder {
    name: String,
    steps: Vec<Result<Step, Invalid>>,
}

impl PlanBuilder {
    /// Adds a step with a compensation.
    pub fn compensatable(self, name: impl AsRef<str>, Undoable { call, undo }: Undoable) -> Self {
        self.declare(name.as_ref(), call, EventType::new(undo).map(|undo| StepKind::Compensatable { undo }))
    }

    /// Adds the pivot: once it has succeeded the saga can only go forward.
    pub fn pivot(self, name: impl AsRef<str>, call: StepCall) -> Self {
        self.declare(name.as_ref(), call, Ok(StepKind::Pivot))
    }

    /// Adds a step that is retried until it succeeds.
    pub fn retryable(self, name: impl AsRef<str>, call: StepCall) -> Self {
        self.declare(name.as_ref(), call, Ok(StepKind::Retryable))
    }

    fn declare(mut self, name: &str, call: StepCall, kind: Result<StepKind, Invalid>) -> Self {
        self.steps.push(Step::new(name, call, kind));
        self
    }

    /// Validates and builds the plan.
    ///
    /// # Errors
    /// When a name is invalid or given twice, when there is no step or more than [`MOST_STEPS`], or when the steps are not in the order
    /// compensatable, at most one pivot, retryable.
    pub fn build(self) -> Result<Plan, Invalid> {
        limits::name("plan", Charset::Word, &self.name)?;
        let steps = self.steps.into_iter().collect::<Result<Arc<[Step]>, _>>()?;
        if steps.is_empty() {
            return Err(Invalid::new("steps", Problem::Empty));
        }
        if steps.len() > MOST_STEPS {
            return Err(Invalid::new("steps", Problem::TooMany { actual: steps.len(), limit: MOST_STEPS }));
        }
        let mut names = HashSet::new();
        if let Some(twice) = steps.iter().find(|step| !names.insert(step.name())) {
            return Err(Invalid::rule(field(twice), "is used twice; each step needs a unique name"));
        }
        for pair in steps.windows(2) {
            in_order(&pair[0], &pair[1])?;
        }
        let before = steps.iter().take_while(|step| *step.kind() != StepKind::Retryable).count();
        let fingerprint = Fingerprint::of(&self.name, &steps);
        Ok(Plan { name: self.name.into(), steps, point_of_no_return: as_step(before), fingerprint })
    }
}

fn field(step: &Step) -> String {
    format!("step {:?}", step.name())
}

/// Comparing neighbours is enough, because the order of kinds is transitive.
fn in_order(one: &Step, next: &Step) -> Result<(), Invalid> {
    let why = match (one.kind(), next.kind()) {
        (StepKind::Compensatable { .. }, _)
        | (StepKind::Pivot | StepKind::Retryable, StepKind::Retryable) => return Ok(()),
        (StepKind::Pivot, StepKind::Pivot) => "a plan has at most one pivot",
        (_, StepKind::Pivot) => "a retryable step must succeed, so no step that may fail can follow it",
        (_, StepKind::Compensatable { .. }) => {
            "the saga cannot be compensated behind the pivot, so no step that may fail can follow it"
        }
    };
    let (kind, other, before) = (next.kind().as_str(), one.kind().as_str(), one.name());
    Err(Invalid::rule(
        field(next),
        format!(
            "cannot come as {kind} after {before:?} ({other}): {why}; \
             the order is compensatable steps, at most one pivot, retryable steps"
        ),
    ))
}

/// The fingerprint of a plan: its name, and the names, order and kinds of its steps. A log is interpreted by these, so a saga that was
/// started under others is rejected.
///
/// The resolver and the operation of a step are not part of it: they may be corrected while sagas run, and a stuck saga can then
/// continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Uuid);

/// A random namespace, fixed.
const PLANS: Uuid = Uuid::from_u128(0x4c23_37ff_392c_464e_bcdf_b649_85ad_81f3);

impl Fingerprint {
    fn of(plan: &str, steps: &[Step]) -> Self {
        let names = steps.iter().flat_map(|step| [step.kind().as_str(), step.name()]);
        // No name has a control character.
        let text = std::iter::once(plan).chain(names).collect::<Vec<_>>().join("\n");
        Self(Uuid::new_v5(&PLANS, text.as_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
