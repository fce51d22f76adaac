//! What a saga is to do.

use super::{Act, Call, Command, Entry, Kind, Step, Undoable};
use crate::{
    EventType, Invalid, Problem, ResolverName,
    limits::{self, Charset},
};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, fmt, sync::Arc};
use uuid::Uuid;

/// The steps allowed in a plan.
pub const MOST_STEPS: usize = 100;

/// What a saga is to do: compensatable steps, then at most one pivot, then retryable steps.
///
/// ```
/// # use postrider_core::saga::{Call, Plan};
/// let plan = Plan::builder("book-trip")
///     .compensatable("flight", Call::to("airline", "reserve").undone_by("cancel"))
///     .compensatable("room", Call::to("hotel", "reserve").undone_by("cancel"))
///     .pivot("payment", Call::to("bank", "charge"))
///     .retryable("tickets", Call::to("mailer", "send"))
///     .build()?;
/// assert_eq!(plan.point_of_no_return(), 3);
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    name: Arc<str>,
    steps: Arc<[Step]>,
    // Both are told by the steps; every transition asks for them.
    point_of_no_return: u32,
    fingerprint: Fingerprint,
}

impl Plan {
    /// A plan of this name. The name is in the log of every saga that is begun under it.
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

    /// One of its steps, counted from 0.
    pub fn step(&self, step: u32) -> Option<&Step> {
        self.steps.get(usize::try_from(step).ok()?)
    }

    /// How many steps it has: at least one, and no more than [`MOST_STEPS`].
    pub fn len(&self) -> u32 {
        as_step(self.steps.len())
    }

    /// Whether it has no steps. It always has.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many steps have to succeed before there is no way back: all that are not retryable. From then on the saga only goes forward.
    pub fn point_of_no_return(&self) -> u32 {
        self.point_of_no_return
    }

    /// What tells it from other plans.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The entry with which the log of a saga begins.
    pub fn begun(&self) -> Entry {
        Entry::Begun { plan: self.name.to_string(), fingerprint: self.fingerprint }
    }

    /// Who is to be called for a command, and for what. Nothing, if there is no such step, or it cannot be undone.
    pub fn call(&self, command: Command) -> Option<(&ResolverName, &EventType)> {
        let step = self.step(command.step)?;
        let operation = match (command.act, step.kind()) {
            (Act::Do, _) => step.operation(),
            (Act::Undo, Kind::Compensatable { undo }) => undo,
            (Act::Undo, Kind::Pivot | Kind::Retryable) => return None,
        };
        Some((step.resolver(), operation))
    }
}

/// No plan has so many steps that this would saturate.
fn as_step(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Declares a plan, step by step, in the order in which they are carried out.
#[derive(Debug, Clone)]
#[must_use]
pub struct PlanBuilder {
    name: String,
    steps: Vec<Result<Step, Invalid>>,
}

impl PlanBuilder {
    /// A step that can be undone.
    pub fn compensatable(self, name: impl AsRef<str>, Undoable { call, undo }: Undoable) -> Self {
        self.declare(name.as_ref(), call, EventType::new(undo).map(|undo| Kind::Compensatable { undo }))
    }

    /// The step that decides: once it has succeeded there is no way back.
    pub fn pivot(self, name: impl AsRef<str>, call: Call) -> Self {
        self.declare(name.as_ref(), call, Ok(Kind::Pivot))
    }

    /// A step that is tried until it succeeds.
    pub fn retryable(self, name: impl AsRef<str>, call: Call) -> Self {
        self.declare(name.as_ref(), call, Ok(Kind::Retryable))
    }

    fn declare(mut self, name: &str, call: Call, kind: Result<Kind, Invalid>) -> Self {
        self.steps.push(Step::new(name, call, kind));
        self
    }

    /// Checks the plan and makes it.
    ///
    /// # Errors
    /// When a name breaks a rule or is given twice, when there is no step or more than [`MOST_STEPS`], or when the steps do not come in the
    /// order that a way back needs: compensatable steps, at most one pivot, retryable steps.
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
            return Err(Invalid::rule(field(twice), "is there twice; each step needs a name of its own"));
        }
        for pair in steps.windows(2) {
            in_order(&pair[0], &pair[1])?;
        }
        let before = steps.iter().take_while(|step| *step.kind() != Kind::Retryable).count();
        let fingerprint = Fingerprint::of(&self.name, &steps);
        Ok(Plan { name: self.name.into(), steps, point_of_no_return: as_step(before), fingerprint })
    }
}

fn field(step: &Step) -> String {
    format!("step {:?}", step.name())
}

/// Neighbours in order are enough: each kind may only be followed by what all kinds before it may be followed by, too.
fn in_order(one: &Step, next: &Step) -> Result<(), Invalid> {
    let why = match (one.kind(), next.kind()) {
        (Kind::Compensatable { .. }, _) | (Kind::Pivot | Kind::Retryable, Kind::Retryable) => return Ok(()),
        (Kind::Pivot, Kind::Pivot) => "there can be one pivot only",
        (_, Kind::Pivot) => "a retryable step must succeed, so nothing that may fail can come after it",
        (_, Kind::Compensatable { .. }) => {
            "there is no way back from there, so nothing that may fail can come after it"
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

/// What tells a plan from others: its name, and the names, the order and the kinds of its steps. These are what a log is read by, so a saga
/// that was begun under other ones is refused.
///
/// Who carries a step out, and by which operation, is not part of it: that may be put right while sagas run, and a saga that is stuck
/// for want of it can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Uuid);

/// Drawn once, at random.
const PLANS: Uuid = Uuid::from_u128(0x4c23_37ff_392c_464e_bcdf_b649_85ad_81f3);

impl Fingerprint {
    fn of(plan: &str, steps: &[Step]) -> Self {
        let names = steps.iter().flat_map(|step| [step.kind().as_str(), step.name()]);
        // No name holds a control character.
        let text = std::iter::once(plan).chain(names).collect::<Vec<_>>().join("\n");
        Self(Uuid::new_v5(&PLANS, text.as_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
