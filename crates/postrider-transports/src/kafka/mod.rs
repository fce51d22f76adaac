//! Kafka, written and read.
//!
//! A message is accepted when all in-sync replicas of its partition have it, and not before: `acks=all`, and a delivery report for each
//! message. The client is librdkafka, with its idempotent producer: what it sends again by itself, while a call waits, is recognised by
//! the broker, and nothing overtakes.
//!
//! | what happens | answer |
//! |---|---|
//! | acknowledged by all in-sync replicas | accepted |
//! | the topic does not exist, may not be written to, or has too few replicas | refused for now |
//! | the client's queue is full | waited for; refused for now if there is no room until the end of the call |
//! | too large, not a topic, headers with a name of ours | refused for good |
//! | no acknowledgement within [`with_ack_timeout`](KafkaOptions::with_ack_timeout), a lost connection | nobody knows |
//! | no server answers | down, before anything is sent |
//!
//! **On the wire.** The destination is the topic; the key is the ordering key, or the message's id where there is none. CloudEvents
//! attributes are headers that begin with `ce_`, and the content type is `content-type`. A message's own headers keep their names.
//!
//! **One bad record harms only itself.** A broker refuses a batch of records for the sake of one, and does not say which. What
//! was in it is refused for now, and what goes to that topic next travels in batches of one, until all of it got through.

mod answer;
mod check;
mod cluster;
mod ear;
mod link;
mod options;
mod source;
mod wire;

pub use cluster::SaslMechanism;
pub use options::{Compression, KafkaOptions};
pub use source::{KafkaSource, KafkaSourceBuilder};

use crate::line::{Doubt, Line, Link};
use async_trait::async_trait;
use link::KafkaLink;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::time::{Instant, timeout_at};

/// At most so many go together: enough to fill the line, and little to send again when it breaks.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 16 << 20;
/// So many messages are under way at once, of all calls together.
const UNDER_WAY: usize = 10_000;

type Answer = Result<Receipt, PublishError>;

/// Publishes to the topics of Kafka.
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
    line: Line<KafkaLink>,
    /// Every record in a batch of its own.
    alone: Line<KafkaLink>,
    /// Topics to which messages go alone for now.
    fragile: Mutex<BTreeSet<String>>,
}

impl KafkaTransport {
    /// A transport to the cluster that these servers are of, `kafka://host:9092` or `kafka+ssl://host:9093` with TLS, several with
    /// commas in between. It connects with the first message, and again by itself.
    ///
    /// # Errors
    /// When that names no servers.
    pub fn connect(servers: impl Into<String>) -> Result<Self, Invalid> {
        KafkaOptions::new(servers).build()
    }

    fn with(options: KafkaOptions) -> Self {
        let (line, alone) = (Line::new(UNDER_WAY), Line::new(UNDER_WAY));
        Self { options, line, alone, fragile: Mutex::default() }
    }

    fn fragile(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.fragile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what goes together, and then what goes alone. Where a message is in neither, it was answered for.
    async fn publish_part(&self, part: &[Outgoing]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = part.iter().map(|_| None).collect();
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        {
            let fragile = self.fragile();
            for (place, outgoing) in part.iter().enumerate() {
                match wire::check_topic(&outgoing.destination) {
                    Err(why) => answers[place] = Some(Err(PublishError::reject(why))),
                    Ok(()) if fragile.contains(&outgoing.destination) => alone.push((place, outgoing)),
                    Ok(()) => together.push((place, outgoing)),
                }
            }
        }
        self.publish_on(&self.line, &together, &mut answers).await;
        if !alone.is_empty() {
            self.publish_on(&self.alone, &alone, &mut answers).await;
            self.mend(&alone, &answers);
        }
        let unanswered = || Err(PublishError::unknown("the client gave no answer"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Topics all of whose messages got through go together again.
    fn mend(&self, alone: &[(usize, &Outgoing)], answers: &[Option<Answer>]) {
        let mut topics: BTreeSet<&str> =
            alone.iter().map(|(_, outgoing)| outgoing.destination.as_str()).collect();
        for (place, outgoing) in alone {
            if !matches!(answers[*place], Some(Ok(_))) {
                topics.remove(outgoing.destination.as_str());
            }
        }
        self.fragile().retain(|topic| !topics.contains(topic.as_str()));
    }

    async fn publish_on(
        &self,
        line: &Line<KafkaLink>,
        parcels: &[(usize, &Outgoing)],
        answers: &mut [Option<Answer>],
    ) {
        if parcels.is_empty() {
            return;
        }
        let _room = line.room(parcels.len()).await;
        if let Err(error) = self.send_on(line, parcels, answers).await {
            let error = error.to_string();
            for (place, _) in parcels {
                answers[*place].get_or_insert_with(|| Err(PublishError::down(error.clone())));
            }
        }
    }

    /// Puts all in line, then waits for what is said of each. An error says that nothing was sent.
    async fn send_on(
        &self,
        line: &Line<KafkaLink>,
        parcels: &[(usize, &Outgoing)],
        answers: &mut [Option<Answer>],
    ) -> Result<(), PublishError> {
        let is_alone = std::ptr::eq(line, &raw const self.alone);
        let link = line.link(async { KafkaLink::connect(&self.options, is_alone) }).await?;
        let _call = link.call();
        let mut doubt = Doubt::about(&*link);
        let topics = parcels.iter().map(|(_, outgoing)| outgoing.destination.as_str()).collect();
        let unusable = link.unusable(topics, self.options.cluster.connect_timeout).await?;
        let deadline = Instant::now() + self.options.ack_timeout;
        let mut sent = Vec::with_capacity(parcels.len());
        for (place, outgoing) in parcels {
            match unusable.get(&outgoing.destination) {
                Some(refusal) => answers[*place] = Some(Err(refusal.of(&outgoing.destination))),
                None => match link.send(outgoing, deadline).await {
                    Ok(waiting) => sent.push((*place, outgoing, waiting)),
                    Err(error) => answers[*place] = Some(Err(error)),
                },
            }
        }
        for (place, outgoing, waiting) in sent {
            let topic = &outgoing.destination;
            answers[place] = Some(match timeout_at(deadline, waiting).await {
                Ok(Ok(Ok(_))) => Ok(Receipt::new()),
                Ok(Ok(Err((error, _)))) if answer::is_of_a_record(&error) => Err(match is_alone {
                    true => {
                        PublishError::reject(format!("{topic}: {}", answer::said(&error))).named("TooLarge")
                    }
                    false => {
                        self.fragile().insert(topic.clone());
                        let why = answer::said(&error);
                        PublishError::retry(format!(
                            "{topic}: {why}; it will be sent alone, to see which message that is"
                        ))
                    }
                }),
                Ok(Ok(Err((error, _)))) => Err(answer::reported(&error, topic)),
                Ok(Err(_)) | Err(_) => Err(link.silence()),
            });
        }
        doubt.is_cleared = true;
        for (place, outgoing) in parcels {
            match &answers[*place] {
                Some(Err(PublishError::Unknown { .. })) => doubt.is_cleared = false,
                Some(Err(PublishError::Retry { .. })) => link.forget(&outgoing.destination),
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

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(BATCH) {
            answers.extend(self.publish_part(part).await);
        }
        answers
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let link = self.line.link(async { KafkaLink::connect(&self.options, false) }).await?;
        let found = check::findings(&link, &self.options, destinations).await;
        if found.is_err() {
            link.doubt();
        }
        found
    }

    async fn close(&self) {
        for line in [&self.line, &self.alone] {
            // Nobody waits on it any more. Whoever asked a question may hold it for a moment, and then takes it along.
            if let Some(link) = line.close().await.and_then(Arc::into_inner) {
                link.close().await;
            }
        }
    }
}

impl fmt::Debug for KafkaTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTransport").field("options", &self.options).finish_non_exhaustive()
    }
}
