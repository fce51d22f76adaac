//! Redis Streams: transport and source.
//!
//! A batch is one pipeline and not a transaction, so that each message has its own publish result: a refused message does not harm
//! its neighbours, and they do not hide it. The transport never trims a stream.
//!
//! | reply | publish result |
//! |---|---|
//! | an entry id (and enough replicas have the entry, with `with_replicas`) | accepted |
//! | not permitted, on another node, no such stream with `must_exist` | address unavailable |
//! | another type of key has that name, a value is too large, a header has the name of a field | reject |
//! | timeout, lost connection, too few replicas | unknown |
//! | no connection, a replica, still loading, disk errors, out of memory | unavailable |
//!
//! **Entry.** The destination is the stream. The fields are `id`, `key` if there is one, `content_type`, CloudEvents attributes
//! as `ce_…`, the message's own headers under their own names, and last `body`. Values are stored byte for byte. Redis does not
//! deduplicate; consumers do, by `id`.
//!
//! **The first message creates a stream** unless [`must_exist`](RedisBuilder::must_exist) is set: that is how Redis is commonly used, and
//! consumers that start later create their groups from the beginning of a stream and miss nothing.

mod builder;
mod check;
mod connection;
mod error;
mod server;
mod source;
mod wire;

pub use builder::RedisBuilder;
pub use source::{RedisSource, RedisSourceBuilder};

use crate::{
    in_flight_limit::InFlightLimit,
    session::{Generation, Session, SessionError},
};
use async_trait::async_trait;
use connection::RedisConnection;
use postrider_core::{Capacity, ClientOptions, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use server::Server;
use std::{fmt, time::Duration};

const BATCH_SIZE: usize = 500;
/// A batch is buffered in memory by the client and by the server.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
const MAX_IN_FLIGHT: usize = 5_000;

/// Publishes to Redis Streams.
///
/// ```no_run
/// # use postrider_transports::redis::RedisTransport;
/// # use std::time::Duration;
/// # fn example() -> Result<(), postrider_core::Invalid> {
/// let plain = RedisTransport::connect("redis://127.0.0.1:6379")?;
/// let careful = RedisTransport::builder("rediss://user:password@redis.example:6380/0")
///     .must_exist()
///     .with_replicas(1, Duration::from_secs(1))
///     .build()?;
/// # Ok(())
/// # }
/// ```
pub struct RedisTransport {
    server: Server,
    must_exist: bool,
    replicas: Option<(u32, Duration)>,
    in_flight: InFlightLimit,
    session: Session<RedisConnection>,
}

impl RedisTransport {
    /// A transport to the server at this URL, such as `redis://user:password@host:6379/0`, or `rediss://` for TLS. It connects with
    /// the first message, and reconnects by itself.
    ///
    /// # Errors
    /// When the URL is invalid, or a certificate cannot be used.
    pub fn connect(client: impl Into<ClientOptions>) -> Result<Self, Invalid> {
        Self::builder(client).build()
    }

    /// A builder for the same server, with more settings. The time spent waiting for replicas is added to the request timeout. After it
    /// the publish result is unknown.
    pub fn builder(client: impl Into<ClientOptions>) -> RedisBuilder {
        RedisBuilder::new(client.into())
    }

    fn with(server: Server, must_exist: bool, replicas: Option<(u32, Duration)>) -> Self {
        let (in_flight, session) = (InFlightLimit::new(MAX_IN_FLIGHT), Session::new(server.open_timeout()));
        Self { server, must_exist, replicas, in_flight, session }
    }

    async fn connection(&self) -> Result<Generation<RedisConnection>, PublishError> {
        self.session.connection(RedisConnection::connect(&self.server)).await
    }

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
        let mut guard = self.session.suspect_unless_complete(&connection);
        let results = connection.add(part, self.must_exist, self.replicas).await;
        // A server that became a replica does not name its primary. A new connection may reach the primary.
        let is_bad = |result: &_| {
            matches!(result, Err(PublishError::Unknown { .. } | PublishError::Unavailable { .. }))
        };
        guard.is_complete = !results.iter().any(is_bad);
        results
    }
}

#[async_trait]
impl Transport for RedisTransport {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(BATCH_SIZE).with_batch_bytes(BATCH_BYTES)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut results = Vec::with_capacity(batch.len());
        for part in batch.chunks(BATCH_SIZE) {
            results.extend(self.publish_part(part).await);
        }
        results
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let connection = self.connection().await?;
        let findings = check::findings(
            &connection,
            destinations,
            self.must_exist,
            self.replicas.map(|(count, _)| count),
        );
        let findings = findings.await;
        if findings.is_err() {
            self.session.suspect(&connection);
        }
        findings
    }

    async fn close(&self) {
        // Dropping the connection closes it.
        self.in_flight.close().await;
        self.session.close().await;
    }
}

impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTransport")
            .field("server", &self.server.address)
            .field("must_exist", &self.must_exist)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
