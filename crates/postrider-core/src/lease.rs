//! A message in hand: what was claimed, and the lease that proves it.

use crate::{LeaseToken, Message, MessageId, OrderingKey, QueueName, Reason, Settlement};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Proof that one message is in our hands. Every write that ends or extends the claim carries it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    queue: QueueName,
    id: MessageId,
    token: LeaseToken,
    turn: Option<Turn>,
    place: Option<i64>,
}

/// On a queue ordered by key the key is leased, not the message: a claim is the key's turn, and hands out several
/// consecutive messages, to be run one after the other. Settling the last of them, or a failure, ends the turn.
///
/// What is settled behind a failure of the same turn is lost, since the turn was over: it will come again. Release the rest
/// of a turn together with its failure; a release that comes later may be answered as lost, and loses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Turn {
    /// The key.
    pub key: OrderingKey,
    /// The message's place in the line, for the store's own use.
    pub place: i64,
    /// Whether the message is the last of this turn.
    pub last: bool,
}

impl Lease {
    /// A lease on one message.
    pub fn new(queue: QueueName, id: MessageId, token: LeaseToken) -> Self {
        Self { queue, id, token, turn: None, place: None }
    }

    /// A lease on a message as part of its key's turn.
    #[must_use]
    pub fn in_turn(mut self, turn: Turn) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Where a store finds the message again, for its own use. A lease without it works as well.
    #[must_use]
    pub fn at_place(mut self, place: i64) -> Self {
        self.place = Some(place);
        self
    }

    /// Where the store finds it.
    pub fn place(&self) -> Option<i64> {
        self.place
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

    /// Delivered.
    pub fn done(&self) -> Settle {
        self.settle(Settlement::Done)
    }

    /// Delivered; these are staged in the same step.
    pub fn forward(&self, messages: impl Into<Arc<[Message]>>) -> Settle {
        self.settle(Settlement::Forward { messages: messages.into() })
    }

    /// Failed; again after a while.
    pub fn retry(&self, after: Duration, error: impl Into<String>) -> Settle {
        self.settle(Settlement::Retry { after, error: Some(error.into()) })
    }

    /// Failed for good.
    pub fn dead(&self, reason: Reason, error: impl Into<String>) -> Settle {
        self.settle(Settlement::Dead { reason, error: Some(error.into()) })
    }

    /// Handed back, uncounted.
    pub fn release(&self) -> Settle {
        self.settle(Settlement::Release)
    }

    /// Put off, uncounted.
    pub fn snooze(&self, after: Duration) -> Settle {
        self.settle(Settlement::Snooze { after })
    }

    /// Ends this claim as `settlement` says.
    pub fn settle(&self, settlement: Settlement) -> Settle {
        Settle { lease: self.clone(), settlement }
    }
}

/// One delivery and how it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The claim that ends.
    pub lease: Lease,
    /// How it ends.
    pub settlement: Settlement,
}

impl Settle {
    /// What a batch stages besides: the messages of those settlements whose claim was not lost.
    pub fn staged_by(batch: &[Self], lost: &[Lease]) -> Vec<Message> {
        let lost: HashSet<&Lease> = lost.iter().collect();
        let kept = batch.iter().filter(|settle| !lost.contains(&settle.lease));
        kept.flat_map(|settle| settle.settlement.messages()).cloned().collect()
    }
}

/// A message that was claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The message; its id is set.
    pub message: Message,
    /// Proof of the claim.
    pub lease: Lease,
    /// How often it was claimed, this time included. A message that kills its worker is found by this.
    pub deliveries: u32,
    /// How many failures were reported.
    pub attempts: u32,
    /// When it was staged, by the store's clock.
    pub staged_at: SystemTime,
    /// When it became due, by the store's clock.
    pub due_at: SystemTime,
}

impl Claimed {
    /// The identity of the message.
    pub fn id(&self) -> MessageId {
        self.lease.id()
    }
}
