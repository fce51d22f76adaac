//! NATS JetStream.
//!
//! A message is accepted when a stream has acknowledged it, and not before. Publishing to JetStream has two awaits: the first hands the
//! message to the connection and proves nothing; only the second is the stream's acknowledgement. The transport sends a whole batch and
//! then awaits the acknowledgement of each message.
//!
//! | reply | publish result |
//! |---|---|
//! | acknowledged, or acknowledged as a duplicate | accepted |
//! | no stream has the subject, no responders, publishing to the subject is not permitted | address unavailable |
//! | the stream is full, no leader yet | retry |
//! | JetStream has no memory or storage left | unavailable |
//! | too large for the server or the stream, invalid subject, invalid header | reject |
//! | timeout, lost connection, unreadable reply | unknown |
//! | no connection | unavailable |
//!
//! **On the wire.** The destination is the subject. `Nats-Msg-Id` is the message's id, so that the stream drops duplicates within
//! its window. CloudEvents attributes are headers with the prefix `ce-`, percent-encoded as the binding requires, including the content
//! type as `ce-datacontenttype`; in the other formats it is `Content-Type`. A message's own headers keep their names and values; the
//! transport rejects headers that NATS would change in transit or interpret as an instruction.

mod builder;
mod check;
mod connection;
mod error;
mod reply_inbox;
mod source;
mod wire;

pub use builder::NatsBuilder;
pub use source::{NatsSource, NatsSourceBuilder};

use crate::{
    in_flight_limit::InFlightLimit,
    session::{Generation, Session, SessionError},
};
use async_trait::async_trait;
use connection::NatsConnection;
use postrider_core::{Capacity, ClientOptions, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::fmt;

/// Batch size: enough to use the connection fully, and little to send again when it breaks.
const BATCH_SIZE: usize = 500;

/// Publishes to the streams of NATS JetStream.
///
/// ```no_run
/// # use postrider_transports::nats::NatsTransport;
/// # fn example() -> Result<(), postrider_core::Invalid> {
/// let plain = NatsTransport::connect("nats://127.0.0.1:4222")?;
/// let cluster = NatsTransport::builder("tls://user:password@a:4222,tls://b:4222,tls://c:4222")
///     .with_stream("ORDERS")
///     .build()?;
/// # Ok(())
/// # }
/// ```
pub struct NatsTransport {
    options: NatsBuilder,
    in_flight: InFlightLimit,
    session: Session<NatsConnection>,
}

impl NatsTransport {
    /// A transport to the server at this URL, such as `nats://user:password@host:4222`, or `tls://` for TLS; several servers are
    /// separated by commas. It connects with the first message, and reconnects by itself.
    ///
    /// # Errors
    /// When the URL is invalid, or a certificate cannot be used.
    pub fn connect(client: impl Into<ClientOptions>) -> Result<Self, Invalid> {
        Self::builder(client).build()
    }

    /// A builder for the same server, with more settings. The connect timeout applies to each server, and the request timeout to the
    /// acknowledgement of a message: after it the publish result is unknown. The keepalive is the interval of pings, a minute by default.
    pub fn builder(client: impl Into<ClientOptions>) -> NatsBuilder {
        NatsBuilder::new(client.into())
    }

    fn with(options: NatsBuilder) -> Self {
        let in_flight = InFlightLimit::new(options.max_acks_pending);
        Self { in_flight, session: Session::new(options.connect_timeout()), options }
    }

    async fn connection(&self) -> Result<Generation<NatsConnection>, PublishError> {
        let connecting =
            async { NatsConnection::connect(&self.options).await.map_err(PublishError::unavailable) };
        self.session.connection(connecting).await
    }

    /// Sends all messages, then waits for the acknowledgement of each.
    async fn publish_part(&self, part: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let Some(_permit) = self.in_flight.reserve(part.len()).await else {
            return part.iter().map(|_| Err(PublishError::closed())).collect();
        };
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => {
                return part.iter().map(|_| Err(PublishError::unavailable(error.to_string()))).collect();
            }
        };
        let stream = self.options.stream.as_deref();
        let mut guard = self.session.suspect_unless_complete(&connection);
        let results = connection.publish(part, stream, self.options.request_timeout).await;
        guard.is_complete = !results.iter().any(|result| matches!(result, Err(PublishError::Unknown { .. })));
        results
    }
}

#[async_trait]
impl Transport for NatsTransport {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn capacity(&self) -> Capacity {
        // The server decides the maximum message size, which is known after the first connect.
        Capacity::of(BATCH_SIZE.min(self.options.max_acks_pending))
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut results = Vec::with_capacity(batch.len());
        for part in batch.chunks(self.capacity().batch) {
            results.extend(self.publish_part(part).await);
        }
        results
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let connection = self.connection().await?;
        let findings = check::findings(&connection, destinations, self.options.stream.as_deref()).await;
        if findings.is_err() {
            self.session.suspect(&connection);
        }
        findings
    }

    async fn close(&self) {
        self.in_flight.close().await;
        if let Some(connection) = self.session.close().await {
            connection.close().await;
        }
    }
}

impl fmt::Debug for NatsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsTransport").field("options", &self.options).finish_non_exhaustive()
    }
}
