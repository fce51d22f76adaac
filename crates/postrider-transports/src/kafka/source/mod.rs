//! A consumer of Kafka, as one of a group.
//!
//! Kafka keeps one number for each partition: from where a group goes on. Messages are handled side by side and answered in any order, so the
//! number is moved only over what is answered without a gap (`shelf`). What is to come again comes from memory, after its delay, and
//! nothing behind it is committed meanwhile.
//!
//! **What `Ok` for an answer means.** It is written down here, for a partition that is ours. Its commit follows within half a second once
//! everything in front of it is answered, too, and before the partition is given up or the source closed, where the cluster's answer is waited
//! for. So what was answered with `Ok` before a [`close`](Source::close) that reached the cluster does not come again, unless something in front
//! of it was not answered: Kafka cannot remember one without the other. A process that dies loses what it had written down, and those messages
//! come again.
//!
//! | what happens | what becomes of messages in hand |
//! |---|---|
//! | a connection breaks, a broker restarts | nothing: they are answered as before |
//! | the partition is given to another consumer | stale; what is done without a gap is committed first, the rest comes to the other one; should the cluster refuse the commit because it shares out once more, what is done comes again as well |
//! | the process dies | everything from the last commit on comes again, elsewhere |

mod builder;
mod check;
mod desk;
mod shelf;

pub use builder::KafkaSourceBuilder;

use super::check as checks;
use async_trait::async_trait;
use builder::Group;
use desk::Desk;
use postrider_core::{Abilities, Answer, Finding, Invalid, Parcel, Redelivers, Source, SourceError, Ticket};
use rdkafka::admin::ResourceSpecifier;
use shelf::{Held, LONGEST};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep_until},
};

/// They are written down here, any number at once.
const ANSWERS: usize = 10_000;

/// Receives from a topic of Kafka, as one of a consumer group.
///
/// ```no_run
/// # use postrider_core::{Answer, Source};
/// # use postrider_transports::kafka::KafkaSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = KafkaSource::builder("kafka://a:9092,b:9092", "orders").with_group("billing").build()?;
/// for parcel in orders.receive(100).await? {
///     println!("{:?}", parcel.incoming.body);
///     orders.answer(&[(parcel.ticket, Answer::Done)]).await;
/// }
/// orders.close().await;
/// # Ok(())
/// # }
/// ```
pub struct KafkaSource {
    group: Arc<Group>,
    desk: Mutex<Option<Arc<Desk>>>,
    is_closed: watch::Sender<bool>,
}

impl KafkaSource {
    /// A source of this topic of the cluster that these servers are of, `kafka://host:9092` or `kafka+ssl://host:9093` with TLS, several with
    /// commas in between. It reads as one of the group `postrider`. It connects when it is asked for messages, and again by itself.
    ///
    /// # Errors
    /// When that names no servers, or no topic.
    pub fn connect(servers: impl Into<String>, topic: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(servers, topic).build()
    }

    /// The same with settings.
    pub fn builder(servers: impl Into<String>, topic: impl Into<String>) -> KafkaSourceBuilder {
        KafkaSourceBuilder::new(servers.into(), topic.into())
    }

    fn with(group: Group) -> Self {
        Self { group: Arc::new(group), desk: Mutex::default(), is_closed: watch::Sender::new(false) }
    }

    /// The client, made anew where the last one has failed.
    async fn desk(&self) -> Result<Arc<Desk>, SourceError> {
        let mut current = self.desk.lock().await;
        if *self.is_closed.borrow() {
            return Err(SourceError::down("it was closed"));
        }
        if let Some(desk) = current.as_ref().filter(|desk| !desk.is_over()) {
            return Ok(Arc::clone(desk));
        }
        let desk = Arc::new(Desk::open(&self.group)?);
        *current = Some(Arc::clone(&desk));
        Ok(desk)
    }

    async fn receive_from(&self, desk: &Desk, most: usize) -> Result<Vec<Parcel>, SourceError> {
        loop {
            let (parcels, next) = desk.shelf.take(most.max(1));
            if !parcels.is_empty() {
                return Ok(parcels);
            }
            if let Some(trouble) = desk.shelf.trouble() {
                if trouble.is_fatal {
                    self.desk.lock().await.take();
                }
                return Err(SourceError::down(trouble.why));
            }
            let next = next.unwrap_or_else(|| Instant::now() + LONGEST);
            tokio::select! {
                () = desk.shelf.change.notified() => {}
                () = sleep_until(next) => {}
                () = desk.doubt() => desk.ask().await?,
            }
        }
    }

    /// What is done with each delivery that is ours.
    async fn with_each<T>(
        &self,
        items: &[T],
        ticket: impl Fn(&T) -> &Ticket + Send,
        each: impl Fn(&Desk, Held, &T) -> Result<(), SourceError> + Send,
    ) -> Vec<Result<(), SourceError>>
    where
        T: Sync,
    {
        let desk = self.desk.lock().await.clone();
        let one = |item: &T| {
            let held = ticket(item).inside::<Held>();
            let held = held.ok_or_else(|| SourceError::stale("another source received it"))?;
            let desk = desk.as_ref().ok_or_else(|| SourceError::stale("it was closed, or made anew"))?;
            each(desk, *held, item)
        };
        items.iter().map(one).collect()
    }
}

#[async_trait]
impl Source for KafkaSource {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn origin(&self) -> &str {
        &self.group.topic
    }

    fn abilities(&self) -> Abilities {
        Abilities::answering(ANSWERS).delaying(LONGEST)
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        let mut closed = self.is_closed.subscribe();
        let receiving = async {
            let desk = self.desk().await?;
            self.receive_from(&desk, most).await
        };
        tokio::select! {
            biased;
            _ = closed.wait_for(|is_closed| *is_closed) => Err(SourceError::down("it was closed")),
            received = receiving => received,
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        self.with_each(
            answers,
            |(ticket, _)| ticket,
            |desk, held, (_, answer)| {
                let answer = match *answer {
                    Answer::Again { after } => Answer::Again { after: after.min(LONGEST) },
                    other => other,
                };
                desk.shelf.answer(held, answer)
            },
        )
        .await
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        self.with_each(tickets, |ticket| ticket, |desk, held, _| desk.shelf.holds(held)).await
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        let (topic, within) = (&self.group.topic, self.group.cluster.connect_timeout);
        let settings = checks::settings(&self.group.asking(), within, ResourceSpecifier::Topic(topic)).await;
        let settings = settings.map_err(|error| SourceError::down(super::answer::said(&error)))?;
        Ok(match checks::number(&settings, "retention.ms") {
            Some(age) if age >= 0 => Redelivers::within(
                Duration::from_millis(age.cast_unsigned()),
                format!("retention.ms = {age} of the topic {topic}"),
            ),
            Some(age) => Redelivers::for_ever(format!("retention.ms = {age} of the topic {topic}")),
            None => {
                Redelivers::for_ever(format!("the cluster does not tell retention.ms of the topic {topic}"))
            }
        })
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        check::findings(&self.group).await
    }

    async fn close(&self) {
        self.is_closed.send_replace(true);
        let mut current = self.desk.lock().await;
        if let Some(desk) = current.take() {
            desk.close().await;
        }
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("group", &self.group).finish_non_exhaustive()
    }
}
