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
mod session;

pub use builder::NatsSourceBuilder;

use super::{builder::NatsBuilder, connection::NatsConnection};
use crate::reconnect::ReusableConnection;
use async_nats::{client::Request, jetstream};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use in_flight::{DeliveryRef, InFlight};
use postrider_core::{
    Ack, AckHandle, Capabilities, ClientOptions, Finding, Invalid, ReceivedMessage, RedeliveryWindow, Source,
    SourceError,
};
use session::{Delivery, Session};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

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
    current: Mutex<Option<Arc<Session>>>,
    is_closed: watch::Sender<bool>,
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

    /// The current session, or a new one.
    async fn session(&self) -> Result<Arc<Session>, SourceError> {
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| session.connection.is_usable()) {
            return Ok(Arc::clone(session));
        }
        *current = None;
        if *self.is_closed.borrow() {
            return Err(closed());
        }
        let connection = NatsConnection::connect(&self.options).await.map_err(SourceError::unavailable)?;
        let session = Arc::new(Session::open(connection, self).await?);
        let ack_deadline = u64::try_from(session.ack_deadline().as_nanos()).unwrap_or(u64::MAX);
        self.ack_deadline.store(ack_deadline, Ordering::Relaxed);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn receive_batch(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let session = self.session().await?;
        let deliveries = session.receive(most.min(self.batch_size), self.options.request_timeout).await;
        let deliveries = deliveries.inspect_err(|_| session.connection.mark_suspect())?;
        let to_message = |Delivery { message, reply, sequence, deliveries }| {
            let handle = AckHandle::new(self.in_flight.add(sequence, reply));
            ReceivedMessage::new(decode::decode(&self.stream, message), handle).delivered(deliveries)
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
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return all(&|| SourceError::unavailable(error.to_string())),
        };
        let confirmed = part.iter().map(async |ack| match ack {
            Some((delivery, ack)) => session.send_ack(delivery.reply.clone(), ack.clone()).await,
            None => Err(stale()),
        });
        timeout(self.options.request_timeout, join_all(confirmed)).await.unwrap_or_else(|_| {
            session.connection.mark_suspect();
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

fn closed() -> SourceError {
    SourceError::unavailable("the source is closed")
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
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(closed()),
            received = self.receive_batch(most) => received,
        }
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
        let session = self.session().await?;
        let window = check::redelivery_window(&session.connection, &self.stream).await;
        window.inspect_err(|_| session.connection.mark_suspect())
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        // A missing stream or consumer is a finding, so the check opens no session.
        let connection = NatsConnection::connect(&self.options).await.map_err(SourceError::unavailable)?;
        let findings =
            check::findings(&connection, &self.stream, &self.durable, self.consumer_spec.is_some()).await;
        connection.close().await;
        findings
    }

    async fn close(&self) {
        if self.is_closed.send_replace(true) {
            return;
        }
        // A call that is connecting gives up the lock; one that is not polled any more is not waited for.
        let current = timeout(self.options.request_timeout, self.current.lock()).await.ok();
        let Some(session) = current.and_then(|mut current| current.take()) else { return };
        let mut unacked = session.unsubscribe().await;
        unacked.extend(self.in_flight.drain());
        let nacks =
            unacked.into_iter().map(|reply| session.send_ack(reply, jetstream::AckKind::Nak(None).into()));
        timeout(self.options.request_timeout, join_all(nacks)).await.ok();
        session.connection.close().await;
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
