//! Operator actions and their audit rows.

use crate::{
    DestinationName, Invalid, MessageId, OrderingKey, QueueName,
    limits::{self, Charset},
};
use std::time::SystemTime;

/// The operator and the reason of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The operator.
    pub actor: String,
    /// The reason.
    pub why: String,
}

impl Action {
    /// An action by `actor` for the reason `why`.
    pub fn new(actor: impl Into<String>, why: impl Into<String>) -> Self {
        Self { actor: actor.into(), why: why.into() }
    }

    /// Checks operator and reason.
    ///
    /// # Errors
    /// When one is missing or has control characters.
    pub fn check(&self) -> Result<(), Invalid> {
        limits::name("actor", Charset::Line, &self.actor)?;
        limits::text("why", limits::HEADER_VALUE_BYTES, Charset::Line, &self.why)
    }
}

/// An audit row: one operator action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// The time, by the store's clock.
    pub at: SystemTime,
    /// The operator and the reason.
    pub action: Action,
    /// The verb: `requeue`, `discard`, `replay`, `release_key`, `cancel_timer`, `erase_subject`, `pause`, `resume` or `prune_audit`.
    pub verb: String,
    /// The queue; `None` for a destination.
    pub queue: Option<QueueName>,
    /// The destination that was paused or resumed.
    pub destination: Option<DestinationName>,
    /// The affected messages.
    pub ids: Vec<MessageId>,
    /// The affected key, or the name of the timer.
    pub key: Option<OrderingKey>,
}
