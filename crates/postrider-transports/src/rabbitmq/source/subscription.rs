//! A subscription: a channel with one consumer.

use super::in_flight::{AckFrame, InFlight};
use crate::{
    byte_budget::BytesInFlight,
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
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    protocol::AMQPSoftError,
    types::{DeliveryTag, FieldTable, ShortString},
};
use postrider_core::{Ack, AckHandle, SourceError};
use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, AtomicU16, Ordering},
};
use tokio::task::JoinHandle;

/// A channel with a consumer, from its opening to its end. A channel that has ended is not reopened.
pub(super) struct Subscription {
    connection: Generation<BrokerConnection>,
    channel: Channel,
    queue: ShortString,
    /// The prefetch of the next consumer.
    prefetch: AtomicU16,
    consumer: tokio::sync::Mutex<CurrentConsumer>,
    in_flight: Mutex<InFlight>,
    /// The broker has cancelled the consumer: no more deliveries.
    is_cancelled: AtomicBool,
}

/// The consumer of the channel. The prefetch of a consumer never changes, so another prefetch needs another consumer.
struct CurrentConsumer {
    consumer: Consumer,
    /// The next consumer, whose task cancels this one. Its deliveries come after those of this one, and acks are those of the channel.
    next: Option<JoinHandle<lapin::Result<Consumer>>>,
    /// All deliveries of this consumer were received.
    is_over: bool,
}

/// The content of an ack handle: a delivery of a subscription.
pub(super) struct DeliveryRef {
    subscription: Weak<Subscription>,
    tag: DeliveryTag,
    _bytes: BytesInFlight,
}

impl DeliveryRef {
    pub(super) fn new(subscription: &Arc<Subscription>, tag: DeliveryTag, bytes: BytesInFlight) -> Self {
        Self { subscription: Arc::downgrade(subscription), tag, _bytes: bytes }
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
            let consumer = consume(&channel, queue, prefetch).await?;
            Ok((channel, consumer))
        };
        let (channel, consumer) = opening.await.map_err(|error| consume_error(queue, error))?;
        Ok(Self {
            connection,
            channel,
            queue: queue.clone(),
            prefetch: prefetch.into(),
            consumer: tokio::sync::Mutex::new(CurrentConsumer { consumer, next: None, is_over: false }),
            in_flight: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
        })
    }

    pub(super) fn connection(&self) -> &Generation<BrokerConnection> {
        &self.connection
    }

    /// Waits for the first delivery and returns up to `most` that are available. Safe to drop: it waits only before the first one.
    /// Replaces the consumer when the prefetch should be half or twice as large.
    pub(super) async fn receive(&self, most: usize, prefetch: u16) -> Result<Vec<Delivery>, SourceError> {
        let mut current = self.consumer.lock().await;
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(cancelled());
        }
        let last = self.prefetch.load(Ordering::Relaxed);
        if current.next.is_none() && (prefetch <= last / 2 || prefetch / 2 >= last) {
            self.prefetch.store(prefetch, Ordering::Relaxed);
            let (channel, queue, tag) = (self.channel.clone(), self.queue.clone(), current.consumer.tag());
            current.next = Some(tokio::spawn(async move {
                channel.basic_cancel(tag, BasicCancelOptions::default()).await?;
                consume(&channel, &queue, prefetch).await
            }));
        }
        let current = &mut *current;
        let mut first = if current.is_over { None } else { current.consumer.next().await };
        if first.is_none()
            && let Some(next) = &mut current.next
        {
            current.is_over = true;
            let next = next.await;
            current.next = None;
            let next = next.map_err(SourceError::unavailable)?;
            current.consumer = next.map_err(|error| consume_error(&self.queue, error))?;
            current.is_over = false;
            first = current.consumer.next().await;
        }
        let (mut next, mut received) = (Some(first), Vec::new());
        while let Some(item) = next {
            match item {
                Some(Ok(delivery)) if self.is_usable() => received.push(delivery),
                // The broker redelivers deliveries that the client still buffers for a closed channel.
                Some(Ok(_)) => {}
                Some(Err(error)) if received.is_empty() => return Err(SourceError::unavailable(error)),
                Some(Err(_)) => break,
                // The next call gets the deliveries of the next consumer.
                None if current.next.is_some() => {
                    current.is_over = true;
                    break;
                }
                None => {
                    self.is_cancelled.store(true, Ordering::Relaxed);
                    break;
                }
            }
            next = if received.len() < most { current.consumer.next().now_or_never() } else { None };
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
        let prefetch = self.prefetch.load(Ordering::Relaxed);
        let reply = self.channel.basic_qos(prefetch, BasicQosOptions::default()).await;
        reply.map_err(|error| error.to_string())
    }
}

/// A new consumer with this prefetch.
async fn consume(channel: &Channel, queue: &ShortString, prefetch: u16) -> lapin::Result<Consumer> {
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    channel
        .basic_consume(queue.clone(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await
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
