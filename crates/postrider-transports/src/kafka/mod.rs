//! Kafka: a transport that publishes to topics, and a source that reads one as a member of a consumer group.
//!
//! A message is accepted when all in-sync replicas of its partition have it, and not before: `acks=all`, and a delivery report for each
//! message. The client is librdkafka with its idempotent producer: the broker recognises the records that the client retries by itself
//! during a call, so they are neither duplicated nor reordered.
//!
//! | event | publish result |
//! |---|---|
//! | acknowledged by all in-sync replicas | accepted |
//! | the topic does not exist, or may not be written to | address unavailable |
//! | the topic has too few in-sync replicas | retry |
//! | the client's queue is full | the call waits; retry if the queue is still full at the deadline of the call |
//! | too large, an invalid topic name, a header with a reserved name | rejected permanently |
//! | no acknowledgement within the request timeout, a lost connection | unknown |
//! | no server responds | unavailable, before anything is sent |
//!
//! **On the wire.** The destination is the topic; the record key is the ordering key, or the message's id if it has no key. CloudEvents
//! attributes are headers that begin with `ce_`, and the content type is `content-type`. A message's own headers keep their names.
//!
//! **One bad record harms only itself.** A broker refuses a whole batch of records because of one of them, and does not say which. All
//! messages of that batch are retried, and the next messages to that topic travel in batches of one, until all of them are accepted.

mod check;
mod client_events;
mod cluster;
mod connection;
mod error;
mod handshake;
mod options;
mod source;
mod wire;

pub use cluster::SaslMechanism;
pub use options::{Compression, KafkaOptions};
pub use source::{KafkaSource, KafkaSourceBuilder};

use crate::{
    in_flight_limit::InFlightLimit,
    session::{Generation, Session, SessionError},
};
use async_trait::async_trait;
use connection::KafkaConnection;
use postrider_core::{Capacity, ClientOptions, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::time::{Instant, timeout_at};

/// The largest batch: enough to fill the connection, and little to resend when it breaks.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 16 << 20;
/// The most messages in flight, over all calls together.
const MAX_IN_FLIGHT: usize = 10_000;

type PublishResult = Result<Receipt, PublishError>;

/// Publishes to the topics of a Kafka cluster.
///
/// ```no_run
/// # use postrider_core::Transport;
/// # use postrider_transports::kafka::KafkaTransport;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let kafka = KafkaTransport::connect("kafka://a:9092,b:9092,c:9092")?;
/// for finding in kafka.check(&["orders"]).await? {
///     println!("{}: {}: {} ({})", finding.severity, finding.subject, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
pub struct KafkaTransport {
    options: KafkaOptions,
    batched: Client,
    /// A client that sends every record in a batch of its own.
    unbatched: Client,
    /// Topics whose messages are sent unbatched for now.
    unbatched_topics: Mutex<BTreeSet<String>>,
}

/// A client of librdkafka, replaced when it fails.
struct Client {
    session: Session<KafkaConnection>,
    in_flight: InFlightLimit,
    is_unbatched: bool,
}

impl Client {
    async fn connection(&self, options: &KafkaOptions) -> Result<Generation<KafkaConnection>, PublishError> {
        self.session.connection(async { KafkaConnection::connect(options, self.is_unbatched) }).await
    }
}

impl KafkaTransport {
    /// A transport to the cluster of these bootstrap servers: `kafka://host:9092`, or `kafka+ssl://host:9093` with TLS; separate several
    /// with commas. It connects when the first message is published, and reconnects by itself.
    ///
    /// # Errors
    /// If the URL names no server, or a certificate cannot be used.
    pub fn connect(client: impl Into<ClientOptions>) -> Result<Self, Invalid> {
        KafkaOptions::new(client).build()
    }

    fn with(options: KafkaOptions) -> Self {
        let client = |is_unbatched| Client {
            session: Session::new(options.cluster.connect_timeout),
            in_flight: InFlightLimit::new(MAX_IN_FLIGHT),
            is_unbatched,
        };
        let (batched, unbatched) = (client(false), client(true));
        Self { options, batched, unbatched, unbatched_topics: Mutex::default() }
    }

    fn unbatched_topics(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unbatched_topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the batched messages, then the unbatched ones. A message in neither group has its result already.
    async fn publish_part(&self, part: &[Outgoing]) -> Vec<PublishResult> {
        let mut results: Vec<Option<PublishResult>> = part.iter().map(|_| None).collect();
        let (mut batched, mut unbatched) = (Vec::new(), Vec::new());
        {
            let unbatched_topics = self.unbatched_topics();
            for (index, outgoing) in part.iter().enumerate() {
                match wire::check_topic(&outgoing.destination) {
                    Err(why) => results[index] = Some(Err(PublishError::reject(why))),
                    Ok(()) if unbatched_topics.contains(&outgoing.destination) => {
                        unbatched.push((index, outgoing));
                    }
                    Ok(()) => batched.push((index, outgoing)),
                }
            }
        }
        self.publish_on(&self.batched, &batched, &mut results).await;
        if !unbatched.is_empty() {
            self.publish_on(&self.unbatched, &unbatched, &mut results).await;
            self.restore_batching(&unbatched, &results);
        }
        let no_result = || Err(PublishError::unknown("the Kafka client returned no result for this message"));
        results.into_iter().map(|result| result.unwrap_or_else(no_result)).collect()
    }

    /// Topics all of whose messages were accepted are batched again.
    fn restore_batching(&self, unbatched: &[(usize, &Outgoing)], results: &[Option<PublishResult>]) {
        let mut topics: BTreeSet<&str> =
            unbatched.iter().map(|(_, outgoing)| outgoing.destination.as_str()).collect();
        for (index, outgoing) in unbatched {
            if !matches!(results[*index], Some(Ok(_))) {
                topics.remove(outgoing.destination.as_str());
            }
        }
        self.unbatched_topics().retain(|topic| !topics.contains(topic.as_str()));
    }

    async fn publish_on(
        &self,
        client: &Client,
        messages: &[(usize, &Outgoing)],
        results: &mut [Option<PublishResult>],
    ) {
        if messages.is_empty() {
            return;
        }
        let sent = match client.in_flight.reserve(messages.len()).await {
            Some(_permits) => self.send_on(client, messages, results).await,
            None => Err(PublishError::closed()),
        };
        if let Err(error) = sent {
            let error = error.to_string();
            for (index, _) in messages {
                results[*index].get_or_insert_with(|| Err(PublishError::unavailable(error.clone())));
            }
        }
    }

    /// Enqueues all messages, then waits for the delivery report of each. An error means that nothing was sent.
    async fn send_on(
        &self,
        client: &Client,
        messages: &[(usize, &Outgoing)],
        results: &mut [Option<PublishResult>],
    ) -> Result<(), PublishError> {
        let connection = client.connection(&self.options).await?;
        let _call = connection.call();
        let mut guard = client.session.suspect_unless_complete(&connection);
        let topics = messages.iter().map(|(_, outgoing)| outgoing.destination.as_str()).collect();
        let unusable = connection.unusable_topics(topics, self.options.cluster.connect_timeout).await?;
        let deadline = Instant::now() + self.options.request_timeout;
        let mut sent = Vec::with_capacity(messages.len());
        for (index, outgoing) in messages {
            match unusable.get(&outgoing.destination) {
                Some(refusal) => results[*index] = Some(Err(refusal.publish_error(&outgoing.destination))),
                None => match connection.send(outgoing, deadline).await {
                    Ok(report) => sent.push((*index, outgoing, report)),
                    Err(error) => results[*index] = Some(Err(error)),
                },
            }
        }
        for (index, outgoing, report) in sent {
            let topic = &outgoing.destination;
            results[index] = Some(match timeout_at(deadline, report).await {
                Ok(Ok(Ok(_))) => Ok(Receipt::new()),
                Ok(Ok(Err((error, _)))) if error::is_record_refusal(&error) => {
                    Err(match client.is_unbatched {
                        true => PublishError::reject(format!("topic {topic}: {}", error::describe(&error)))
                            .named("TooLarge"),
                        false => {
                            self.unbatched_topics().insert(topic.clone());
                            let why = error::describe(&error);
                            PublishError::retry(format!(
                                "topic {topic}: {why}; the batch is resent one message at a time to find the bad one"
                            ))
                        }
                    })
                }
                Ok(Ok(Err((error, _)))) => Err(error::from_delivery_report(&error, topic)),
                Ok(Err(_)) | Err(_) => Err(connection.no_ack()),
            });
        }
        guard.is_complete = true;
        for (index, outgoing) in messages {
            match &results[*index] {
                Some(Err(PublishError::Unknown { .. })) => guard.is_complete = false,
                Some(Err(PublishError::Retry { .. } | PublishError::AddressUnavailable { .. })) => {
                    connection.forget_topic(&outgoing.destination);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Transport for KafkaTransport {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(BATCH).with_message_bytes(self.options.message_bytes).with_batch_bytes(BATCH_BYTES)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<PublishResult> {
        let mut results = Vec::with_capacity(batch.len());
        for part in batch.chunks(BATCH) {
            results.extend(self.publish_part(part).await);
        }
        results
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let connection = self.batched.connection(&self.options).await?;
        let findings = check::findings(&connection, &self.options, destinations).await;
        if findings.is_err() {
            self.batched.session.suspect(&connection);
        }
        findings
    }

    async fn close(&self) {
        for client in [&self.batched, &self.unbatched] {
            client.in_flight.close().await;
            // No call waits on the connection any more. A query may hold it for a moment; then the query drops it.
            if let Some(connection) = client.session.close().await.and_then(Generation::into_inner) {
                connection.close().await;
            }
        }
    }
}

impl fmt::Debug for KafkaTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTransport").field("options", &self.options).finish_non_exhaustive()
    }
}
