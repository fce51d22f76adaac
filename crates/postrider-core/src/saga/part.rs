//! The saga step that a follow-up belongs to.

use super::{Command, CommandKind, Plan};
use crate::{FollowUp, Headers, Invalid, MessageId, Reference};
use uuid::Uuid;

/// The reserved resolver that starts sagas: a follow-up for it is a saga to start, and its operation names the plan.
pub const RESOLVER: &str = "saga";

const SAGA: &str = "followup-saga";
const PLAN: &str = "followup-plan";
const STEP: &str = "followup-step";
const ACT: &str = "followup-act";

/// The saga step that a follow-up belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The saga: the id of the message that started it.
    pub saga: MessageId,
    /// The name of its plan.
    pub plan: String,
    /// The call.
    pub command: Command,
}

impl Plan {
    /// A saga of this plan about `subject`: stage it like any follow-up, in the transaction of the local change. Its id is the saga's. All
    /// steps get the reference with its further values. There is no payload, because a compensation may come long after payloads are
    /// deleted and needs what the step knew.
    ///
    /// ```
    /// # use postrider_core::{Reference, saga::{StepCall, Plan}};
    /// let plan = Plan::builder("book-trip")
    ///     .compensatable("flight", StepCall::to("airline", "reserve").undone_by("cancel"))
    ///     .pivot("payment", StepCall::to("bank", "charge"))
    ///     .build()?;
    /// let trip = plan.begin("customer-17", Reference::new("trip", "t-4").with("seats", "2"))?;
    /// assert_eq!(trip.operation().as_str(), "book-trip");
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// When the subject is invalid.
    pub fn begin(&self, subject: impl Into<String>, reference: Reference) -> Result<FollowUp, Invalid> {
        FollowUp::new(subject, RESOLVER, self.name(), reference)
    }

    /// The follow-up of one call of a saga, like `other`, the previous one.
    ///
    /// # Errors
    /// When there is no such call.
    pub fn follow_up(
        &self,
        saga: MessageId,
        command: Command,
        other: &FollowUp,
    ) -> Result<FollowUp, Invalid> {
        let (resolver, operation) = self
            .call(command)
            .ok_or_else(|| Invalid::rule("step", format!("the plan {:?} cannot {command}", self.name())))?;
        Ok(other
            .like(resolver.clone(), operation.clone())
            .with_id(command.follow_up_id(saga))
            .being_part(Part { saga, plan: self.name().to_owned(), command }))
    }
}

impl Part {
    pub(crate) fn headers(&self) -> [(&'static str, String); 4] {
        [
            (SAGA, self.saga.to_string()),
            (PLAN, self.plan.clone()),
            (STEP, self.command.step.to_string()),
            (ACT, self.command.act.as_str().to_owned()),
        ]
    }

    pub(crate) fn read(headers: &Headers) -> Result<Option<Self>, Invalid> {
        let Some(saga) = headers.get(SAGA) else { return Ok(None) };
        let saga = Uuid::parse_str(saga).map_err(|_| Invalid::rule(SAGA, "must be a UUID"))?;
        let lacks = |what: &'static str| move || Invalid::rule(what, "is missing or malformed");
        let act = match headers.get(ACT) {
            Some("do") => CommandKind::Do,
            Some("undo") => CommandKind::Undo,
            _ => return Err(lacks(ACT)()),
        };
        let step = headers.get(STEP).and_then(|step| step.parse().ok()).ok_or_else(lacks(STEP))?;
        let plan = headers.get(PLAN).ok_or_else(lacks(PLAN))?.to_owned();
        Ok(Some(Self { saga: MessageId::from_uuid(saga), plan, command: Command { act, step } }))
    }
}
