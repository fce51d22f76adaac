//! A channel with a consumer on it.

use super::in_hand::{InHand, Word};
use crate::rabbitmq::{
    batch::refusal,
    line::{Line, lock},
};
use futures_util::{FutureExt, StreamExt};
use lapin::{
    Channel, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    protocol::AMQPSoftError,
    types::{DeliveryTag, FieldTable, ShortString},
};
use postrider_core::{Answer, SourceError, Ticket};
use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, Ordering},
};

/// From the first delivery of a channel to its end. There is no second life.
pub(super) struct Session {
    line: Arc<Line>,
    channel: Channel,
    prefetch: u16,
    consumer: tokio::sync::Mutex<Consumer>,
    in_hand: Mutex<InHand>,
    /// Nothing more will be delivered.
    is_cancelled: AtomicBool,
}

/// What is in a ticket.
pub(super) struct Slip {
    session: Weak<Session>,
    tag: DeliveryTag,
}

impl Slip {
    pub(super) fn of(session: &Arc<Session>, tag: DeliveryTag) -> Self {
        Self { session: Arc::downgrade(session), tag }
    }
}

impl Session {
    pub(super) async fn open(
        line: Arc<Line>,
        queue: &ShortString,
        prefetch: u16,
    ) -> Result<Self, SourceError> {
        let opening = async {
            let channel = line.ask().await?;
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let options = BasicConsumeOptions::default();
            let consumer =
                channel.basic_consume(queue.clone(), "".into(), options, FieldTable::default()).await?;
            Ok((channel, consumer))
        };
        let (channel, consumer) = opening.await.map_err(|error| no_consumer(queue, error))?;
        let (consumer, in_hand) = (tokio::sync::Mutex::new(consumer), Mutex::default());
        Ok(Self { line, channel, prefetch, consumer, in_hand, is_cancelled: AtomicBool::new(false) })
    }

    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    pub(super) fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    /// What is there, up to `most`, once there is something. Nothing is lost when this is dropped: it waits before the first one only.
    pub(super) async fn take(&self, most: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut consumer = self.consumer.lock().await;
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(cancelled());
        }
        let (mut next, mut taken) = (Some(consumer.next().await), Vec::new());
        while let Some(item) = next {
            match item {
                Some(Ok(delivery)) if self.is_open() => taken.push(delivery),
                // What the client still has of a channel that has ended comes again by itself.
                Some(Ok(_)) => {}
                Some(Err(error)) if taken.is_empty() => return Err(SourceError::down(error)),
                Some(Err(_)) => break,
                None => {
                    self.is_cancelled.store(true, Ordering::Relaxed);
                    break;
                }
            }
            next = if taken.len() < most { consumer.next().now_or_never() } else { None };
        }
        if taken.is_empty() {
            return Err(cancelled());
        }
        let mut in_hand = lock(&self.in_hand);
        taken.iter().for_each(|delivery| in_hand.add(delivery.delivery_tag));
        Ok(taken)
    }

    /// The tag of what was received here.
    pub(super) fn tag(self: &Arc<Self>, ticket: &Ticket) -> Option<DeliveryTag> {
        let slip = ticket.inside::<Slip>()?;
        std::ptr::eq(slip.session.as_ptr(), Arc::as_ptr(self)).then_some(slip.tag)
    }

    /// Whether it was received here and has no answer.
    pub(super) fn holds(self: &Arc<Self>, ticket: &Ticket) -> bool {
        self.tag(ticket).is_some_and(|tag| lock(&self.in_hand).holds(tag))
    }

    /// Says it, without waiting, and tells for each whether there was something to say. The client queues a word as soon as it is asked to, so
    /// nobody can be interrupted between taking a tag out of the hand and answering for it; and with the hand locked, words go out in the
    /// order in which they were thought of.
    pub(super) fn tell(&self, answers: &[(DeliveryTag, Answer)]) -> Vec<bool> {
        let mut in_hand = lock(&self.in_hand);
        let (taken, words) = in_hand.answer(answers);
        for word in words {
            // What could not be said, the question behind it cannot be asked either.
            match word {
                Word::Done(tag) => drop(self.ack(tag, false)),
                Word::DoneUpTo(tag) => drop(self.ack(tag, true)),
                Word::Again(tag) => drop(self.nack(tag, true)),
                Word::Refuse(tag) => drop(self.nack(tag, false)),
            }
        }
        taken
    }

    fn ack(&self, tag: DeliveryTag, multiple: bool) -> Option<lapin::Result<()>> {
        self.channel.basic_ack(tag, BasicAckOptions { multiple }).now_or_never()
    }

    fn nack(&self, tag: DeliveryTag, requeue: bool) -> Option<lapin::Result<()>> {
        self.channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue }).now_or_never()
    }

    /// Returns when the broker has read what it was told: it replies in the order of what it reads. Setting the prefetch that is set
    /// is the cheapest thing that has a reply.
    pub(super) async fn is_heard(&self) -> Result<(), String> {
        let asked = self.channel.basic_qos(self.prefetch, BasicQosOptions::default()).await;
        asked.map_err(|error| error.to_string())
    }
}

fn no_consumer(queue: &ShortString, error: lapin::Error) -> SourceError {
    match refusal(&error) {
        Some(AMQPSoftError::NOTFOUND) => {
            SourceError::down(format!("there is no queue {:?}: declare it ({error})", queue.as_str()))
        }
        Some(AMQPSoftError::ACCESSREFUSED) => {
            SourceError::down(format!("queue {:?} may not be read: grant it ({error})", queue.as_str()))
        }
        _ => SourceError::down(error),
    }
}

fn cancelled() -> SourceError {
    SourceError::down(
        "the consumer has ended: the queue was deleted, its node has gone, or the channel was closed",
    )
}
