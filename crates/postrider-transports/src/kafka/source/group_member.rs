//! One consumer client of Kafka, from its creation until it fails or is closed.
//!
//! The member has a thread of its own, which does nothing but poll the client: so the group never considers the consumer dead, however long
//! handlers take. Fetched records go to the [`OffsetTracker`]; a partition that holds enough of them is paused,
//! and so are all partitions while the records hold too many bytes. The thread commits the offsets
//! that the tracker reports as done, at intervals, and once more when a partition is revoked or the source is closed; then it waits until the
//! cluster has confirmed the commit.

use super::{
    builder::ConsumerGroup,
    offset_tracker::{ConsumerError, OffsetTracker, Offsets},
};
use crate::{
    byte_budget::ByteBudget,
    kafka::{
        check::TopicMetadata,
        client_events::{ClientEvents, ClientStatus},
        connection::{THREAD, describe_creation_error},
        error, handshake, wire,
    },
    session::ReusableConnection,
};
use postrider_core::{LaneId, SourceError};
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

/// The timeout of one poll.
const POLL: Duration = Duration::from_millis(50);
/// The interval between commits.
const COMMIT_EVERY: Duration = Duration::from_millis(500);

pub(super) struct GroupMember {
    /// Owned by the thread, and destroyed with it.
    consumer: Weak<BaseConsumer<Context>>,
    pub(super) tracker: Arc<OffsetTracker>,
    events: ClientEvents,
    group: Arc<ConsumerGroup>,
    is_closing: Arc<AtomicBool>,
    /// The number of outages that were handled.
    outages: AtomicU64,
    /// A server confirmed that the topic exists, and no outage has been reported since.
    is_topic_known: AtomicBool,
    ended: watch::Receiver<bool>,
}

impl GroupMember {
    /// Creates a client, and joins the group.
    pub(super) fn open(group: &Arc<ConsumerGroup>) -> Result<Self, SourceError> {
        let failed = |why: String| {
            let servers = &group.cluster.servers;
            SourceError::unavailable(format!("cannot create a Kafka client for {servers}: {why}"))
        };
        let config = group.config().map_err(|error| failed(error.to_string()))?;
        let (events, tracker) = (
            ClientEvents::default(),
            Arc::new(OffsetTracker::new(group.prefetch, ByteBudget::new(group.max_bytes))),
        );
        let context =
            Context { events: events.clone(), tracker: Arc::clone(&tracker), topic: group.topic.clone() };
        let consumer: BaseConsumer<Context> =
            config.create_with_context(context).map_err(|error| failed(describe_creation_error(&error)))?;
        consumer.subscribe(&[&group.topic]).map_err(|error| failed(describe_creation_error(&error)))?;
        let consumer = Arc::new(consumer);
        let weak = Arc::downgrade(&consumer);
        let is_closing = Arc::new(AtomicBool::new(false));
        let (end, ended) = watch::channel(false);
        let poll_loop = PollLoop {
            consumer,
            tracker: Arc::clone(&tracker),
            group: Arc::clone(group),
            is_closing: Arc::clone(&is_closing),
            end,
        };
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || poll_loop.run())
            .map_err(SourceError::unavailable)?;
        Ok(Self {
            consumer: weak,
            tracker,
            events,
            group: Arc::clone(group),
            is_closing,
            outages: AtomicU64::new(0),
            is_topic_known: AtomicBool::new(false),
            ended,
        })
    }

    /// Waits until the topic has to be looked up: at once if that was never done, otherwise until no server is reachable.
    pub(super) async fn needs_topic_lookup(&self) {
        if self.is_topic_known.load(SeqCst) {
            self.outage().await;
        }
    }

    /// Waits for the next outage.
    async fn outage(&self) {
        let handled = self.outages.load(SeqCst);
        let mut status = self.events.subscribe();
        if let Ok(status) = status.wait_for(|status: &ClientStatus| status.outages > handled).await {
            self.is_topic_known.store(false, SeqCst);
            self.outages.store(status.outages, SeqCst);
        }
    }

    /// Checks that the topic exists. Fails if it does not, or if no server responds.
    pub(super) async fn look_up_topic(&self) -> Result<(), SourceError> {
        let within = self.group.cluster.connect_timeout;
        let consumer =
            self.consumer.upgrade().ok_or_else(|| SourceError::unavailable("the source is closed"))?;
        let topic = self.group.topic.clone();
        let query = run_blocking(move || {
            let metadata = consumer.fetch_metadata(Some(&topic), within)?;
            Ok::<_, KafkaError>(TopicMetadata::of(&metadata, &topic))
        });
        let metadata = tokio::select! {
            metadata = query => metadata?.map_err(|error| self.unavailable(&error::describe(&error)))?,
            () = self.outage() => return Err(self.unreachable().await),
        };
        if TopicMetadata::is_missing(metadata.as_ref()) {
            return Err(SourceError::unavailable(error::missing_topic_text(&self.group.topic)));
        }
        self.is_topic_known.store(true, SeqCst);
        Ok(())
    }

    async fn unreachable(&self) -> SourceError {
        let cause = match self.events.is_tls_failure() {
            true => handshake::failure(&self.group.cluster).await,
            false => None,
        };
        cause.map_or_else(|| self.unavailable("no server is reachable"), SourceError::unavailable)
    }

    fn unavailable(&self, why: &str) -> SourceError {
        SourceError::unavailable(format!("Kafka does not respond: {why}{}", self.events.last_error_suffix()))
    }

    /// Commits the offsets of acked messages, leaves the group, and waits for both.
    pub(super) async fn close(&self) {
        self.is_closing.store(true, SeqCst);
        let (mut ended, within) = (self.ended.clone(), self.group.cluster.connect_timeout * 4);
        tokio::time::timeout(within, ended.wait_for(|ended| *ended)).await.ok();
    }
}

impl ReusableConnection for GroupMember {
    /// Until the poll thread has ended.
    fn is_usable(&self) -> bool {
        !*self.ended.borrow() && self.ended.has_changed().is_ok()
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.is_closing.store(true, SeqCst);
    }
}

/// Runs a blocking query on a thread of its own: a runtime waits for its blocking threads when it shuts down.
pub(super) async fn run_blocking<T: Send + 'static>(
    query: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    let (sender, result) = oneshot::channel();
    let run = move || {
        // The caller may be gone.
        sender.send(query()).ok();
    };
    thread::Builder::new().name(THREAD.to_owned()).spawn(run).map_err(SourceError::unavailable)?;
    result.await.map_err(|_| SourceError::unavailable("the Kafka client thread panicked"))
}

/// The poll loop of a member, which runs on its thread.
struct PollLoop {
    consumer: Arc<BaseConsumer<Context>>,
    tracker: Arc<OffsetTracker>,
    group: Arc<ConsumerGroup>,
    is_closing: Arc<AtomicBool>,
    end: watch::Sender<bool>,
}

impl PollLoop {
    fn run(self) {
        let consumer = &*self.consumer;
        let mut committed_at = Instant::now();
        while !self.is_closing.load(SeqCst) {
            match consumer.poll(POLL) {
                Some(Ok(message)) => self.track(&message),
                Some(Err(error)) => self.report(&error),
                None => {}
            }
            let resumable = self.tracker.resume_partitions();
            if !resumable.is_empty() {
                consumer.resume(&self.list(resumable.into_iter().map(|partition| (partition, None)))).ok();
            }
            if committed_at.elapsed() >= COMMIT_EVERY {
                committed_at = Instant::now();
                self.commit();
            }
        }
        self.leave();
    }

    fn track(&self, message: &BorrowedMessage<'_>) {
        let partition = message.partition();
        let lane = message.key().map(|key| LaneId::of(&(message.topic(), partition, key)));
        if self.tracker.insert(partition, message.offset(), lane, wire::read(message)) {
            // If pausing fails, more messages are in memory, and none is lost.
            self.consumer.pause(&self.list([(partition, None)].into_iter())).ok();
        }
    }

    /// Reports errors from which the client does not recover by itself.
    fn report(&self, error: &KafkaError) {
        let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        let why = match error.rdkafka_error_code() {
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => {
                error::missing_topic_text(&self.group.topic)
            }
            Some(Code::FencedInstanceId) => self.fenced(),
            Some(
                Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::InvalidGroupId
                | Code::InconsistentGroupProtocol
                | Code::InvalidSessionTimeout
                | Code::GroupMaxSizeReached,
            ) => error::describe(error),
            _ if is_fatal => error::describe(error),
            _ => return,
        };
        self.tracker.report_error(ConsumerError { why, is_fatal });
    }

    fn fenced(&self) -> String {
        let name = self.group.instance.as_deref().unwrap_or_default();
        format!("another process uses the instance name {name}: give each process its own `with_instance`")
    }

    /// Commits the offsets of done messages, and waits for the response: the result of an asynchronous commit may never be reported. A
    /// commit that fails is repeated with the next one.
    fn commit(&self) {
        let offsets = self.tracker.uncommitted();
        if !offsets.is_empty() && self.consumer.commit(&self.offset_list(&offsets), CommitMode::Sync).is_ok()
        {
            self.tracker.mark_committed(offsets);
        }
    }

    /// Accepts no more acks, and commits those that were accepted, as often as it takes: a group that is rebalancing refuses commits. Then
    /// leaves the group.
    fn leave(self) {
        self.tracker.close();
        let deadline = Instant::now() + self.group.cluster.connect_timeout;
        self.commit();
        while !self.tracker.uncommitted().is_empty() && Instant::now() < deadline {
            self.consumer.poll(POLL);
            self.commit();
        }
        // A running query may hold the client for a moment, and then drops it.
        drop(self.consumer);
        self.end.send_replace(true);
    }

    fn offset_list(&self, offsets: &Offsets) -> TopicPartitionList {
        self.list(offsets.iter().map(|(partition, offset)| (*partition, Some(*offset))))
    }

    fn list(&self, partitions: impl Iterator<Item = (i32, Option<i64>)>) -> TopicPartitionList {
        list(&self.group.topic, partitions)
    }
}

fn list(topic: &str, partitions: impl Iterator<Item = (i32, Option<i64>)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in partitions {
        match offset {
            // This fails for negative numbers only, which no offset is.
            Some(offset) => drop(list.add_partition_offset(topic, partition, Offset::Offset(offset))),
            None => drop(list.add_partition(topic, partition)),
        }
    }
    list
}

/// The callbacks of the client: errors, and partitions that are assigned and revoked.
pub(super) struct Context {
    events: ClientEvents,
    tracker: Arc<OffsetTracker>,
    topic: String,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.events.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.events.error(error, reason);
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
            Rebalance::Assign(list) => self.tracker.assign(numbers(list).into_iter()),
            Rebalance::Revoke(revoked) => {
                let offsets = self.tracker.revoke(numbers(revoked).into_iter());
                if !offsets.is_empty() {
                    let offsets = list(
                        &self.topic,
                        offsets.into_iter().map(|(partition, offset)| (partition, Some(offset))),
                    );
                    // If the commit is refused, because the partition was lost without notice or the group rebalances again, the next
                    // consumer begins at the last committed offset.
                    consumer.commit(&offsets, CommitMode::Sync).ok();
                }
            }
            Rebalance::Error(_) => {}
        }
    }
}
