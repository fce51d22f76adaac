//! A subscription: a channel with one consumer.

use super::in_flight::{AckFrame, InFlight};
use crate::{
    rabbitmq::{
        connection::{BrokerConnection, lock},
        error::soft_error,
    },
    session::{Generation, ReusableConnection},
};
use futures_util::{FutureExt, StreamExt};
use lapin::{
    Channel, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    protocol::AMQPSoftError,
    types::{DeliveryTag, FieldTable, ShortString},
};
use postrider_core::{Ack, AckHandle, SourceError};
use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, Ordering},
};

/// A channel with a consumer, from its opening to its end. A channel that has ended is not reopened.
pub(super) struct Subscription {
    connection: Generation<BrokerConnection>,
    channel: Channel,
    prefetch: u16,
    consumer: tokio::sync::Mutex<Consumer>,
    in_flight: Mutex<InFlight>,
    /// The broker has cancelled the consumer: no more deliveries.
    is_cancelled: AtomicBool,
}

/// The content of an ack handle: a delivery of a subscription.
pub(super) struct DeliveryRef {
    subscription: Weak<Subscription>,
    tag: DeliveryTag,
}

impl DeliveryRef {
    pub(super) fn new(subscription: &Arc<Subscription>, tag: DeliveryTag) -> Self {
        Self { subscription: Arc::downgrade(subscription), tag }
    }
}

impl Subscription {
    pub(super) async fn open(
        connection: Generation<BrokerConnection>,
        queue: &ShortString,
        prefetch: u16,
    ) -> Result<Self, SourceError> {
        let opening = async {
            let channel = connection.open_channel().await?;
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let options = BasicConsumeOptions::default();
            let consumer =
                channel.basic_consume(queue.clone(), "".into(), options, FieldTable::default()).await?;
            Ok((channel, consumer))
        };
        let (channel, consumer) = opening.await.map_err(|error| consume_error(queue, error))?;
        let (consumer, in_flight) = (tokio::sync::Mutex::new(consumer), Mutex::default());
        Ok(Self { connection, channel, prefetch, consumer, in_flight, is_cancelled: AtomicBool::new(false) })
    }

    pub(super) fn connection(&self) -> &Generation<BrokerConnection> {
        &self.connection
    }

    /// Waits for the first delivery and returns up to `most` that are available. Safe to drop: it waits only before the first one.
    pub(super) async fn receive(&self, most: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut consumer = self.consumer.lock().await;
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(cancelled());
        }
        let (mut next, mut received) = (Some(consumer.next().await), Vec::new());
        while let Some(item) = next {
            match item {
                Some(Ok(delivery)) if self.is_usable() => received.push(delivery),
                // The broker redelivers deliveries that the client still buffers for a closed channel.
                Some(Ok(_)) => {}
                Some(Err(error)) if received.is_empty() => return Err(SourceError::unavailable(error)),
                Some(Err(_)) => break,
                None => {
                    self.is_cancelled.store(true, Ordering::Relaxed);
                    break;
                }
            }
            next = if received.len() < most { consumer.next().now_or_never() } else { None };
        }
        if received.is_empty() {
            return Err(cancelled());
        }
        let mut in_flight = lock(&self.in_flight);
        received.iter().for_each(|delivery| in_flight.add(delivery.delivery_tag));
        Ok(received)
    }

    /// The delivery tag, if the handle belongs to this subscription.
    pub(super) fn tag(self: &Arc<Self>, handle: &AckHandle) -> Option<DeliveryTag> {
        let delivery = handle.downcast::<DeliveryRef>()?;
        std::ptr::eq(delivery.subscription.as_ptr(), Arc::as_ptr(self)).then_some(delivery.tag)
    }

    /// Whether the delivery belongs to this subscription and is in flight.
    pub(super) fn is_in_flight(self: &Arc<Self>, handle: &AckHandle) -> bool {
        self.tag(handle).is_some_and(|tag| lock(&self.in_flight).contains(tag))
    }

    /// Sends the acks without waiting, and returns for each whether its delivery was in flight. The client queues a frame on the first
    /// poll, so the call cannot be interrupted between removing a tag and sending its ack; and because `in_flight` stays locked, frames
    /// go out in the order in which they were decided.
    pub(super) fn send_acks(&self, acks: &[(DeliveryTag, Ack)]) -> Vec<bool> {
        let mut in_flight = lock(&self.in_flight);
        let (removed, frames) = in_flight.ack(acks);
        for frame in frames {
            // If a frame cannot be sent, the flush behind it fails, too.
            match frame {
                AckFrame::Ack(tag) => drop(self.ack(tag, false)),
                AckFrame::AckUpTo(tag) => drop(self.ack(tag, true)),
                AckFrame::Requeue(tag) => drop(self.nack(tag, true)),
                AckFrame::Reject(tag) => drop(self.nack(tag, false)),
            }
        }
        removed
    }

    fn ack(&self, tag: DeliveryTag, multiple: bool) -> Option<lapin::Result<()>> {
        self.channel.basic_ack(tag, BasicAckOptions { multiple }).now_or_never()
    }

    fn nack(&self, tag: DeliveryTag, requeue: bool) -> Option<lapin::Result<()>> {
        self.channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue }).now_or_never()
    }

    /// Returns when the broker has read all acks sent so far: it replies in the order in which it reads. Setting the same prefetch again
    /// is the cheapest method that has a reply.
    pub(super) async fn flush_acks(&self) -> Result<(), String> {
        let reply = self.channel.basic_qos(self.prefetch, BasicQosOptions::default()).await;
        reply.map_err(|error| error.to_string())
    }
}

impl ReusableConnection for Subscription {
    fn is_usable(&self) -> bool {
        self.channel.status().connected()
    }
}

fn consume_error(queue: &ShortString, error: lapin::Error) -> SourceError {
    match soft_error(&error) {
        Some(AMQPSoftError::NOTFOUND) => SourceError::unavailable(format!(
            "queue {:?} does not exist: declare it ({error})",
            queue.as_str()
        )),
        Some(AMQPSoftError::ACCESSREFUSED) => SourceError::unavailable(format!(
            "no permission to read queue {:?}: grant `read` on it ({error})",
            queue.as_str()
        )),
        _ => SourceError::unavailable(error),
    }
}

fn cancelled() -> SourceError {
    SourceError::unavailable(
        "the consumer was cancelled: the queue was deleted, its node is down, or the channel was closed",
    )
}
