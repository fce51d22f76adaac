//! One client of Kafka that reads, from its making to its loss.
//!
//! It has a thread of its own, which never does anything but ask the client: so the group never takes it for dead, however long handlers
//! need. What is fetched goes to the [shelf](Shelf); a partition that has enough there is paused. The thread commits what the shelf says is
//! done, in intervals, and once more when a partition is taken away or the source is closed; then it waits until the cluster has confirmed it.

use super::{
    builder::Group,
    shelf::{Positions, Shelf, Trouble},
};
use crate::kafka::{
    answer,
    check::Topic,
    ear::{Ear, Heard},
    link::{THREAD, created},
    wire,
};
use postrider_core::{Lane, SourceError};
use rdkafka::{
    ClientContext, Message, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::BorrowedMessage,
};
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

/// How long the client is asked at a time.
const POLL: Duration = Duration::from_millis(50);
/// How often what is done is committed.
const COMMIT_EVERY: Duration = Duration::from_millis(500);

pub(super) struct Desk {
    /// It belongs to the thread, and ends with it.
    consumer: Weak<BaseConsumer<Context>>,
    pub(super) shelf: Arc<Shelf>,
    ear: Ear,
    group: Arc<Group>,
    is_closing: Arc<AtomicBool>,
    /// How many outages were looked after.
    outages: AtomicU64,
    /// The topic is there, and servers that know it, as far as is known.
    is_sure: AtomicBool,
    ended: watch::Receiver<bool>,
}

impl Desk {
    /// Makes a client, and joins the group.
    pub(super) fn open(group: &Arc<Group>) -> Result<Self, SourceError> {
        let failed = |error: &KafkaError| {
            SourceError::down(format!("no client of Kafka at {}: {}", group.cluster.servers, created(error)))
        };
        let (ear, shelf) = (Ear::default(), Arc::new(Shelf::new(group.prefetch)));
        let context = Context { ear: ear.clone(), shelf: Arc::clone(&shelf), topic: group.topic.clone() };
        let consumer: BaseConsumer<Context> =
            group.config().create_with_context(context).map_err(|error| failed(&error))?;
        consumer.subscribe(&[&group.topic]).map_err(|error| failed(&error))?;
        let consumer = Arc::new(consumer);
        let reached = Arc::downgrade(&consumer);
        let is_closing = Arc::new(AtomicBool::new(false));
        let (end, ended) = watch::channel(false);
        let clerk = Clerk {
            consumer,
            shelf: Arc::clone(&shelf),
            group: Arc::clone(group),
            is_closing: Arc::clone(&is_closing),
            end,
        };
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || clerk.run())
            .map_err(SourceError::down)?;
        Ok(Self {
            consumer: reached,
            shelf,
            ear,
            group: Arc::clone(group),
            is_closing,
            outages: AtomicU64::new(0),
            is_sure: AtomicBool::new(false),
            ended,
        })
    }

    /// Waits until the cluster is in doubt: as long as nobody has reached it, and when no server can be reached any more.
    pub(super) async fn doubt(&self) {
        if self.is_sure.load(SeqCst) {
            self.outage().await;
        }
    }

    /// Waits until nobody can be reached, once more.
    async fn outage(&self) {
        let seen = self.outages.load(SeqCst);
        let mut heard = self.ear.listen();
        if let Ok(heard) = heard.wait_for(|heard: &Heard| heard.outages > seen).await {
            self.is_sure.store(false, SeqCst);
            self.outages.store(heard.outages, SeqCst);
        }
    }

    /// Asks whether the topic is there. An error when nobody answers.
    pub(super) async fn ask(&self) -> Result<(), SourceError> {
        let within = self.group.cluster.connect_timeout;
        let consumer = self.consumer.upgrade().ok_or_else(|| SourceError::down("it was closed"))?;
        let topic = self.group.topic.clone();
        let asking = beside(move || {
            let told = consumer.fetch_metadata(Some(&topic), within)?;
            Ok::<_, KafkaError>(Topic::of(&told, &topic))
        });
        let told = tokio::select! {
            told = asking => told?.map_err(|error| self.down(&answer::said(&error)))?,
            () = self.outage() => return Err(self.down("no server can be reached")),
        };
        if Topic::is_missing(told.as_ref()) {
            return Err(SourceError::down(answer::missing(&self.group.topic)));
        }
        self.is_sure.store(true, SeqCst);
        Ok(())
    }

    fn down(&self, why: &str) -> SourceError {
        SourceError::down(format!("Kafka does not answer: {why}{}", self.ear.complaint()))
    }

    /// Whether its thread is gone.
    pub(super) fn is_over(&self) -> bool {
        *self.ended.borrow() || self.ended.has_changed().is_err()
    }

    /// Commits what is done, leaves the group, and waits for both.
    pub(super) async fn close(&self) {
        self.is_closing.store(true, SeqCst);
        let (mut ended, within) = (self.ended.clone(), self.group.cluster.connect_timeout * 4);
        tokio::time::timeout(within, ended.wait_for(|ended| *ended)).await.ok();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.is_closing.store(true, SeqCst);
    }
}

/// Asks the client something, which blocks. On a thread of its own: a runtime that shuts down would wait for those that it lends.
pub(super) async fn beside<T: Send + 'static>(
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    let (answer, answered) = oneshot::channel();
    let asking = move || {
        // Whoever asked may not wait any more.
        answer.send(question()).ok();
    };
    thread::Builder::new().name(THREAD.to_owned()).spawn(asking).map_err(SourceError::down)?;
    answered.await.map_err(|_| SourceError::down("the client panicked"))
}

/// What the thread needs.
struct Clerk {
    consumer: Arc<BaseConsumer<Context>>,
    shelf: Arc<Shelf>,
    group: Arc<Group>,
    is_closing: Arc<AtomicBool>,
    end: watch::Sender<bool>,
}

impl Clerk {
    fn run(self) {
        let consumer = &*self.consumer;
        let mut committed_at = Instant::now();
        while !self.is_closing.load(SeqCst) {
            match consumer.poll(POLL) {
                Some(Ok(message)) => self.put(&message),
                Some(Err(error)) => self.complain(&error),
                None => {}
            }
            let roomy = self.shelf.roomy();
            if !roomy.is_empty() {
                consumer.resume(&self.list(roomy.into_iter().map(|partition| (partition, None)))).ok();
            }
            if committed_at.elapsed() >= COMMIT_EVERY {
                committed_at = Instant::now();
                self.commit();
            }
        }
        self.leave();
    }

    fn put(&self, message: &BorrowedMessage<'_>) {
        let partition = message.partition();
        let lane = message.key().map(|key| Lane::of(&(message.topic(), partition, key)));
        if self.shelf.put(partition, message.offset(), lane, wire::read(message)) {
            // Were it refused, there would be more in memory, and nothing lost.
            self.consumer.pause(&self.list([(partition, None)].into_iter())).ok();
        }
    }

    /// What the client does not mend by itself.
    fn complain(&self, error: &KafkaError) {
        let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        let why = match error.rdkafka_error_code() {
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => answer::missing(&self.group.topic),
            Some(Code::FencedInstanceId) => self.fenced(),
            Some(
                Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::InvalidGroupId
                | Code::InconsistentGroupProtocol
                | Code::InvalidSessionTimeout
                | Code::GroupMaxSizeReached,
            ) => answer::said(error),
            _ if is_fatal => answer::said(error),
            _ => return,
        };
        self.shelf.complain(Trouble { why, is_fatal });
    }

    fn fenced(&self) -> String {
        let name = self.group.instance.as_deref().unwrap_or_default();
        format!("another process reads as {name}: give each its own `with_instance`")
    }

    /// Tells the cluster what is done, and waits for its answer: an answer that nobody waits for is never given. What it did not take is told
    /// again.
    fn commit(&self) {
        let positions = self.shelf.unconfirmed();
        if !positions.is_empty()
            && self.consumer.commit(&self.positions(&positions), CommitMode::Sync).is_ok()
        {
            self.shelf.confirm(positions);
        }
    }

    /// Nothing more is answered. What was is committed, as often as it takes: whoever is sharing out the partitions just now refuses it. Then
    /// others may have them.
    fn leave(self) {
        self.shelf.close();
        let deadline = Instant::now() + self.group.cluster.connect_timeout;
        self.commit();
        while !self.shelf.unconfirmed().is_empty() && Instant::now() < deadline {
            self.consumer.poll(POLL);
            self.commit();
        }
        // Whoever asks something holds it for a moment, and then it ends there.
        drop(self.consumer);
        self.end.send_replace(true);
    }

    fn positions(&self, positions: &Positions) -> TopicPartitionList {
        self.list(positions.iter().map(|(partition, offset)| (*partition, Some(*offset))))
    }

    fn list(&self, partitions: impl Iterator<Item = (i32, Option<i64>)>) -> TopicPartitionList {
        list(&self.group.topic, partitions)
    }
}

fn list(topic: &str, partitions: impl Iterator<Item = (i32, Option<i64>)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in partitions {
        match offset {
            // It is refused for numbers below zero only, which no offset is.
            Some(offset) => drop(list.add_partition_offset(topic, partition, Offset::Offset(offset))),
            None => drop(list.add_partition(topic, partition)),
        }
    }
    list
}

/// Hears what the client says, and obeys when partitions are given and taken.
pub(super) struct Context {
    ear: Ear,
    shelf: Arc<Shelf>,
    topic: String,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.ear.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.ear.error(error, reason);
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let numbers = |list: &TopicPartitionList| -> Vec<i32> {
            list.elements()
                .iter()
                .map(rdkafka::topic_partition_list::TopicPartitionListElem::partition)
                .collect()
        };
        match rebalance {
            Rebalance::Assign(list) => self.shelf.assign(numbers(list).into_iter()),
            Rebalance::Revoke(revoked) => {
                let done = self.shelf.revoke(numbers(revoked).into_iter());
                if !done.is_empty() {
                    let done =
                        list(&self.topic, done.into_iter().map(|(partition, to)| (partition, Some(to))));
                    // If it is refused, since the partition was taken away without a word or partitions are shared out once more, somebody else
                    // begins where we began.
                    consumer.commit(&done, CommitMode::Sync).ok();
                }
            }
            Rebalance::Error(_) => {}
        }
    }
}
