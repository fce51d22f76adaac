//! Receives from a RabbitMQ queue.
//!
//! There is one channel with one consumer at a time, a [`Subscription`]. A delivery can be acked only on the channel that delivered it: when the
//! channel ends, for whatever reason, the broker requeues every unacked delivery, and their ack handles are stale.
//!
//! **The meaning of `Ok`.** AMQP has no reply to an acknowledgement. But the broker reads a channel in order, so every batch of acks ends
//! with a request that changes nothing, and once the broker has replied to it, it has read the acks before it. They may not be on disk
//! yet: a broker that is killed at that moment may redeliver such a message.

mod builder;
mod check;
mod decode;
mod in_flight;
mod subscription;

pub use builder::RabbitMqSourceBuilder;

use super::{
    connection::{BrokerConnection, ConnectionManager},
    probe::{self, ProbeResult},
};
use crate::{
    byte_budget::ByteBudget,
    session::{Generation, Session},
};
use async_trait::async_trait;
use decode::Decoder;
use lapin::types::ShortString;
use postrider_core::{
    Ack, AckHandle, Capabilities, ClientOptions, Finding, Invalid, ReceivedMessage, RedeliveryWindow, Source,
    SourceError,
};
use std::{fmt, time::Duration};
use subscription::{DeliveryRef, Subscription};
use tokio::time::timeout;

/// Receives from a RabbitMQ queue.
///
/// It connects with the first receive, and reconnects by itself. The queue must exist.
///
/// - **A nacked message is redelivered at once.** RabbitMQ has no delayed nack ([`Ack::Nack`] is `basic.nack` with `requeue`). A quorum
///   queue counts deliveries: set [`with_quorum`](RabbitMqSourceBuilder::with_quorum) to receive the count.
/// - **A rejected message** ([`Ack::Reject`], `basic.nack` without `requeue`) goes to the queue's dead-letter exchange, or is dropped if
///   there is none.
/// - **There is no ack deadline to extend.** After `consumer_timeout` (default: 30 minutes) the broker closes the channel and
///   redelivers every message in flight.
///
/// ```no_run
/// # use postrider_core::{Ack, Source};
/// # use postrider_transports::rabbitmq::RabbitMqSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = RabbitMqSource::builder("amqp://guest:guest@localhost:5672/%2f", "orders")
///     .with_quorum(true)
///     .with_prefetch(100)
///     .build()?;
/// for message in orders.receive(10).await? {
///     println!("{:?}, delivery {:?}", message.incoming.body, message.deliveries);
///     orders.ack(&[(message.ack_handle, Ack::Ack)]).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct RabbitMqSource {
    manager: ConnectionManager,
    queue: ShortString,
    decoder: Decoder,
    prefetch: u16,
    is_quorum: bool,
    request_timeout: Duration,
    budget: ByteBudget,
    session: Session<Subscription>,
}

impl RabbitMqSource {
    /// The queue of this name at this broker, with default settings.
    ///
    /// # Errors
    /// When the URL is not an AMQP URL, a certificate cannot be used, or the queue name is invalid.
    pub fn connect(client: impl Into<ClientOptions>, queue: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(client, queue).build()
    }

    /// The queue of this name at the broker at this URL: `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. Without a path
    /// the virtual host is `/`; in the path it is written `%2f`. The connect timeout covers the connection, the request timeout a channel,
    /// a reply and the closing of the connection; the keepalive is the heartbeat, 10 seconds by default.
    pub fn builder(client: impl Into<ClientOptions>, queue: impl Into<String>) -> RabbitMqSourceBuilder {
        RabbitMqSourceBuilder::new(client.into(), queue.into())
    }

    /// A new subscription, on a new connection if the current one [ended unnoticed](BrokerConnection::has_ended_unnoticed).
    async fn subscribe(&self) -> Result<Subscription, SourceError> {
        let connection = self.manager.connection().await.map_err(SourceError::unavailable)?;
        match self.subscribe_on(&connection).await {
            Err(_) if connection.has_ended_unnoticed() => {
                let new = self.manager.connection().await.map_err(SourceError::unavailable)?;
                self.subscribe_on(&new).await
            }
            subscribed => subscribed,
        }
    }

    async fn subscribe_on(
        &self,
        connection: &Generation<BrokerConnection>,
    ) -> Result<Subscription, SourceError> {
        let opening = Subscription::open(connection.clone(), &self.queue, self.prefetch_in_budget());
        let subscription = timeout(self.request_timeout, opening).await.map_err(|_| {
            self.manager.discard(connection);
            self.timed_out()
        })??;
        connection.mark_served();
        Ok(subscription)
    }

    /// The number of messages that the budget of bytes permits, up to the prefetch.
    fn prefetch_in_budget(&self) -> u16 {
        u16::try_from(self.budget.prefetch(self.prefetch.into())).unwrap_or(self.prefetch)
    }

    async fn receive_batch(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let subscription = self.session.connection(self.subscribe()).await?;
        let deliveries = subscription
            .receive(most, self.prefetch_in_budget())
            .await
            .inspect_err(|_| self.session.suspect(&subscription))?;
        let messages = deliveries.into_iter().map(|delivery| {
            let tag = delivery.delivery_tag;
            let deliveries = if self.is_quorum { decode::deliveries(&delivery) } else { None };
            let incoming = self.decoder.decode(delivery);
            let delivery = DeliveryRef::new(&subscription, tag, self.budget.add(&incoming));
            let message = ReceivedMessage::new(incoming, AckHandle::new(delivery));
            match deliveries {
                Some(count) => message.delivered(count),
                None => message,
            }
        });
        Ok(messages.collect())
    }

    /// Probes the queue and its dead-letter exchange.
    async fn probe(&self) -> Result<(ProbeResult<probe::Queue>, check::DeadLetterTarget), SourceError> {
        let connection = self.manager.connection().await.map_err(SourceError::unavailable)?;
        let probing = async {
            let queue = probe::queue(&connection, &self.queue).await?;
            let dead_letters = check::DeadLetterTarget::probe(&connection, &queue).await?;
            Ok::<_, lapin::Error>((queue, dead_letters))
        };
        let probed = timeout(self.request_timeout, probing).await.map_err(|_| self.timed_out())?;
        probed.map_err(SourceError::unavailable)
    }

    fn timed_out(&self) -> SourceError {
        SourceError::unavailable(format!("no reply within {:?}", self.request_timeout))
    }
}

#[async_trait]
impl Source for RabbitMqSource {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn origin(&self) -> &str {
        self.queue.as_str()
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::new(self.prefetch.into());
        if self.is_quorum { capabilities.with_delivery_counts() } else { capabilities }
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        self.session.unless_closed(self.receive_batch(most)).await
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let gone = || {
            Err(SourceError::stale(
                "the channel that delivered the message has ended; the broker redelivers the message",
            ))
        };
        let Some(subscription) = self.session.current() else {
            return acks.iter().map(|_| gone()).collect();
        };
        let tagged: Vec<_> =
            acks.iter().map(|(handle, ack)| Some((subscription.tag(handle)?, *ack))).collect();
        let known: Vec<_> = tagged.iter().flatten().copied().collect();
        let sent = subscription.send_acks(&known);
        let flushed = if sent.contains(&true) {
            timeout(self.request_timeout, subscription.flush_acks()).await.unwrap_or_else(|_| {
                self.manager.discard(subscription.connection());
                Err(self.timed_out().to_string())
            })
        } else {
            Ok(())
        };
        if flushed.is_err() {
            self.session.suspect(&subscription);
        }
        let mut sent = sent.into_iter();
        let result = |tagged: Option<_>| match tagged.and_then(|_| sent.next()) {
            None => gone(),
            Some(false) => Err(SourceError::stale("the message was acked before")),
            Some(true) => flushed.clone().map_err(|error| {
                SourceError::stale(format!(
                    "the broker may not have received the ack, and may redeliver the message: {error}"
                ))
            }),
        };
        tagged.into_iter().map(result).collect()
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        let current = self.session.current();
        let is_in_flight =
            |handle| current.as_ref().is_some_and(|subscription| subscription.is_in_flight(handle));
        let stale = || SourceError::stale("the message was acked before, or its channel has ended");
        handles.iter().map(|handle| if is_in_flight(handle) { Ok(()) } else { Err(stale()) }).collect()
    }

    /// Unbounded, unless the queue was declared with `x-message-ttl`. A TTL set by a policy is not visible; it can only shorten the window.
    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        let (queue, _) = self.probe().await?;
        Ok(match queue {
            ProbeResult::Found(queue) => check::redelivery_window(&queue),
            ProbeResult::NotVisible(why) => {
                RedeliveryWindow::unbounded(format!("the broker does not show the queue's arguments: {why}"))
            }
            ProbeResult::Missing | ProbeResult::Exclusive => {
                return Err(SourceError::unavailable(format!(
                    "queue {:?} does not exist, or is exclusive to another connection",
                    self.origin()
                )));
            }
        })
    }

    /// Inspects the queue by declarations that the broker refuses and that change nothing. This needs the `configure` permission; without it
    /// the check returns a note. Settings made by a policy are not visible.
    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let (queue, dead_letters) = self.probe().await?;
        Ok(check::queue_findings(&format!("queue {}", self.queue), queue, dead_letters, self.is_quorum))
    }

    async fn close(&self) {
        // Dropped before the connection closes, so that the subscription sends nothing afterwards.
        drop(self.session.close().await);
        self.manager.close().await;
    }
}

impl fmt::Debug for RabbitMqSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSource")
            .field("manager", &self.manager)
            .field("queue", &self.queue.as_str())
            .field("prefetch", &self.prefetch)
            .field("is_quorum", &self.is_quorum)
            .finish_non_exhaustive()
    }
}
