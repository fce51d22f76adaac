//! Redis Streams, written and read.
//!
//! A batch is added in one go and not as a transaction, so that each message has its own answer: one that is refused harms none of
//! its neighbours, and none of them hides it. Nothing is ever trimmed.
//!
//! | what Redis says | what it means |
//! |---|---|
//! | a place in the stream (and enough replicas have it, where that is asked for) | accepted |
//! | no memory, not permitted, on another node, no such stream where it must exist | refused for now |
//! | something else has that name, a value is too large, a header has the name of a field | refused for good |
//! | silence, a lost connection, too few replicas | nobody knows |
//! | no connection, a replica, still loading, disk errors | nothing gets through |
//!
//! **An entry.** The destination is the stream. Its fields are `id`, `key` if it has one, `content_type`, CloudEvents attributes
//! as `ce_…`, the message's own headers under their own names, and at last `body`. Values are the bytes they were. Redis does not
//! recognise what comes twice; whoever reads does, by `id`.
//!
//! **Streams are made by the first message** unless [`must_exist`](RedisBuilder::must_exist) is asked for: that is how Redis is used, and
//! readers that come later create their groups from the start of a stream and miss nothing.

mod answer;
mod builder;
mod check;
mod entry;
mod link;
mod server;
mod source;

pub use builder::RedisBuilder;
pub use source::{RedisSource, RedisSourceBuilder};

use crate::line::{Doubt, Line, Link};
use async_trait::async_trait;
use link::RedisLink;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use server::Server;
use std::{fmt, sync::Arc, time::Duration};

const BATCH: usize = 500;
/// What is sent together is held in memory here and there.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
const UNDER_WAY: usize = 5_000;

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
    line: Line<RedisLink>,
}

impl RedisTransport {
    /// A transport to the server at `url`, such as `redis://user:password@host:6379/0`, with `rediss` for TLS. It connects with the
    /// first message, and again by itself.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn connect(url: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(url).build()
    }

    /// The same with settings.
    pub fn builder(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder::new(url.into())
    }

    fn with(server: Server, must_exist: bool, replicas: Option<(u32, Duration)>) -> Self {
        Self { server, must_exist, replicas, line: Line::new(UNDER_WAY) }
    }

    async fn link(&self) -> Result<Arc<RedisLink>, PublishError> {
        self.line.link(RedisLink::connect(&self.server)).await
    }

    async fn publish_part(&self, part: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let _room = self.line.room(part.len()).await;
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => return part.iter().map(|_| Err(PublishError::down(error.to_string()))).collect(),
        };
        let mut doubt = Doubt::about(&*link);
        let answers = link.add(part, self.must_exist, self.replicas).await;
        // A server that became a replica does not say where the primary is now. A new connection may find it.
        let is_bad =
            |answer: &_| matches!(answer, Err(PublishError::Unknown { .. } | PublishError::Down { .. }));
        doubt.is_cleared = !answers.iter().any(is_bad);
        answers
    }
}

#[async_trait]
impl Transport for RedisTransport {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(BATCH).with_batch_bytes(BATCH_BYTES)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(BATCH) {
            answers.extend(self.publish_part(part).await);
        }
        answers
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let link = self.link().await?;
        let found =
            check::findings(&link, destinations, self.must_exist, self.replicas.map(|(count, _)| count));
        let found = found.await;
        if found.is_err() {
            link.doubt();
        }
        found
    }

    async fn close(&self) {
        // Dropped, it is closed.
        self.line.close().await;
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
