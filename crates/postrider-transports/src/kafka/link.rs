//! One client of Kafka, from its making to its loss.
//!
//! librdkafka connects, finds leaders and sends again by itself, under the sequence numbers of one producer, so that nothing is
//! doubled and nothing overtakes. That holds for one life of a producer. When a call is given up, or not answered in time, its
//! messages may still be in line: so the producer is left, and what is in its line is thrown away as soon as no other call waits for
//! it. The next call makes a new one.

use super::{
    answer,
    ear::{Ear, Heard},
    options::KafkaOptions,
    wire,
};
use crate::line::Link;
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

/// How long a message waits before it asks again whether there is room in the client's queue.
const FULL: Duration = Duration::from_millis(5);
pub(super) const THREAD: &str = "postrider-kafka";

pub(super) struct KafkaLink {
    /// Gone only while it is dropped.
    producer: Option<FutureProducer<Ear>>,
    ear: Ear,
    /// Topics that are known to exist.
    topics: Mutex<BTreeSet<String>>,
    is_doubtful: AtomicBool,
    /// How many calls use it.
    calls: AtomicUsize,
}

/// A call that uses a client.
pub(super) struct Call(Arc<KafkaLink>);

impl KafkaLink {
    /// A client. It connects when it is asked something. `alone` lets every record travel in a batch of its own.
    pub(super) fn connect(options: &KafkaOptions, alone: bool) -> Result<Self, PublishError> {
        let ear = Ear::default();
        let mut config = options.config();
        if alone {
            config.set("batch.num.messages", "1");
        }
        let producer = config.create_with_context(ear.clone()).map_err(|error| {
            PublishError::down(format!(
                "no client of Kafka at {}: {}",
                options.cluster.servers,
                created(&error)
            ))
        })?;
        Ok(Self {
            producer: Some(producer),
            ear,
            topics: Mutex::default(),
            is_doubtful: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
        })
    }

    /// Begins a call.
    pub(super) fn call(self: &Arc<Self>) -> Call {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Call(Arc::clone(self))
    }

    fn producer(&self) -> Result<&FutureProducer<Ear>, PublishError> {
        self.producer.as_ref().ok_or_else(|| PublishError::down("it was closed"))
    }

    fn topics(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing can be sent to some of these topics. A topic is asked for once: producing to one that is not there would wait for
    /// somebody to make it.
    pub(super) async fn unusable(
        self: &Arc<Self>,
        topics: BTreeSet<&str>,
        within: Duration,
    ) -> Result<BTreeMap<String, Refusal>, PublishError> {
        let unknown: Vec<String> = {
            let known = self.topics();
            topics.into_iter().filter(|topic| !known.contains(*topic)).map(str::to_owned).collect()
        };
        if unknown.is_empty() {
            return Ok(BTreeMap::new());
        }
        let answers = self.ask(within, move |client, deadline| {
            let mut answers = Vec::with_capacity(unknown.len());
            for topic in unknown {
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                let metadata = client.fetch_metadata(Some(&topic), left)?;
                let error =
                    metadata.topics().iter().find(|about| about.name() == topic).map(MetadataTopic::error);
                answers.push((topic, error));
            }
            Ok(answers)
        });
        let mut unusable = BTreeMap::new();
        for (topic, error) in answers.await? {
            match error {
                Some(None) => drop(self.topics().insert(topic)),
                Some(Some(error)) => drop(unusable.insert(topic, Refusal(Some(error.into())))),
                None => drop(unusable.insert(topic, Refusal(None))),
            }
        }
        Ok(unusable)
    }

    /// What was refused is asked for again: it may be gone, or forbidden, and the client remembers only that it was not.
    pub(super) fn forget(&self, topic: &str) {
        self.topics().remove(topic);
    }

    /// Asks the cluster something, beside the runtime: the client blocks. An error when nobody answers.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        question: impl FnOnce(&Client<FutureProducerContext<Ear>>, std::time::Instant) -> Result<T, KafkaError>
        + Send
        + 'static,
    ) -> Result<T, PublishError> {
        let mut heard = self.ear.listen();
        // A client that has never reached anybody may have said so already.
        let before = if self.topics().is_empty() { 0 } else { heard.borrow().outages };
        let this = Arc::clone(self);
        let (answer, answered) = oneshot::channel();
        // On a thread of its own: a runtime that shuts down would wait for those that it lends.
        let asking = move || {
            let deadline = std::time::Instant::now() + within;
            let asked = this.producer().and_then(|producer| {
                question(producer.client(), deadline).map_err(|error| this.down(&answer::said(&error)))
            });
            // Whoever asked may not wait any more.
            answer.send(asked).ok();
        };
        thread::Builder::new().name(THREAD.to_owned()).spawn(asking).map_err(PublishError::down)?;
        tokio::select! {
            answer = answered => answer.unwrap_or_else(|_| Err(PublishError::down("the client panicked"))),
            _ = heard.wait_for(|heard: &Heard| heard.outages > before) => Err(self.down("no server can be reached")),
        }
    }

    fn down(&self, why: &str) -> PublishError {
        PublishError::down(format!("Kafka does not answer: {why}{}", self.ear.complaint()))
    }

    /// Puts a message in line. That it is there says nothing about any server. A full line is waited for: other messages are answered,
    /// and make room.
    pub(super) async fn send(
        &self,
        outgoing: &Outgoing,
        deadline: Instant,
    ) -> Result<DeliveryFuture, PublishError> {
        let headers = wire::headers(outgoing)?;
        let (topic, key) = (&outgoing.destination, outgoing.partition_key());
        let producer = self.producer()?;
        // Without a timestamp of its own: brokers keep records by their age, and one that has waited for long would be old on arrival.
        let mut record =
            FutureRecord::to(topic).key(key.as_ref()).payload(outgoing.body.to_bytes()).headers(headers);
        loop {
            match producer.send_result(record) {
                Ok(waiting) => return Ok(waiting),
                Err((KafkaError::MessageProduction(Code::QueueFull), back)) if Instant::now() < deadline => {
                    record = back;
                    sleep(FULL).await;
                }
                Err((error, _)) => {
                    if let KafkaError::MessageProduction(Code::Fatal) = error {
                        self.doubt();
                        let why = producer.client().fatal_error().map(|(_, why)| why).unwrap_or_default();
                        return Err(PublishError::retry(format!(
                            "the client has failed, and is made anew: {why}"
                        )));
                    }
                    return Err(answer::unsent(&error, topic));
                }
            }
        }
    }

    /// What became of a message, if nobody knows.
    pub(super) fn silence(&self) -> PublishError {
        PublishError::unknown(format!("no acknowledgement came in time{}", self.ear.complaint()))
    }

    /// Ends it, and waits for its end.
    pub(super) async fn close(mut self) {
        let producer = self.producer.take();
        tokio::task::spawn_blocking(move || drop(producer)).await.ok();
    }
}

/// Why nothing can be sent to a topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal(pub(super) Option<Code>);

impl Refusal {
    pub(super) fn of(self, topic: &str) -> PublishError {
        match self.0 {
            None | Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => answer::no_topic(topic),
            Some(Code::InvalidTopic) => {
                PublishError::reject(format!("{topic}: {}", Code::InvalidTopic)).named("InvalidTopic")
            }
            Some(code) => PublishError::retry(format!("{topic}: {code}")),
        }
    }
}

/// Why there is no client, without the value of any setting.
pub(super) fn created(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, described, name, _) => format!("{name}: {described}"),
        KafkaError::ClientCreation(why) => why.clone(),
        error => answer::said(error),
    }
}

impl Link for KafkaLink {
    fn is_good(&self) -> bool {
        let is_failed =
            self.producer.as_ref().is_none_or(|producer| producer.client().fatal_error().is_some());
        !is_failed && !self.is_doubtful.load(Ordering::Relaxed)
    }

    fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }
}

impl Drop for Call {
    /// Nobody waits any more for what a call that was given up has left in line: it must not arrive behind its own second copy.
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1 && !self.0.is_good() {
            let link = Arc::clone(&self.0);
            let throw_away = move || {
                if let Some(producer) = &link.producer {
                    producer.purge(PurgeConfig::default().queue().inflight());
                }
            };
            // Where no thread can be made, it happens when the client is dropped.
            thread::Builder::new().name(THREAD.to_owned()).spawn(throw_away).ok();
        }
    }
}

impl Drop for KafkaLink {
    /// Ending takes a moment, during which the client blocks.
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            // Where no thread can be made, it is done here.
            thread::Builder::new().name(THREAD.to_owned()).spawn(move || drop(producer)).ok();
        }
    }
}
