//! A claimed message and its lease.

use crate::{LeaseToken, Message, MessageId, OrderingKey, QueueName, Reason, Settlement};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Proof that this process has claimed one message. Every write that settles or extends the claim carries it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    queue: QueueName,
    id: MessageId,
    token: LeaseToken,
    turn: Option<Turn>,
    position: Option<i64>,
}

/// The lease of a key. On a queue ordered by key the store leases the key, not the message: a claim is the key's turn and returns
/// several consecutive messages, to be handled one after the other. Settling the last of them, or a failure, ends the turn.
///
/// Messages that are settled behind a failure of the same turn are lost, because the turn is over: they are redelivered. Release the
/// rest of a turn together with its failure; a later release may be returned as lost, without harm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Turn {
    /// The key.
    pub key: OrderingKey,
    /// The message's position in its queue, for the store's own use.
    pub position: i64,
    /// Whether the message is the last of the turn.
    pub last: bool,
}

impl Lease {
    /// A lease on one message.
    pub fn new(queue: QueueName, id: MessageId, token: LeaseToken) -> Self {
        Self { queue, id, token, turn: None, position: None }
    }

    /// A lease on a message as part of its key's turn.
    #[must_use]
    pub fn in_turn(mut self, turn: Turn) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Sets the row's position, for the store's own use. A lease without it works as well.
    #[must_use]
    pub fn at_position(mut self, position: i64) -> Self {
        self.position = Some(position);
        self
    }

    /// The row's position, for the store's own use.
    pub fn position(&self) -> Option<i64> {
        self.position
    }

    /// The queue of the message.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The message.
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// The token of the claim.
    pub fn token(&self) -> LeaseToken {
        self.token
    }

    /// The turn it is part of, on queues ordered by key.
    pub fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref()
    }

    /// Settles as delivered.
    pub fn done(&self) -> LeaseSettlement {
        self.settle(Settlement::Done)
    }

    /// Settles as delivered, and stages `messages` in the same step.
    pub fn forward(&self, messages: impl Into<Arc<[Message]>>) -> LeaseSettlement {
        self.settle(Settlement::Forward { messages: messages.into() })
    }

    /// Settles as failed, to be retried after a delay.
    pub fn retry(&self, after: Duration, error: impl Into<String>) -> LeaseSettlement {
        self.settle(Settlement::Retry { after, error: Some(error.into()) })
    }

    /// Settles as failed permanently: a dead letter.
    pub fn dead(&self, reason: Reason, error: impl Into<String>) -> LeaseSettlement {
        self.settle(Settlement::Dead { reason, error: Some(error.into()) })
    }

    /// Releases the message as if it had never been claimed.
    pub fn release(&self) -> LeaseSettlement {
        self.settle(Settlement::Release)
    }

    /// Reschedules the message as if it had never been claimed.
    pub fn snooze(&self, after: Duration) -> LeaseSettlement {
        self.settle(Settlement::Snooze { after })
    }

    /// Settles with `settlement`.
    pub fn settle(&self, settlement: Settlement) -> LeaseSettlement {
        LeaseSettlement { lease: self.clone(), settlement }
    }
}

/// A lease and how it is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettlement {
    /// The lease.
    pub lease: Lease,
    /// The settlement.
    pub settlement: Settlement,
}

impl LeaseSettlement {
    /// The messages that a batch stages: those of the settlements whose lease was not lost.
    pub fn staged_by(batch: &[Self], lost: &[Lease]) -> Vec<Message> {
        let lost: HashSet<&Lease> = lost.iter().collect();
        let kept = batch.iter().filter(|settle| !lost.contains(&settle.lease));
        kept.flat_map(|settle| settle.settlement.messages()).cloned().collect()
    }
}

/// A claimed message with its lease and counters.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedMessage {
    /// The message; its id is set.
    pub message: Message,
    /// Proof of the claim.
    pub lease: Lease,
    /// The number of claims including this one. It detects a message that kills its worker.
    pub deliveries: u32,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The number of deliveries that began in [isolation](crate::Store::count_isolated) since the last failed attempt, and never ended:
    /// each time, the process died or lost the lease while it delivered nothing else of the queue.
    pub isolated: u32,
    /// When it was staged, by the store's clock.
    pub staged_at: SystemTime,
    /// When it became due, by the store's clock.
    pub due_at: SystemTime,
    /// When it was claimed, by the store's clock.
    pub claimed_at: SystemTime,
    /// When its first attempt failed, by the store's clock; `None` while no attempt has failed.
    pub first_failed_at: Option<SystemTime>,
}

impl ClaimedMessage {
    /// The identity of the message.
    pub fn id(&self) -> MessageId {
        self.lease.id()
    }

    /// The number of earlier claims whose lease expired.
    pub fn expired_leases(&self) -> u32 {
        self.deliveries.saturating_sub(self.attempts).saturating_sub(1)
    }

    /// The number of earlier deliveries that are known to have begun. A claim that a process only held when it died is not known to
    /// have begun a delivery.
    pub fn begun(&self) -> u32 {
        self.attempts.saturating_add(self.isolated)
    }
}
