//! A message in hand.

use postrider_core::{
    Answer, Arrival, Claimed, Incoming, Invalid, Lane, Lease, LeaseToken, Letter, MessageId, Parcel,
    QueueName, Ticket,
};
use std::time::SystemTime;

/// A message in hand, read as far as it can be.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) ticket: Ticket,
    pub(super) lane: Option<Lane>,
    /// How often it was delivered, this time included, as far as anybody knows.
    pub(super) deliveries: Option<u32>,
    /// The call that brought it.
    pub(super) call: u64,
    /// The halt of its lane for which it is handed back, if it is.
    pub(super) halt: u64,
    /// Under which number it is extended, if it is.
    pub(super) held_as: u64,
    pub(super) content: Content,
}

/// What was in it.
#[derive(Debug)]
pub(super) enum Content {
    Read(Box<Letter>),
    /// What it was, and which rule it breaks.
    Unreadable(Box<Incoming>, Invalid),
}

impl Mail {
    pub(super) fn read(parcel: Parcel, queue: &QueueName, call: u64) -> Self {
        let Parcel { incoming, ticket, deliveries, lane, .. } = parcel;
        let content = match incoming.read(queue) {
            Ok(letter) => Content::Read(Box::new(letter)),
            Err(invalid) => Content::Unreadable(Box::new(incoming), invalid),
        };
        Self { ticket, lane, deliveries, call, halt: 0, held_as: 0, content }
    }

    /// Its identity, if it could be read.
    pub(super) fn id(&self) -> Option<MessageId> {
        match &self.content {
            Content::Read(letter) => Some(letter.id),
            Content::Unreadable(..) => None,
        }
    }

    pub(super) fn answered(&self, answer: Answer) -> (Ticket, Answer) {
        (self.ticket.clone(), answer)
    }
}

pub(super) fn arrival_of(letter: &Letter) -> Arrival {
    Arrival { tenant: letter.message.tenant().cloned(), id: letter.id }
}

/// What a handler is told of it. The lease proves nothing: the mark does.
pub(super) fn claimed(letter: &Letter, deliveries: Option<u32>, queue: &QueueName) -> Claimed {
    let deliveries = deliveries.unwrap_or(1);
    let now = SystemTime::now();
    Claimed {
        message: letter.message.clone().identified(letter.id),
        lease: Lease::new(queue.clone(), letter.id, LeaseToken::fresh()),
        deliveries,
        attempts: deliveries.saturating_sub(1),
        staged_at: letter.sent_at.unwrap_or(now),
        due_at: letter.sent_at.unwrap_or(now),
    }
}
