//! Which part of a saga a follow-up is.

use super::{Act, Command, Plan};
use crate::{FollowUp, Headers, Invalid, MessageId, Reference};
use uuid::Uuid;

/// Who begins sagas: a follow-up for this resolver is a saga that is yet to begin, and its operation names the plan.
pub const RESOLVER: &str = "saga";

const SAGA: &str = "followup-saga";
const PLAN: &str = "followup-plan";
const STEP: &str = "followup-step";
const ACT: &str = "followup-act";

/// Which part of a saga a follow-up is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The saga: the identity of the message with which it began.
    pub saga: MessageId,
    /// The name of its plan.
    pub plan: String,
    /// The call.
    pub command: Command,
}

impl Plan {
    /// A saga of this plan about `subject`: stage it like any follow-up, in the transaction of the change that calls for it. Its identity is
    /// the saga's. All steps are given the reference, with all that belongs to it: there is no payload, for what undoes a step must know
    /// whatever the step did, however long that takes.
    ///
    /// ```
    /// # use postrider_core::{Reference, saga::{Call, Plan}};
    /// let plan = Plan::builder("book-trip")
    ///     .compensatable("flight", Call::to("airline", "reserve").undone_by("cancel"))
    ///     .pivot("payment", Call::to("bank", "charge"))
    ///     .build()?;
    /// let trip = plan.begin("customer-17", Reference::new("trip", "t-4").with("seats", "2"))?;
    /// assert_eq!(trip.operation().as_str(), "book-trip");
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// When the subject breaks a rule.
    pub fn begin(&self, subject: impl Into<String>, reference: Reference) -> Result<FollowUp, Invalid> {
        FollowUp::new(subject, RESOLVER, self.name(), reference)
    }

    /// The follow-up of one call of a saga, like `other`, which is the one before it.
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
        let saga = Uuid::parse_str(saga).map_err(|_| Invalid::rule(SAGA, "is no UUID"))?;
        let lacks = |what: &'static str| move || Invalid::rule(what, "is missing or unreadable");
        let act = match headers.get(ACT) {
            Some("do") => Act::Do,
            Some("undo") => Act::Undo,
            _ => return Err(lacks(ACT)()),
        };
        let step = headers.get(STEP).and_then(|step| step.parse().ok()).ok_or_else(lacks(STEP))?;
        let plan = headers.get(PLAN).ok_or_else(lacks(PLAN))?.to_owned();
        Ok(Some(Self { saga: MessageId::from_uuid(saga), plan, command: Command { act, step } }))
    }
}
