//! A received message in flight.

use super::decoder::Decoder;
use crate::context::HandledDelivery;
use postrider_core::{
    Ack, AckHandle, Arrival, DecodedMessage, Incoming, Invalid, LaneId, Message, MessageId, QueueName,
    ReceivedMessage,
};
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

/// A received message in flight, decoded if possible.
#[derive(Debug)]
pub(super) struct InFlightMessage {
    pub(super) ack_handle: AckHandle,
    pub(super) lane: Option<LaneId>,
    /// Number of deliveries, this one included, if known.
    pub(super) deliveries: Option<u32>,
    /// The receive call that returned it.
    pub(super) call: u64,
    /// The halt of its lane for which it is nacked, if any.
    pub(super) halt: u64,
    /// The number under which its ack deadline is extended, if it is.
    pub(super) extension_number: u64,
    pub(super) content: Content,
}

/// The content of a received message.
#[derive(Debug)]
pub(super) enum Content {
    Decoded(Box<DecodedMessage>),
    /// The raw message, and the rule that it breaks.
    Undecodable(Box<Incoming>, Invalid),
}

impl InFlightMessage {
    pub(super) fn decode(received: ReceivedMessage, decoder: &Decoder, call: u64) -> Self {
        let ReceivedMessage { incoming, ack_handle, deliveries, lane, .. } = received;
        let content = match decoder.decode(&incoming) {
            Ok(decoded) => Content::Decoded(Box::new(decoded)),
            Err(invalid) => Content::Undecodable(Box::new(incoming), invalid),
        };
        Self { ack_handle, lane, deliveries, call, halt: 0, extension_number: 0, content }
    }

    /// The message id, if it could be decoded.
    pub(super) fn id(&self) -> Option<MessageId> {
        match &self.content {
            Content::Decoded(decoded) => Some(decoded.id),
            Content::Undecodable(..) => None,
        }
    }

    pub(super) fn with_ack(&self, ack: Ack) -> (AckHandle, Ack) {
        (self.ack_handle.clone(), ack)
    }
}

pub(super) fn arrival_of(decoded: &DecodedMessage) -> Arrival {
    Arrival { tenant: decoded.message.tenant().cloned(), id: decoded.id }
}

/// One delivery of a received message, as its handler sees it. The broker decides about redelivery, so nothing cancels it.
pub(super) struct ReceivedDelivery {
    message: Message,
    id: MessageId,
    queue: QueueName,
    deliveries: u32,
    sent_at: SystemTime,
    cancellation: CancellationToken,
}

impl ReceivedDelivery {
    pub(super) fn new(decoded: &DecodedMessage, deliveries: Option<u32>, queue: QueueName) -> Self {
        Self {
            message: decoded.message.clone().identified(decoded.id),
            id: decoded.id,
            queue,
            deliveries: deliveries.unwrap_or(1),
            sent_at: decoded.sent_at.unwrap_or_else(SystemTime::now),
            cancellation: CancellationToken::new(),
        }
    }
}

impl HandledDelivery for ReceivedDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    fn id(&self) -> MessageId {
        self.id
    }

    fn queue(&self) -> &QueueName {
        &self.queue
    }

    fn failed_attempts(&self) -> u32 {
        self.deliveries.saturating_sub(1)
    }

    fn deliveries(&self) -> u32 {
        self.deliveries
    }

    fn staged_at(&self) -> SystemTime {
        self.sent_at
    }

    fn due_at(&self) -> SystemTime {
        self.sent_at
    }

    fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}
