//! NATS JetStream.
//!
//! A message is accepted when a stream says that it has it, and not before. Publishing in NATS has two awaits: the first hands the
//! message to the connection and says nothing; only the second is the stream's word. A batch is sent whole and then answered for one
//! by one.
//!
//! | what NATS says | what it means |
//! |---|---|
//! | acknowledged, or acknowledged as a duplicate | accepted |
//! | no stream holds the subject, nobody answers, the stream is full, no leader yet | refused for now |
//! | too large for the server or the stream, not a subject, a header it cannot carry | refused for good |
//! | silence, a lost connection, an answer that cannot be read | nobody knows |
//! | no connection | nothing gets through |
//!
//! **On the wire.** The destination is the subject. `Nats-Msg-Id` is the message's id, so that the stream drops what comes twice within
//! its window. CloudEvents attributes are headers that begin with `ce-`, percent-encoded as that binding says, the content type
//! among them as `ce-datacontenttype`; in the other formats it is `Content-Type`. A message's own headers keep their names and
//! values; what NATS would change on the way, or take for an order, is refused.

mod answer;
mod builder;
mod check;
mod inbox;
mod link;
mod source;
mod wire;

pub use builder::NatsBuilder;
pub use source::{NatsSource, NatsSourceBuilder};

use crate::line::{Doubt, Line, Link};
use async_trait::async_trait;
use link::NatsLink;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::{fmt, sync::Arc};

/// At most so many go together: enough to fill the line, and little to send again when it breaks.
const BATCH: usize = 500;

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
    line: Line<NatsLink>,
}

impl NatsTransport {
    /// A transport to the server at `url`, such as `nats://user:password@host:4222`, with `tls` for TLS; several with commas in
    /// between. It connects with the first message, and again by itself.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn connect(url: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(url).build()
    }

    /// The same with settings.
    pub fn builder(url: impl Into<String>) -> NatsBuilder {
        NatsBuilder::new(url.into())
    }

    fn with(options: NatsBuilder) -> Self {
        let line = Line::new(options.acks_pending);
        Self { options, line }
    }

    async fn link(&self) -> Result<Arc<NatsLink>, PublishError> {
        let connecting = async { NatsLink::connect(&self.options).await.map_err(PublishError::down) };
        self.line.link(connecting).await
    }

    /// Sends all, then waits for what is said of each.
    async fn publish_part(&self, part: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let _room = self.line.room(part.len()).await;
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => return part.iter().map(|_| Err(PublishError::down(error.to_string()))).collect(),
        };
        let stream = self.options.stream.as_deref();
        let mut doubt = Doubt::about(&*link);
        let answers = link.publish(part, stream, self.options.ack_timeout).await;
        doubt.is_cleared = !answers.iter().any(|answer| matches!(answer, Err(PublishError::Unknown { .. })));
        answers
    }
}

#[async_trait]
impl Transport for NatsTransport {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn capacity(&self) -> Capacity {
        // How large a message may be is the server's to say, and known when it was asked first.
        Capacity::of(BATCH.min(self.options.acks_pending))
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(self.capacity().batch) {
            answers.extend(self.publish_part(part).await);
        }
        answers
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let link = self.link().await?;
        let found = check::findings(&link, destinations, self.options.stream.as_deref()).await;
        if found.is_err() {
            link.doubt();
        }
        found
    }

    async fn close(&self) {
        if let Some(link) = self.line.close().await {
            link.close().await;
        }
    }
}

impl fmt::Debug for NatsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsTransport").field("options", &self.options).finish_non_exhaustive()
    }
}
