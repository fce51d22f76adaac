//! RabbitMQ, by AMQP 0-9-1.
//!
//! A message is accepted when the broker has confirmed it *and* has not returned it ([`publish`](self) explains why both matter).
//! Messages are persistent, mandatory, and carry their id as `message_id`.
//!
//! | broker's reply | publish result |
//! |---|---|
//! | confirmed, not returned | accepted |
//! | returned: no queue is bound | retry, with exchange and routing key |
//! | the exchange does not exist, or publishing to it is not permitted; the queue of the default exchange does not exist | address unavailable |
//! | nacked: a queue is full and rejects | retry |
//! | too large, or not representable in AMQP | reject |
//! | memory or disk alarm (`connection.blocked`) | unavailable, before anything is sent; messages in flight wait |
//! | connection or channel lost with messages in flight | unknown |
//! | no connection | unavailable |
//!
//! **One bad message harms only itself.** The broker closes the channel when a message is published to a missing exchange, and
//! drops every unconfirmed message of that channel. So the messages of a batch use one channel per exchange. When the broker closes a
//! channel because of a single message and does not say which, the next messages to that exchange are published one by one until all
//! of them are accepted.

mod address;
mod broker;
mod check;
mod connection;
mod error;
mod options;
mod probe;
mod publish;
mod source;
mod wire;

pub use options::RabbitMqOptions;
pub use source::{RabbitMqSource, RabbitMqSourceBuilder};

use crate::session::Generation;
use async_trait::async_trait;
use connection::{BrokerConnection, ConnectError, ConnectionManager};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use lapin::types::ShortString;
use postrider_core::{Capacity, ClientOptions, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use publish::PublishResult;
use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::RwLock, time::timeout};
use wire::Publication;

/// At most this many exchanges of one batch are published to concurrently.
const EXCHANGE_CONCURRENCY: usize = 8;

/// Publishes to RabbitMQ.
///
/// A destination is `exchange/routing.key`: the text before the first `/` is the exchange. `exchange/` has an empty routing key, for
/// fanout exchanges. `/name`, or a plain `name` without `/`, is the queue of that name, by the default exchange. If an address
/// template begins with a placeholder, write the leading `/` yourself: the value of the placeholder may contain one.
///
/// ```no_run
/// # use postrider_core::Transport;
/// # use postrider_transports::rabbitmq::RabbitMqTransport;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let rabbitmq = RabbitMqTransport::new("amqp://guest:guest@localhost:5672/%2f")?;
/// for finding in rabbitmq.check(&["shop/order.placed"]).await? {
///     println!("{}: {}: {} ({})", finding.severity, finding.subject, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RabbitMqTransport {
    manager: ConnectionManager,
    prefix: String,
    capacity: Capacity,
    request_timeout: Duration,
    /// Exchanges to which messages are published one by one, after an ambiguous channel error.
    one_by_one: Mutex<BTreeSet<ShortString>>,
    /// Read-locked by every call; `close` waits for the write lock.
    in_flight: RwLock<()>,
    is_closed: AtomicBool,
}

impl RabbitMqTransport {
    /// A transport to this broker with default options. It connects with the first publish.
    ///
    /// # Errors
    /// When the URL is not an AMQP URL, or a certificate cannot be used.
    pub fn new(client: impl Into<ClientOptions>) -> Result<Self, Invalid> {
        RabbitMqOptions::new(client).build()
    }

    /// Encodes the messages of a batch. Messages that cannot be sent get their result here.
    fn encode<'a>(
        &self,
        batch: &'a [Outgoing],
        results: &mut [Option<PublishResult>],
    ) -> Vec<Publication<'a>> {
        let mut publications = Vec::with_capacity(batch.len());
        for (index, outgoing) in batch.iter().enumerate() {
            let max_bytes = self.capacity.message_bytes.unwrap_or(usize::MAX);
            let encoded = if outgoing.size() > max_bytes {
                Err(PublishError::reject(format!(
                    "the message has {} bytes; {max_bytes} are allowed (`with_message_bytes`)",
                    outgoing.size()
                )))
            } else {
                Publication::encode(index, outgoing, &self.prefix)
            };
            match encoded {
                Ok(publication) => publications.push(publication),
                Err(error) => results[index] = Some(Err(error)),
            }
        }
        publications
    }

    async fn send(
        &self,
        batch: &[Outgoing],
        results: &mut [Option<PublishResult>],
    ) -> Result<(), PublishError> {
        let closed = || PublishError::unavailable("the transport is closed");
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let _in_flight = self.in_flight.read().await;
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let mut publications = self.encode(batch, results);
        if publications.is_empty() {
            return Ok(());
        }
        let connection = self.manager.connection().await.map_err(PublishError::unavailable)?;
        if connection.is_blocked() {
            return Err(PublishError::unavailable(
                "the broker has a memory or disk alarm and blocks publishers (connection.blocked)",
            ));
        }
        let frame_bytes = connection.frame_bytes();
        publications.retain(|publication| match publication.check_frame_size(frame_bytes) {
            Ok(()) => true,
            Err(error) => {
                results[publication.index] = Some(Err(error));
                false
            }
        });
        let sending: Vec<BoxFuture<'_, Vec<(usize, PublishResult)>>> = by_exchange(publications)
            .into_iter()
            .map(|publications| self.send_to_exchange(&connection, publications).boxed())
            .collect();
        let mut sending = stream::iter(sending).buffer_unordered(EXCHANGE_CONCURRENCY);
        while let Some(sent) = sending.next().await {
            for (index, result) in sent {
                results[index] = Some(result);
            }
        }
        Ok(())
    }

    /// Publishes the messages of one exchange.
    async fn send_to_exchange(
        &self,
        connection: &Generation<BrokerConnection>,
        publications: Vec<Publication<'_>>,
    ) -> Vec<(usize, PublishResult)> {
        let Some(exchange) = publications.first().map(|publication| publication.address.exchange.clone())
        else {
            return Vec::new();
        };
        let is_one_by_one = self.one_by_one().contains(&exchange);
        let chunk_size = if is_one_by_one { 1 } else { publications.len() };
        let mut results = Vec::with_capacity(publications.len());
        for chunk in publications.chunks(chunk_size) {
            let (sent, is_ambiguous) = match self.manager.checkout(connection).await {
                Err(error) => (unavailable(chunk, &error), false),
                Ok(pooled) => {
                    let outcome = publish::send(&pooled.channel, chunk).await;
                    pooled.release();
                    (outcome.results, outcome.is_ambiguous)
                }
            };
            if is_ambiguous {
                self.one_by_one().insert(exchange.clone());
            }
            results.extend(chunk.iter().map(|publication| publication.index).zip(sent));
        }
        if is_one_by_one && results.iter().all(|(_, result)| result.is_ok()) {
            self.one_by_one().remove(&exchange);
        }
        results
    }

    fn one_by_one(&self) -> MutexGuard<'_, BTreeSet<ShortString>> {
        self.one_by_one.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(publications: &[Publication<'_>], error: &ConnectError) -> Vec<PublishResult> {
    publications.iter().map(|_| Err(PublishError::unavailable(error.to_string()))).collect()
}

/// Groups messages by exchange, in order.
fn by_exchange(publications: Vec<Publication<'_>>) -> Vec<Vec<Publication<'_>>> {
    let mut groups: Vec<Vec<Publication<'_>>> = Vec::new();
    for publication in publications {
        let same = groups.iter_mut().find(|group| group[0].address.exchange == publication.address.exchange);
        match same {
            Some(group) => group.push(publication),
            None => groups.push(vec![publication]),
        }
    }
    groups
}

#[async_trait]
impl Transport for RabbitMqTransport {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut results: Vec<Option<PublishResult>> = batch.iter().map(|_| None).collect();
        // Messages without a result were not sent.
        let unsent = match self.send(batch, &mut results).await {
            Ok(()) => "the message was not sent".to_owned(),
            Err(PublishError::Unavailable { source }) => source.to_string(),
            Err(error) => error.to_string(),
        };
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(PublishError::unavailable(unsent.clone()))))
            .collect()
    }

    /// Inspects exchanges and queues by declarations that the broker refuses and that change nothing. This needs the `configure`
    /// permission; without it the check returns a note. The check covers the exchange and, for messages that go to a queue by the default
    /// exchange, the queue. AMQP does not show the bindings of an exchange (only publishing does: an unroutable message is returned),
    /// settings made by a policy, and the queues behind an exchange.
    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let mut findings: Vec<Finding> = Vec::new();
        let connection = self.manager.connection().await.map_err(PublishError::unavailable)?;
        for destination in destinations {
            let checking = timeout(self.request_timeout, check::check(&connection, destination)).await;
            let checked = checking.map_err(|_| {
                PublishError::unavailable(format!("no reply within {:?}", self.request_timeout))
            })?;
            // Destinations may share an exchange.
            for finding in checked.map_err(PublishError::unavailable)? {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        Ok(findings)
    }

    async fn close(&self) {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        // Calls still in flight after the timeout lose their connection.
        timeout(self.request_timeout, self.in_flight.write()).await.ok();
        self.manager.close().await;
    }
}
