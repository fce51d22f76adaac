//! One producer client of Kafka, from its creation until it fails or is closed.
//!
//! librdkafka connects, finds leaders and retries by itself, under the sequence numbers of one producer, so that no record is
//! duplicated and none is reordered. That holds for the lifetime of one producer. When a call is cancelled or times out, its
//! messages may still be in the client's queue. So the producer is abandoned, and its queue is purged as soon as no other call waits
//! for it. The next call creates a new producer.

use super::{
    client_events::{ClientEvents, ClientStatus},
    cluster::ClusterOptions,
    error, handshake,
    options::KafkaOptions,
    wire,
};
use crate::session::ReusableConnection;
use postrider_core::{Outgoing, PublishError};
use rdkafka::{
    client::Client,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::ToBytes,
    metadata::MetadataTopic,
    producer::{
        DeliveryFuture, FutureProducer, FutureRecord, Producer, PurgeConfig,
        future_producer::FutureProducerContext,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

/// The wait between two attempts to enqueue a message while the client's queue is full.
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(5);
pub(super) const THREAD: &str = "postrider-kafka";

pub(super) struct KafkaConnection {
    /// `None` only while the connection is dropped.
    producer: Option<FutureProducer<ClientEvents>>,
    events: ClientEvents,
    cluster: ClusterOptions,
    /// Topics that are known to exist.
    topics: Mutex<BTreeSet<String>>,
    is_suspect: AtomicBool,
    /// The number of calls that use it.
    calls: AtomicUsize,
}

/// A guard for a call that uses the client.
pub(super) struct ClientCall(Arc<KafkaConnection>);

impl KafkaConnection {
    /// Creates a client, which connects with its first request. `is_unbatched` sends every record in a batch of its own.
    pub(super) fn connect(options: &KafkaOptions, is_unbatched: bool) -> Result<Self, PublishError> {
        let events = ClientEvents::default();
        let failed = |why: String| {
            let servers = &options.cluster.servers;
            PublishError::unavailable(format!("cannot create a Kafka client for {servers}: {why}"))
        };
        let mut config = options.config().map_err(|error| failed(error.to_string()))?;
        if is_unbatched {
            config.set("batch.num.messages", "1");
        }
        let producer = config
            .create_with_context(events.clone())
            .map_err(|error| failed(describe_creation_error(&error)))?;
        Ok(Self {
            producer: Some(producer),
            events,
            cluster: options.cluster.clone(),
            topics: Mutex::default(),
            is_suspect: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
        })
    }

    /// Begins a call; the call ends when the guard is dropped.
    pub(super) fn call(self: &Arc<Self>) -> ClientCall {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ClientCall(Arc::clone(self))
    }

    fn producer(&self) -> Result<&FutureProducer<ClientEvents>, PublishError> {
        self.producer.as_ref().ok_or_else(|| PublishError::unavailable("the Kafka client is closed"))
    }

    fn topics(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the topics that cannot be published to, with the reason. The metadata of a topic is fetched once: producing to a
    /// missing topic would wait until somebody creates it.
    pub(super) async fn unusable_topics(
        self: &Arc<Self>,
        topics: BTreeSet<&str>,
        within: Duration,
    ) -> Result<BTreeMap<String, TopicRefusal>, PublishError> {
        let unknown: Vec<String> = {
            let known = self.topics();
            topics.into_iter().filter(|topic| !known.contains(*topic)).map(str::to_owned).collect()
        };
        if unknown.is_empty() {
            return Ok(BTreeMap::new());
        }
        let lookup = self.query(within, move |client, deadline| {
            let mut errors = Vec::with_capacity(unknown.len());
            for topic in unknown {
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                let metadata = client.fetch_metadata(Some(&topic), left)?;
                let error =
                    metadata.topics().iter().find(|about| about.name() == topic).map(MetadataTopic::error);
                errors.push((topic, error));
            }
            Ok(errors)
        });
        let mut unusable = BTreeMap::new();
        for (topic, error) in lookup.await? {
            match error {
                Some(None) => drop(self.topics().insert(topic)),
                Some(Some(error)) => drop(unusable.insert(topic, TopicRefusal(Some(error.into())))),
                None => drop(unusable.insert(topic, TopicRefusal(None))),
            }
        }
        Ok(unusable)
    }

    /// Fetches the metadata of a topic again before the next message to it: after a refusal the topic may be gone or forbidden, while
    /// the client still has the old metadata.
    pub(super) fn forget_topic(&self, topic: &str) {
        self.topics().remove(topic);
    }

    /// Runs a blocking query against the cluster, outside the runtime. Fails if no server responds.
    pub(super) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        query: impl FnOnce(
            &Client<FutureProducerContext<ClientEvents>>,
            std::time::Instant,
        ) -> Result<T, KafkaError>
        + Send
        + 'static,
    ) -> Result<T, PublishError> {
        let mut status = self.events.subscribe();
        // A client that has never reached a server may have reported its outage already.
        let outages_before = if self.topics().is_empty() { 0 } else { status.borrow().outages };
        let this = Arc::clone(self);
        let (sender, result) = oneshot::channel();
        // On a thread of its own: a runtime waits for its blocking threads when it shuts down.
        let run = move || {
            let deadline = std::time::Instant::now() + within;
            let outcome = this.producer().and_then(|producer| {
                query(producer.client(), deadline).map_err(|error| this.unavailable(&error::describe(&error)))
            });
            // The caller may be gone.
            sender.send(outcome).ok();
        };
        thread::Builder::new().name(THREAD.to_owned()).spawn(run).map_err(PublishError::unavailable)?;
        let result = tokio::select! {
            result = result => result.unwrap_or_else(|_| Err(PublishError::unavailable("the Kafka client thread panicked"))),
            _ = status.wait_for(|status: &ClientStatus| status.outages > outages_before) => Err(self.unavailable("no server is reachable")),
        };
        if result.is_err()
            && self.events.is_tls_failure()
            && let Some(cause) = handshake::failure(&self.cluster).await
        {
            return Err(PublishError::unavailable(cause));
        }
        result
    }

    fn unavailable(&self, why: &str) -> PublishError {
        PublishError::unavailable(format!("Kafka does not respond: {why}{}", self.events.last_error_suffix()))
    }

    /// Puts a message into the client's queue, which says nothing about any server. If the queue is full, waits: the delivery
    /// reports of other messages free space.
    pub(super) async fn send(
        &self,
        outgoing: &Outgoing,
        deadline: Instant,
    ) -> Result<DeliveryFuture, PublishError> {
        let headers = wire::headers(outgoing)?;
        let (topic, key) = (&outgoing.destination, outgoing.partition_key());
        let producer = self.producer()?;
        // Without a timestamp of its own: brokers keep records by their age, and a message that waited long would be old on arrival.
        let mut record =
            FutureRecord::to(topic).key(key.as_ref()).payload(outgoing.body.to_bytes()).headers(headers);
        loop {
            match producer.send_result(record) {
                Ok(report) => return Ok(report),
                Err((KafkaError::MessageProduction(Code::QueueFull), back)) if Instant::now() < deadline => {
                    record = back;
                    sleep(QUEUE_FULL_WAIT).await;
                }
                Err((error, _)) => {
                    if let KafkaError::MessageProduction(Code::Fatal) = error {
                        self.abandon();
                        let why = producer.client().fatal_error().map(|(_, why)| why).unwrap_or_default();
                        return Err(PublishError::retry(format!(
                            "the Kafka client failed and is created anew: {why}"
                        )));
                    }
                    return Err(error::from_enqueue(&error, topic));
                }
            }
        }
    }

    /// The result of a message without a delivery report.
    pub(super) fn no_ack(&self) -> PublishError {
        PublishError::unknown(format!(
            "Kafka sent no acknowledgement within the ack timeout{}",
            self.events.last_error_suffix()
        ))
    }

    /// Destroys the client, and waits until it is gone.
    pub(super) async fn close(mut self) {
        let producer = self.producer.take();
        tokio::task::spawn_blocking(move || drop(producer)).await.ok();
    }
}

/// The reason why a topic cannot be published to: the code in its metadata, or none if the cluster does not know the topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicRefusal(pub(super) Option<Code>);

impl TopicRefusal {
    pub(super) fn publish_error(self, topic: &str) -> PublishError {
        match self.0 {
            None | Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => error::missing_topic(topic),
            Some(Code::InvalidTopic) => {
                PublishError::reject(format!("topic {topic}: {}", Code::InvalidTopic)).named("InvalidTopic")
            }
            Some(code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)) => {
                error::forbidden_topic(topic, &code.to_string())
            }
            Some(code) => PublishError::retry(format!("topic {topic}: {code}")),
        }
    }
}

/// Why a client could not be created, without the value of any setting.
pub(super) fn describe_creation_error(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, described, name, _) => format!("{name}: {described}"),
        KafkaError::ClientCreation(why) => why.clone(),
        error => error::describe(error),
    }
}

impl ReusableConnection for KafkaConnection {
    fn is_usable(&self) -> bool {
        let is_failed =
            self.producer.as_ref().is_none_or(|producer| producer.client().fatal_error().is_some());
        !is_failed && !self.is_suspect.load(Ordering::Relaxed)
    }

    fn abandon(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }
}

impl Drop for ClientCall {
    /// Purges what a cancelled call left in the queue once no call waits for it: a message must not arrive after its own retry.
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1 && !self.0.is_usable() {
            let connection = Arc::clone(&self.0);
            let purge = move || {
                if let Some(producer) = &connection.producer {
                    producer.purge(PurgeConfig::default().queue().inflight());
                }
            };
            // If no thread can be started, dropping the client purges the queue.
            thread::Builder::new().name(THREAD.to_owned()).spawn(purge).ok();
        }
    }
}

impl Drop for KafkaConnection {
    /// Destroying the client blocks for a moment.
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            // If no thread can be started, the client is destroyed here.
            thread::Builder::new().name(THREAD.to_owned()).spawn(move || drop(producer)).ok();
        }
    }
}
