//! What operators do, and what is written down of it.

use crate::{
    DestinationName, Invalid, MessageId, OrderingKey, QueueName,
    limits::{self, Charset},
};
use std::time::SystemTime;

/// Who does something, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Who.
    pub actor: String,
    /// Why.
    pub why: String,
}

impl Action {
    /// `actor` does it because of `why`.
    pub fn new(actor: impl Into<String>, why: impl Into<String>) -> Self {
        Self { actor: actor.into(), why: why.into() }
    }

    /// Whether somebody can be held to it.
    ///
    /// # Errors
    /// When the actor or the reason is missing or unreadable.
    pub fn check(&self) -> Result<(), Invalid> {
        limits::name("actor", Charset::Line, &self.actor)?;
        limits::text("why", limits::HEADER_VALUE_BYTES, Charset::Line, &self.why)
    }
}

/// Something an operator did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When, by the store's clock.
    pub at: SystemTime,
    /// Who and why.
    pub action: Action,
    /// What: `requeue`, `discard`, `replay`, `release_key`, `cancel_timer`, `erase_subject`, `pause`, `resume` or `prune_audit`.
    pub verb: String,
    /// Where; none when it was a destination.
    pub queue: Option<QueueName>,
    /// The destination that was paused or resumed.
    pub destination: Option<DestinationName>,
    /// The messages it touched.
    pub ids: Vec<MessageId>,
    /// The key it touched, or the name of the timer.
    pub key: Option<OrderingKey>,
}
