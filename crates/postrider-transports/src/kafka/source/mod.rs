//! A consumer of Kafka, as a member of a consumer group.
//!
//! Kafka keeps one offset for each partition: where a group continues. Messages are handled concurrently and acked in any order, so the
//! offset advances only over messages that are acked without a gap (`offset_tracker`). A nacked message is redelivered from memory, after its
//! delay, and no offset after it is committed meanwhile.
//!
//! **The meaning of `Ok` for an ack.** The ack is recorded in memory, for a partition that is assigned to this consumer. Its commit follows
//! within half a second once every earlier message of the partition is acked, too, and before the partition is revoked or the source closed; there, the
//! source waits for the cluster's response. So a message that was acked with `Ok` before a [`close`](Source::close) that reached the cluster is
//! not redelivered, unless an earlier message was not acked: Kafka stores one offset per partition, so it cannot record an ack beyond a gap. A process that dies loses the
//! acks in its memory, and those messages are redelivered.
//!
//! | event | messages in flight |
//! |---|---|
//! | a connection breaks, a broker restarts | unaffected: they are acked as before |
//! | the partition is assigned to another consumer | stale; the acked prefix is committed first, and the other consumer receives the rest; if the cluster refuses the commit because it rebalances again, the acked messages are redelivered as well |
//! | the process dies | all messages from the last commit on are redelivered to other consumers |

mod builder;
mod check;
mod group_member;
mod offset_tracker;

pub use builder::KafkaSourceBuilder;

use super::{
    check::{describe_config, number},
    error,
};
use crate::session::{Generation, Session};
use async_trait::async_trait;
use builder::ConsumerGroup;
use group_member::GroupMember;
use offset_tracker::{MAX_DELAY, RecordHandle};
use postrider_core::{
    Ack, AckHandle, Capabilities, ClientOptions, Finding, Invalid, ReceivedMessage, RedeliveryWindow, Source,
    SourceError,
};
use rdkafka::admin::ResourceSpecifier;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Acks are recorded in memory, so any number of them costs the same.
const ACK_BATCH: usize = 10_000;

/// Receives from a Kafka topic, as a member of a consumer group.
///
/// ```no_run
/// # use postrider_core::{Ack, Source};
/// # use postrider_transports::kafka::KafkaSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = KafkaSource::builder("kafka://a:9092,b:9092", "orders").with_group("billing").build()?;
/// for message in orders.receive(100).await? {
///     println!("{:?}", message.incoming.body);
///     orders.ack(&[(message.ack_handle, Ack::Ack)]).await;
/// }
/// orders.close().await;
/// # Ok(())
/// # }
/// ```
pub struct KafkaSource {
    group: Arc<ConsumerGroup>,
    session: Session<GroupMember>,
}

impl KafkaSource {
    /// A source of this topic, in the cluster of these bootstrap servers: `kafka://host:9092`, or `kafka+ssl://host:9093` with TLS; separate
    /// several with commas. Its consumer group is `postrider`. It connects with the first call that receives, and reconnects by itself.
    ///
    /// # Errors
    /// If the URL names no server, a certificate cannot be used, or `topic` is not a valid topic name.
    pub fn connect(client: impl Into<ClientOptions>, topic: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(client, topic).build()
    }

    /// A builder for a source of this topic, with settings.
    pub fn builder(client: impl Into<ClientOptions>, topic: impl Into<String>) -> KafkaSourceBuilder {
        KafkaSourceBuilder::new(client.into(), topic.into())
    }

    fn with(group: ConsumerGroup) -> Self {
        Self { session: Session::new(group.cluster.connect_timeout), group: Arc::new(group) }
    }

    async fn receive_from(
        &self,
        member: &Generation<GroupMember>,
        most: usize,
    ) -> Result<Vec<ReceivedMessage>, SourceError> {
        loop {
            let (messages, next) = member.tracker.take(most.max(1));
            if !messages.is_empty() {
                return Ok(messages);
            }
            if let Some(error) = member.tracker.take_error() {
                if error.is_fatal {
                    self.session.suspect(member);
                }
                return Err(SourceError::unavailable(error.why));
            }
            let next = next.unwrap_or_else(|| Instant::now() + MAX_DELAY);
            tokio::select! {
                () = member.tracker.changed.notified() => {}
                () = sleep_until(next) => {}
                () = member.needs_topic_lookup() => member.look_up_topic().await?,
            }
        }
    }

    /// Applies `each` to the record behind each ack handle.
    fn for_each<T>(
        &self,
        items: &[T],
        ack_handle: impl Fn(&T) -> &AckHandle,
        each: impl Fn(&GroupMember, RecordHandle, &T) -> Result<(), SourceError>,
    ) -> Vec<Result<(), SourceError>> {
        let current = self.session.current();
        let one = |item: &T| {
            let handle = ack_handle(item).downcast::<RecordHandle>();
            let handle = handle.ok_or_else(|| SourceError::stale("the message came from another source"))?;
            let member = current
                .as_ref()
                .ok_or_else(|| SourceError::stale("the source is closed, or its client was recreated"))?;
            each(member, *handle, item)
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

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ACK_BATCH).with_max_delay(MAX_DELAY)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let receiving = async {
            let member = self.session.connection(async { GroupMember::open(&self.group) }).await?;
            self.receive_from(&member, most).await
        };
        self.session.unless_closed(receiving).await
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        self.for_each(
            acks,
            |(handle, _)| handle,
            |member, handle, (_, ack)| {
                let ack = match *ack {
                    Ack::Nack { after } => Ack::Nack { after: after.min(MAX_DELAY) },
                    other => other,
                };
                member.tracker.ack(handle, ack)
            },
        )
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        self.for_each(handles, |handle| handle, |member, handle, _| member.tracker.check(handle))
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        let (topic, within) = (&self.group.topic, self.group.cluster.connect_timeout);
        let client = self.group.admin_config().map_err(SourceError::unavailable)?;
        let config = describe_config(&client, within, ResourceSpecifier::Topic(topic)).await;
        let config = config.map_err(|error| SourceError::unavailable(error::describe(&error)))?;
        Ok(match number(&config, "retention.ms") {
            Some(age) if age >= 0 => RedeliveryWindow::within(
                Duration::from_millis(age.cast_unsigned()),
                format!("retention.ms = {age} of the topic {topic}"),
            ),
            Some(age) => RedeliveryWindow::unbounded(format!("retention.ms = {age} of the topic {topic}")),
            None => RedeliveryWindow::unbounded(format!(
                "the cluster does not show retention.ms of the topic {topic}"
            )),
        })
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        check::findings(&self.group).await
    }

    async fn close(&self) {
        if let Some(member) = self.session.close().await {
            member.close().await;
        }
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("group", &self.group).finish_non_exhaustive()
    }
}
