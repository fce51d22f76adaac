//! Receives from a durable consumer of NATS JetStream.
//!
//! A pull request asks for a number of messages and stays with the server for some seconds. There is one request at a time, and its
//! messages are buffered in the client until they are received, so that a call may be dropped at any await. A message that is not acked
//! within the consumer's `ack_wait` is redelivered, to any client of the consumer.
//!
//! **The meaning of `Ok`.** Every ack asks the server for a confirmation, and all acks of a batch are in flight at once. The ack belongs to
//! the message, not to the connection: after a connection is lost, the ack is sent over the next one and is valid.

mod builder;
mod check;
mod decode;
mod in_flight;
mod subscription;

pub use builder::NatsSourceBuilder;

use super::{builder::NatsBuilder, connection::NatsConnection};
use crate::{
    byte_budget::ByteBudget,
    session::{Generation, Session},
};
use async_nats::{client::Request, jetstream};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use in_flight::{DeliveryRef, InFlight};
use postrider_core::{
    Ack, AckHandle, Capabilities, ClientOptions, Finding, Invalid, ReceivedMessage, RedeliveryWindow, Source,
    SourceError,
};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use subscription::{Delivery, Subscription};
use tokio::time::timeout;

const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Maximum number of acks in flight.
const MAX_ACKS_IN_FLIGHT: usize = 500;

/// Receives from a durable pull consumer of NATS JetStream.
///
/// It connects with the first receive, and reconnects by itself. The stream must exist, and so must the consumer, unless
/// [`with_created_consumer`](NatsSourceBuilder::with_created_consumer) creates it.
///
/// It counts deliveries and supports delayed nacks ([`Ack::Nack`] is a `-NAK` with a delay). The ack deadline is the consumer's `ack_wait`;
/// [`capabilities`](Source::capabilities) has the effective value once the source has connected. [`Ack::Reject`] is `+TERM`: the message
/// stays in the stream as long as the stream keeps it, and is never redelivered.
///
/// ```no_run
/// # use postrider_core::{Ack, Source};
/// # use postrider_transports::nats::NatsSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = NatsSource::connect("nats://127.0.0.1:4222", "ORDERS", "billing")?;
/// for message in orders.receive(10).await? {
///     println!("{:?}, delivery {:?}", message.incoming.body, message.deliveries);
///     orders.ack(&[(message.ack_handle, Ack::Ack)]).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct NatsSource {
    options: NatsBuilder,
    stream: String,
    durable: String,
    consumer_spec: Option<builder::ConsumerSpec>,
    batch_size: usize,
    /// Ack deadline in nanoseconds.
    ack_deadline: AtomicU64,
    in_flight: InFlight,
    budget: ByteBudget,
    session: Session<Subscription>,
}

impl NatsSource {
    /// The durable consumer of a stream, on this server, with default settings.
    ///
    /// # Errors
    /// When the URL or a name is invalid, or a certificate cannot be used.
    pub fn connect(
        client: impl Into<ClientOptions>,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> Result<Self, Invalid> {
        Self::builder(client, stream, durable).build()
    }

    /// The durable consumer of a stream, on the server at this URL, such as `nats://user:password@host:4222`, or `tls://` for TLS;
    /// several servers are separated by commas. The connect timeout applies to each server. The request timeout applies to the
    /// confirmation of an ack and to any reply to a pull request: a connection without a reply for that time is closed.
    pub fn builder(
        client: impl Into<ClientOptions>,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> NatsSourceBuilder {
        NatsSourceBuilder::new(client.into(), stream.into(), durable.into())
    }

    /// The current subscription, or a new one.
    async fn subscription(&self) -> Result<Generation<Subscription>, SourceError> {
        let subscribing = async {
            let connection =
                NatsConnection::connect(&self.options).await.map_err(SourceError::unavailable)?;
            let subscription = Subscription::open(connection, self).await?;
            let ack_deadline = u64::try_from(subscription.ack_deadline().as_nanos()).unwrap_or(u64::MAX);
            self.ack_deadline.store(ack_deadline, Ordering::Relaxed);
            Ok(subscription)
        };
        self.session.connection(subscribing).await
    }

    async fn receive_batch(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let subscription = self.subscription().await?;
        let deliveries =
            subscription.receive(most.min(self.batch_size), &self.budget, self.options.request_timeout).await;
        let deliveries = deliveries.inspect_err(|_| self.session.suspect(&subscription))?;
        let to_message = |Delivery { message, reply, sequence, deliveries }| {
            let incoming = decode::decode(&self.stream, message);
            let handle = AckHandle::new(self.in_flight.add(sequence, reply, self.budget.add(&incoming)));
            ReceivedMessage::new(incoming, handle).delivered(deliveries)
        };
        Ok(deliveries.into_iter().map(to_message).collect())
    }

    /// Sends the acks and waits until the server has confirmed each. Acks left unconfirmed by a lost connection are sent once more, over the
    /// next one: an ack that the server receives twice counts once.
    async fn send_acks(&self, acks: &[Option<(&DeliveryRef, Bytes)>]) -> Vec<Result<(), SourceError>> {
        let mut results = Vec::with_capacity(acks.len());
        for part in acks.chunks(MAX_ACKS_IN_FLIGHT) {
            let mut first = self.send_acks_once(part).await;
            if first.iter().any(is_unavailable) {
                let rest: Vec<_> = part
                    .iter()
                    .zip(&first)
                    .map(|(ack, first)| ack.clone().filter(|_| is_unavailable(first)))
                    .collect();
                let second = self.send_acks_once(&rest).await;
                let open = first.iter_mut().zip(second).filter(|(first, _)| is_unavailable(first));
                open.for_each(|(first, second)| *first = second);
            }
            results.extend(first);
        }
        results
    }

    async fn send_acks_once(&self, part: &[Option<(&DeliveryRef, Bytes)>]) -> Vec<Result<(), SourceError>> {
        let all = |error: &dyn Fn() -> SourceError| part.iter().map(|_| Err(error())).collect();
        if part.iter().all(Option::is_none) {
            return all(&stale);
        }
        let subscription = match self.subscription().await {
            Ok(subscription) => subscription,
            Err(error) => return all(&|| SourceError::unavailable(error.to_string())),
        };
        let confirmed = part.iter().map(async |ack| match ack {
            Some((delivery, ack)) => subscription.send_ack(delivery.reply.clone(), ack.clone()).await,
            None => Err(stale()),
        });
        timeout(self.options.request_timeout, join_all(confirmed)).await.unwrap_or_else(|_| {
            self.session.suspect(&subscription);
            all(&|| SourceError::unavailable("no confirmation of the ack within the timeout"))
        })
    }

    /// The acks to send; `None` for deliveries that are not in flight any more.
    fn pending_acks<'t>(
        &self,
        handles: impl Iterator<Item = (&'t AckHandle, Bytes)>,
    ) -> Vec<Option<(&'t DeliveryRef, Bytes)>> {
        handles.map(|(handle, ack)| Some((self.in_flight.delivery(handle)?, ack))).collect()
    }
}

fn ack_kind(ack: Ack) -> jetstream::AckKind {
    match ack {
        Ack::Ack => jetstream::AckKind::Ack,
        Ack::Nack { after } if after.is_zero() => jetstream::AckKind::Nak(None),
        Ack::Nack { after } => jetstream::AckKind::Nak(Some(after.min(MAX_DELAY))),
        Ack::Reject => jetstream::AckKind::Term,
    }
}

fn is_unavailable(result: &Result<(), SourceError>) -> bool {
    matches!(result, Err(SourceError::Unavailable { .. }))
}

fn stale() -> SourceError {
    SourceError::stale("the message was acked before, or has been redelivered since")
}

#[async_trait]
impl Source for NatsSource {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn origin(&self) -> &str {
        &self.stream
    }

    fn capabilities(&self) -> Capabilities {
        let ack_deadline = Duration::from_nanos(self.ack_deadline.load(Ordering::Relaxed));
        Capabilities::new(MAX_ACKS_IN_FLIGHT)
            .with_delivery_counts()
            .with_max_delay(MAX_DELAY)
            .with_ack_deadline(ack_deadline)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        self.session.unless_closed(self.receive_batch(most)).await
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let pending = self.pending_acks(acks.iter().map(|(handle, ack)| (handle, ack_kind(*ack).into())));
        let results = self.send_acks(&pending).await;
        for (ack, result) in pending.iter().zip(&results) {
            if let (Some((delivery, _)), Ok(())) = (ack, result) {
                delivery.remove();
            }
        }
        results
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        let pending =
            self.pending_acks(handles.iter().map(|handle| (handle, jetstream::AckKind::Progress.into())));
        self.send_acks(&pending).await
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        let subscription = self.subscription().await?;
        let window = check::redelivery_window(&subscription.connection, &self.stream).await;
        window.inspect_err(|_| self.session.suspect(&subscription))
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        // A missing stream or consumer is a finding, so the check opens no subscription.
        let connection = NatsConnection::connect(&self.options).await.map_err(SourceError::unavailable)?;
        let findings =
            check::findings(&connection, &self.stream, &self.durable, self.consumer_spec.is_some()).await;
        connection.close().await;
        findings
    }

    async fn close(&self) {
        let Some(subscription) = self.session.close().await else { return };
        let mut unacked = subscription.unsubscribe().await;
        unacked.extend(self.in_flight.drain());
        let nacks = unacked
            .into_iter()
            .map(|reply| subscription.send_ack(reply, jetstream::AckKind::Nak(None).into()));
        timeout(self.options.request_timeout, join_all(nacks)).await.ok();
        subscription.connection.close().await;
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource")
            .field("options", &self.options)
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}
