//! Receives from a RabbitMQ queue.
//!
//! There is one channel with one consumer at a time, a [`Session`]. A delivery can be acked only on the channel that delivered it: when the
//! channel ends, for whatever reason, the broker requeues every unacked delivery, and their ack handles are stale.
//!
//! **The meaning of `Ok`.** AMQP has no reply to an acknowledgement. But the broker reads a channel in order, so every batch of acks ends
//! with a request that changes nothing, and once the broker has replied to it, it has read the acks before it. They may not be on disk
//! yet: a broker that is killed at that moment may redeliver such a message.

mod builder;
mod check;
mod decode;
mod in_flight;
mod session;

pub use builder::RabbitMqSourceBuilder;

use super::{
    connection::{ConnectionManager, lock},
    probe::{self, ProbeResult},
};
use async_trait::async_trait;
use decode::Decoder;
use lapin::types::ShortString;
use postrider_core::{
    Ack, AckHandle, Capabilities, ClientOptions, Finding, Invalid, ReceivedMessage, RedeliveryWindow, Source,
    SourceError,
};
use session::{DeliveryRef, Session};
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

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
    current: Mutex<Option<Arc<Session>>>,
    /// One call opens a session, the others wait for it.
    opening: tokio::sync::Mutex<()>,
    is_closed: watch::Sender<bool>,
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

    /// The current session, or a new one.
    async fn session(&self) -> Result<Arc<Session>, SourceError> {
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        let _opening = self.opening.lock().await;
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        let connection = self.manager.connection().await.map_err(SourceError::unavailable)?;
        let opening = Session::open(Arc::clone(&connection), &self.queue, self.prefetch);
        let session = match timeout(self.request_timeout, opening).await {
            Ok(opened) => Arc::new(opened?),
            Err(_) => {
                self.manager.discard(&connection);
                return Err(self.timed_out());
            }
        };
        *lock(&self.current) = Some(Arc::clone(&session));
        Ok(session)
    }

    fn usable(&self) -> Option<Arc<Session>> {
        lock(&self.current).clone().filter(|session| session.is_open())
    }

    /// The next call opens a new session. The broker redelivers the messages in flight.
    fn discard(&self, session: &Arc<Session>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            *current = None;
        }
    }

    async fn receive_batch(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let session = self.session().await?;
        let deliveries = match session.receive(most).await {
            Ok(deliveries) => deliveries,
            Err(error) => {
                self.discard(&session);
                return Err(error);
            }
        };
        let messages = deliveries.into_iter().map(|delivery| {
            let handle = AckHandle::new(DeliveryRef::new(&session, delivery.delivery_tag));
            let deliveries = if self.is_quorum { decode::deliveries(&delivery) } else { None };
            let message = ReceivedMessage::new(self.decoder.decode(delivery), handle);
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
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(SourceError::unavailable("the source is closed")),
            received = self.receive_batch(most) => received,
        }
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let gone = || {
            Err(SourceError::stale(
                "the channel that delivered the message has ended; the broker redelivers the message",
            ))
        };
        let Some(session) = self.usable() else { return acks.iter().map(|_| gone()).collect() };
        let tagged: Vec<_> = acks.iter().map(|(handle, ack)| Some((session.tag(handle)?, *ack))).collect();
        let known: Vec<_> = tagged.iter().flatten().copied().collect();
        let sent = session.send_acks(&known);
        let flushed = if sent.contains(&true) {
            timeout(self.request_timeout, session.flush_acks()).await.unwrap_or_else(|_| {
                self.manager.discard(session.connection());
                Err(self.timed_out().to_string())
            })
        } else {
            Ok(())
        };
        if flushed.is_err() {
            self.discard(&session);
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
        let session = self.usable();
        let is_in_flight = |handle| session.as_ref().is_some_and(|session| session.is_in_flight(handle));
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
        if self.is_closed.send_replace(true) {
            return;
        }
        // Dropped before the connection closes, so that the session sends nothing afterwards.
        drop(lock(&self.current).take());
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
