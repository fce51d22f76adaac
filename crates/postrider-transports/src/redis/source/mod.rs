//! A consumer of Redis Streams, as a member of a consumer group.
//!
//! Redis keeps for every entry its owner and the time of delivery, until it is acknowledged. The guarantee rests on that: an entry that is
//! not acked within the [ack deadline](RedisSourceBuilder::with_ack_deadline) is claimed by a live consumer, and whichever process dies in
//! between, the entry stays pending.
//!
//! - **Ack** is `XACK`. It is valid whichever consumer owns the entry by now: the effect of the message exists.
//! - **Reject** is `XACK`, atomic with an `XADD` to another stream if that is [configured](RedisSourceBuilder::with_reject_to).
//! - **Nack** sets the entry's idle time so that it can be claimed after the delay, under a consumer name that no process reads. The server
//!   keeps this state: if this process dies, another one claims the entry at its time. Redis has no negative idle time, so the ack
//!   deadline is the maximum delay.
//! - **Extend** resets the entry's idle time to zero.
//!
//! The last three apply only if the delivery is still ours, which a script compares on the server in the same step.
//!
//! A consumer that closes nacks its pending entries and removes its name. `XGROUP DELCONSUMER` drops the pending entries of a name, so
//! it is used only for names that have none.

mod builder;
mod check;
mod entry_id;
mod group;
mod receive;
mod script;

pub use builder::RedisSourceBuilder;

use super::{connection::RedisConnection, server::Server, wire};
use crate::{
    byte_budget::{ByteBudget, BytesInFlight},
    session::{Generation, Session, SessionError},
};
use async_trait::async_trait;
use entry_id::EntryId;
use group::ConsumerGroup;
use postrider_core::{
    Ack, AckHandle, Capabilities, ClientOptions, Finding, Incoming, Invalid, PublishError, ReceivedMessage,
    RedeliveryWindow, Source, SourceError,
};
use receive::{EntryReader, PollResult, ReceivedEntry};
use redis::{Pipeline, Value};
use script::DeliveryStep;
use std::{collections::VecDeque, fmt, sync::Arc};
use tokio::{sync::Mutex, task::JoinHandle, time::Instant};

/// More acks in one call cost as much as two calls.
const MAX_ACKS: usize = 1_000;

/// Receives from a Redis stream, as a member of a consumer group.
///
/// ```no_run
/// # use postrider_core::{Ack, Source};
/// # use postrider_transports::redis::RedisSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = RedisSource::builder("redis://127.0.0.1:6379", "orders")
///     .with_group("billing")
///     .create_group()
///     .with_reject_to("orders-rejected")
///     .build()?;
/// for message in orders.receive(100).await? {
///     println!("{:?}", message.incoming.body);
///     orders.ack(&[(message.ack_handle, Ack::Ack)]).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct RedisSource {
    server: Arc<Server>,
    group: Arc<ConsumerGroup>,
    receiving: Mutex<ReceiveState>,
    budget: ByteBudget,
    /// The connection that reads. A read blocks every other command on it.
    read_session: Arc<Session<RedisConnection>>,
    /// The connection for acks and everything else.
    ack_session: Session<RedisConnection>,
}

/// The state of receiving between calls.
#[derive(Default)]
struct ReceiveState {
    reader: Option<EntryReader>,
    poll: Option<JoinHandle<PollResult>>,
    /// Entries that were read for a call that was dropped, or beyond the number that the call wanted.
    buffered: VecDeque<BufferedEntry>,
    has_begun: bool,
}

/// A decoded entry that no call has received yet.
struct BufferedEntry {
    id: EntryId,
    incoming: Incoming,
    deliveries: u32,
    at: Instant,
    bytes: BytesInFlight,
}

/// The content of an ack handle: one delivery of an entry.
#[derive(Debug)]
struct DeliveryRef {
    consumer: Arc<str>,
    id: EntryId,
    deliveries: u32,
    _bytes: BytesInFlight,
}

impl RedisSource {
    /// A source of this stream, on the server at this URL, such as `redis://user:password@host:6379/0`, or `rediss://` for TLS. It is a
    /// member of the group `postrider`, which must exist. It connects with the first receive, and reconnects by itself.
    ///
    /// # Errors
    /// When the URL is invalid, a certificate cannot be used, or the stream name is empty.
    pub fn connect(client: impl Into<ClientOptions>, stream: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(client, stream).build()
    }

    /// A builder for the same stream, with more settings.
    pub fn builder(client: impl Into<ClientOptions>, stream: impl Into<String>) -> RedisSourceBuilder {
        RedisSourceBuilder::new(client.into(), stream.into())
    }

    fn with(server: Server, group: ConsumerGroup, max_bytes: usize) -> Self {
        Self {
            read_session: Arc::new(Session::new(server.open_timeout())),
            ack_session: Session::new(server.open_timeout()),
            server: Arc::new(server),
            group: Arc::new(group),
            receiving: Mutex::default(),
            budget: ByteBudget::new(max_bytes),
        }
    }

    /// The connection for acks.
    async fn connection(&self) -> Result<Generation<RedisConnection>, SourceError> {
        let connect = async { RedisConnection::connect(&self.server).await.map_err(unavailable) };
        self.ack_session.connection(connect).await
    }

    /// Takes up to `most` buffered entries. Entries that were buffered for too long may belong to another consumer by now, and are dropped:
    /// they are redelivered.
    fn take(&self, buffered: &mut VecDeque<BufferedEntry>, most: usize) -> Vec<ReceivedMessage> {
        buffered.retain(|entry| entry.at.elapsed() < self.group.ack_deadline / 2);
        let most = most.min(buffered.len());
        let to_message = |BufferedEntry { id, incoming, deliveries, bytes, .. }| {
            let consumer = Arc::clone(&self.group.consumer);
            let delivery = DeliveryRef { consumer, id, deliveries, _bytes: bytes };
            ReceivedMessage::new(incoming, AckHandle::new(delivery)).delivered(deliveries)
        };
        buffered.drain(..most).map(to_message).collect()
    }

    fn buffer(&self, entry: ReceivedEntry) -> BufferedEntry {
        let ReceivedEntry { id, fields, deliveries, at } = entry;
        let incoming = wire::decode(&self.group.stream, fields);
        BufferedEntry { id, deliveries, at, bytes: self.budget.add(&incoming), incoming }
    }

    /// The delivery of a handle, if this source received it.
    fn delivery<'a>(&self, handle: &'a AckHandle) -> Option<&'a DeliveryRef> {
        handle.downcast::<DeliveryRef>().filter(|delivery| *delivery.consumer == *self.group.consumer)
    }

    /// Acknowledges the `acked` entries and applies the steps to the deliveries that are ours, in one pipeline.
    async fn send_acks(
        &self,
        acked: &[EntryId],
        steps: &[(EntryId, u32, DeliveryStep)],
    ) -> Result<Vec<Result<(), SourceError>>, SourceError> {
        let mut pipeline = Pipeline::with_capacity(acked.len() + 2);
        for id in acked {
            let mut ack = self.group.command("XACK");
            pipeline.add_command(ack.arg(id.to_string()).clone());
        }
        if self.group.delete_when_done && !acked.is_empty() {
            pipeline
                .cmd("XDEL")
                .arg(&self.group.stream)
                .arg(acked.iter().map(EntryId::to_string).collect::<Vec<_>>());
        }
        if !steps.is_empty() {
            pipeline.add_command(script::apply(&self.group, steps.iter().copied()));
        }
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.connection().await?;
        let mut guard = self.ack_session.suspect_unless_complete(&connection);
        let mut replies = connection.send_all(&pipeline).await.map_err(SourceError::unavailable)?;
        guard.is_complete = true;
        let script_results =
            if steps.is_empty() { Vec::new() } else { self.script_results(replies.pop(), steps.len()) };
        replies.truncate(acked.len());
        Ok(replies.into_iter().map(|reply| self.ack_result(reply)).chain(script_results).collect())
    }

    fn ack_result(&self, reply: Value) -> Result<(), SourceError> {
        match reply {
            Value::Int(0) => {
                Err(SourceError::stale("the message was acked before, or is not pending any more"))
            }
            Value::Int(_) => Ok(()),
            Value::ServerError(error) => Err(SourceError::unavailable(self.group.describe_error(&error))),
            Value::BulkString(why) => {
                Err(SourceError::unavailable(String::from_utf8_lossy(&why).into_owned()))
            }
            other => Err(SourceError::unavailable(format!("unexpected reply to an ack: {other:?}"))),
        }
    }

    /// The results of a script, one per step.
    fn script_results(&self, reply: Option<Value>, count: usize) -> Vec<Result<(), SourceError>> {
        match reply {
            Some(Value::Array(results)) if results.len() == count => {
                results.into_iter().map(|reply| self.ack_result(reply)).collect()
            }
            other => (0..count).map(|_| self.ack_result(other.clone().unwrap_or_default())).collect(),
        }
    }

    /// Nacks the entries in flight, and leaves the group.
    async fn leave(&self) -> Result<(), SourceError> {
        let connection = self.connection().await?;
        while connection.query(&script::release(&self.group)).await.map_err(unavailable)? != Value::Int(0) {}
        connection.query(&script::remove(&self.group, &self.group.consumer)).await.map_err(unavailable)?;
        Ok(())
    }
}

/// A source has one error for every failure of the server: unavailable.
fn unavailable(error: PublishError) -> SourceError {
    match error {
        PublishError::Retry { source, .. }
        | PublishError::Unknown { source }
        | PublishError::Reject { source }
        | PublishError::Unavailable { source }
        | PublishError::AddressUnavailable { source } => SourceError::Unavailable { source },
        other => SourceError::unavailable(other),
    }
}

fn not_ours() -> SourceError {
    SourceError::stale("another source received the message")
}

/// The same error for each ack.
fn for_each(count: usize, error: &SourceError) -> Vec<Result<(), SourceError>> {
    let why = match error {
        SourceError::Unavailable { source } | SourceError::Stale { source } => source.to_string(),
        other => other.to_string(),
    };
    (0..count).map(|_| Err(SourceError::unavailable(why.clone()))).collect()
}

#[async_trait]
impl Source for RedisSource {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn origin(&self) -> &str {
        &self.group.stream
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(MAX_ACKS)
            .with_delivery_counts()
            .with_max_delay(self.group.ack_deadline)
            .with_ack_deadline(self.group.ack_deadline)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let receiving = async {
            let mut state = self.receiving.lock().await;
            let state = &mut *state;
            loop {
                if self.read_session.is_closed() {
                    return Err(SourceError::closed());
                }
                let messages = self.take(&mut state.buffered, most.max(1));
                if !messages.is_empty() {
                    return Ok(messages);
                }
                state.has_begun = true;
                // A poll that a dropped call left has its own number.
                let most = if state.poll.is_some() { most } else { self.budget.reserve(most.max(1)).await };
                let poll = state.poll.get_or_insert_with(|| {
                    let reader = state.reader.take().unwrap_or_else(|| EntryReader::new(&self.group));
                    let session = Arc::clone(&self.read_session);
                    receive::spawn(reader, session, Arc::clone(&self.server), Arc::clone(&self.group), most)
                });
                let ended = poll.await;
                state.poll = None;
                let (reader, entries) = ended.map_err(SourceError::unavailable)?;
                state.reader = Some(reader);
                state.buffered.extend(entries?.into_iter().map(|entry| self.buffer(entry)));
            }
        };
        self.read_session.unless_closed(receiving).await
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let mut results: Vec<_> = acks.iter().map(|_| Err(not_ours())).collect();
        let (mut acked, mut steps) = (Vec::new(), Vec::new());
        // Their indexes in the batch.
        let (mut acked_at, mut steps_at) = (Vec::new(), Vec::new());
        for (at, (handle, ack)) in acks.iter().enumerate() {
            let Some(DeliveryRef { id, deliveries, .. }) = self.delivery(handle) else { continue };
            let step = match *ack {
                Ack::Ack => {
                    acked.push(*id);
                    acked_at.push(at);
                    continue;
                }
                Ack::Nack { after } => DeliveryStep::Nack(after.min(self.group.ack_deadline)),
                Ack::Reject => DeliveryStep::Reject,
            };
            steps.push((*id, *deliveries, step));
            steps_at.push(at);
        }
        let sent = self.send_acks(&acked, &steps).await;
        let sent = sent.unwrap_or_else(|error| for_each(acked.len() + steps.len(), &error));
        for (at, result) in acked_at.iter().chain(&steps_at).zip(sent) {
            results[*at] = result;
        }
        for (at, (id, _, step)) in steps_at.into_iter().zip(steps) {
            if let (DeliveryStep::Nack(after), Ok(())) = (step, &results[at]) {
                self.group.schedule_claim(id, after);
            }
        }
        results
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        let ours: Vec<_> = handles.iter().map(|handle| self.delivery(handle)).collect();
        let steps: Vec<_> = ours
            .iter()
            .flatten()
            .map(|delivery| (delivery.id, delivery.deliveries, DeliveryStep::Extend))
            .collect();
        let sent = self.send_acks(&[], &steps).await.unwrap_or_else(|error| for_each(steps.len(), &error));
        let mut sent = sent.into_iter();
        ours.into_iter()
            .map(|delivery| delivery.and_then(|_| sent.next()).unwrap_or_else(|| Err(not_ours())))
            .collect()
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        let connection = self.connection().await?;
        match connection.query(redis::cmd("PTTL").arg(&self.group.stream)).await {
            Ok(Value::Int(left)) if left >= 0 => {
                let left = std::time::Duration::from_millis(left.cast_unsigned());
                Ok(RedeliveryWindow::within(
                    left,
                    format!("PTTL {} = {} ms", self.group.stream, left.as_millis()),
                ))
            }
            Ok(_) => {
                Ok(RedeliveryWindow::unbounded("a group keeps pending entries until they are acknowledged"))
            }
            Err(error) => {
                self.ack_session.suspect(&connection);
                Err(unavailable(error))
            }
        }
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let connection = self.connection().await?;
        let findings = check::findings(&connection, &self.group).await;
        if findings.is_err() {
            self.ack_session.suspect(&connection);
        }
        findings.map_err(unavailable)
    }

    async fn close(&self) {
        self.read_session.close().await;
        let mut state = self.receiving.lock().await;
        if let Some(poll) = state.poll.take() {
            // Entries that it still reads are pending, and are nacked with the rest.
            poll.await.ok();
        }
        let (has_begun, _) = (std::mem::take(&mut state.has_begun), std::mem::take(&mut *state));
        if has_begun {
            // If this fails, the entries are redelivered after the ack deadline.
            self.leave().await.ok();
        }
        self.ack_session.close().await;
    }
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSource")
            .field("server", &self.server.address)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
