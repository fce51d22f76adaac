//! Reads entries: new ones, and those to be redelivered.
//!
//! The reader has its own connection, because a read blocks for up to [`BLOCK`] and delays every other command on the connection. One poll
//! asks, in this order and until it gets entries, for: entries that this consumer name had pending before the process started, if the name
//! is configured; nacked entries that are due; entries left pending by other consumers, in steps; and new entries. While there are more
//! entries left by other consumers, every second poll reads new ones, so that neither waits for the other.

use super::{
    entry_id::EntryId,
    group::{ConsumerGroup, GENERATED_PREFIX, NACKED_CONSUMER, Start},
    script, unavailable,
};
use crate::{
    redis::{connection::RedisConnection, server::Server},
    session::Session,
};
use postrider_core::SourceError;
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// A read blocks for at most this long, so that claims are due in time and a source can close.
pub(super) const BLOCK: Duration = Duration::from_millis(500);
/// Maximum number of entries per command.
const MAX_BATCH: usize = 1_000;
/// Interval between claims of entries left by other consumers: a quarter of the ack deadline, within these bounds.
const MIN_CLAIM_INTERVAL: Duration = Duration::from_millis(250);
const MAX_CLAIM_INTERVAL: Duration = Duration::from_secs(5);

/// Names and values, as they are on the wire.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;
/// Ids and fields; `None` for a deleted entry.
type Entries = Vec<(String, Option<Fields>)>;

/// An entry that was delivered to this consumer.
#[derive(Debug)]
pub(super) struct ReceivedEntry {
    pub(super) id: EntryId,
    pub(super) fields: Fields,
    pub(super) deliveries: u32,
    pub(super) at: Instant,
}

/// The reader's state between polls.
pub(super) struct EntryReader {
    /// Reads this consumer's earlier pending entries from here on; `None` once all are read.
    history: Option<EntryId>,
    /// Claims entries left by other consumers from here on.
    cursor: String,
    autoclaimed_at: Option<Instant>,
    has_autoclaimed_last: bool,
}

impl EntryReader {
    pub(super) fn new(group: &ConsumerGroup) -> Self {
        Self {
            history: group.is_named.then(EntryId::default),
            cursor: "0-0".to_owned(),
            autoclaimed_at: None,
            has_autoclaimed_last: false,
        }
    }

    /// Polls once, connecting if necessary. Blocks for up to [`BLOCK`] if there are no entries.
    pub(super) async fn poll_once(
        &mut self,
        session: &Session<RedisConnection>,
        server: &Server,
        group: &ConsumerGroup,
        most: usize,
    ) -> Result<Vec<ReceivedEntry>, SourceError> {
        let most = most.clamp(1, MAX_BATCH);
        let connection = session.connection(connect(server, group)).await?;
        let entries = self.poll(&GroupReader { connection: &connection, group }, most).await;
        entries.inspect_err(|_| session.suspect(&connection))
    }

    async fn poll(
        &mut self,
        reader: &GroupReader<'_>,
        most: usize,
    ) -> Result<Vec<ReceivedEntry>, SourceError> {
        if let Some(after) = self.history {
            let (entries, last) = reader.read_history(after, most).await?;
            self.history = last;
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        let due = reader.group.take_due(most);
        if !due.is_empty() {
            let entries = reader.claim(&due).await?;
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        let interval = (reader.group.ack_deadline / 4).clamp(MIN_CLAIM_INTERVAL, MAX_CLAIM_INTERVAL);
        let next_autoclaim = |last: Option<Instant>| last.map_or_else(Instant::now, |at| at + interval);
        if next_autoclaim(self.autoclaimed_at) <= Instant::now() && !self.has_autoclaimed_last {
            self.has_autoclaimed_last = true;
            let (cursor, entries) = reader.autoclaim(&self.cursor, most).await?;
            self.cursor = cursor;
            if self.cursor == "0-0" {
                self.autoclaimed_at = Some(Instant::now());
                reader.remove_dead_consumers().await?;
            }
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        self.has_autoclaimed_last = false;
        let until = reader.group.next_due().map_or_else(
            || next_autoclaim(self.autoclaimed_at),
            |due| due.min(next_autoclaim(self.autoclaimed_at)),
        );
        reader.read_new(most, until.saturating_duration_since(Instant::now()).min(BLOCK)).await
    }
}

async fn connect(server: &Server, group: &ConsumerGroup) -> Result<RedisConnection, SourceError> {
    let connection = RedisConnection::connect(server).await.map_err(unavailable)?;
    if let Some(start) = group.created_at {
        create_group(&connection, group, start).await?;
    }
    Ok(connection)
}

async fn create_group(
    connection: &RedisConnection,
    group: &ConsumerGroup,
    start: Start,
) -> Result<(), SourceError> {
    match connection.send(&group.create_command(start)).await.map_err(SourceError::unavailable)? {
        // The group exists.
        Value::ServerError(error) if error.code() == "BUSYGROUP" => Ok(()),
        Value::ServerError(error) => Err(SourceError::unavailable(group.describe_error(&error))),
        _ => Ok(()),
    }
}

/// Reads and claims as a consumer of the group.
struct GroupReader<'a> {
    connection: &'a RedisConnection,
    group: &'a ConsumerGroup,
}

impl GroupReader<'_> {
    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, SourceError> {
        self.parse(self.connection.send(command).await.map_err(SourceError::unavailable)?)
    }

    fn parse<T: FromRedisValue>(&self, value: Value) -> Result<T, SourceError> {
        match value {
            Value::ServerError(error) => Err(SourceError::unavailable(self.group.describe_error(&error))),
            value => {
                redis::from_redis_value(value).map_err(|error| SourceError::unavailable(error.to_string()))
            }
        }
    }

    fn read_command(&self, most: usize) -> Cmd {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group.name).arg(&*self.group.consumer).arg("COUNT").arg(most);
        read
    }

    /// Reads new entries.
    async fn read_new(&self, most: usize, wait: Duration) -> Result<Vec<ReceivedEntry>, SourceError> {
        let mut read = self.read_command(most);
        // BLOCK 0 would mean no timeout.
        if wait.as_millis() > 0 {
            read.arg("BLOCK").arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        read.arg("STREAMS").arg(&self.group.stream).arg(">");
        let (entries, _) = self.drop_deleted(self.entries(&read).await?).await?;
        Ok(entries.into_iter().map(|(id, fields)| ReceivedEntry::new(id, fields, 1)).collect())
    }

    async fn entries(&self, read: &Cmd) -> Result<Entries, SourceError> {
        let streams: Option<Vec<(String, Entries)>> = self.query(read).await?;
        Ok(streams.into_iter().flatten().flat_map(|(_, entries)| entries).collect())
    }

    /// Reads the entries that an earlier process had pending under this consumer name. Also returns the id from which on there may be more.
    async fn read_history(
        &self,
        after: EntryId,
        most: usize,
    ) -> Result<(Vec<ReceivedEntry>, Option<EntryId>), SourceError> {
        let mut read = self.read_command(most);
        read.arg("STREAMS").arg(&self.group.stream).arg(after.to_string());
        let (entries, last) = self.drop_deleted(self.entries(&read).await?).await?;
        Ok((self.with_delivery_counts(entries).await?, last))
    }

    /// Claims nacked entries that are due, unless another consumer was faster.
    async fn claim(&self, ids: &[EntryId]) -> Result<Vec<ReceivedEntry>, SourceError> {
        let mut claim = self.group.command("XCLAIM");
        claim.arg(&*self.group.consumer).arg(self.group.ack_deadline_millis());
        for id in ids {
            claim.arg(id.to_string());
        }
        let (entries, _) = self.drop_deleted(self.query(&claim).await?).await?;
        self.with_delivery_counts(entries).await
    }

    /// Claims entries that other consumers left pending, one step from `cursor` on.
    async fn autoclaim(
        &self,
        cursor: &str,
        most: usize,
    ) -> Result<(String, Vec<ReceivedEntry>), SourceError> {
        let mut claim = self.group.command("XAUTOCLAIM");
        claim.arg(&*self.group.consumer).arg(self.group.ack_deadline_millis());
        claim.arg(cursor).arg("COUNT").arg(most);
        // Since 7.0 the reply has a third part, the deleted entries, which the server has removed from the group by itself.
        let reply: Vec<Value> = self.query(&claim).await?;
        let mut parts = reply.into_iter();
        let mut part = || parts.next().unwrap_or_default();
        let (cursor, entries) = (self.parse(part())?, self.parse(part())?);
        let (entries, _) = self.drop_deleted(entries).await?;
        Ok((cursor, self.with_delivery_counts(entries).await?))
    }

    /// The entries that exist. Deleted ones can never be delivered, so they are acknowledged. Also returns the last id of all.
    async fn drop_deleted(
        &self,
        entries: Entries,
    ) -> Result<(Vec<(EntryId, Fields)>, Option<EntryId>), SourceError> {
        let (mut existing, mut deleted, mut last) = (Vec::with_capacity(entries.len()), Vec::new(), None);
        for (id, fields) in entries {
            let Ok(id) = id.parse::<EntryId>() else {
                return Err(SourceError::unavailable(format!("{id} is not an entry id")));
            };
            last = Some(id);
            match fields {
                Some(fields) => existing.push((id, fields)),
                None => deleted.push(id.to_string()),
            }
        }
        if !deleted.is_empty() {
            self.query::<i64>(self.group.command("XACK").arg(deleted)).await?;
        }
        Ok((existing, last))
    }

    /// Adds the delivery count of each entry, which claims do not return.
    async fn with_delivery_counts(
        &self,
        entries: Vec<(EntryId, Fields)>,
    ) -> Result<Vec<ReceivedEntry>, SourceError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut queries = Pipeline::with_capacity(entries.len());
        for (id, _) in &entries {
            let (mut pending, id) = (self.group.command("XPENDING"), id.to_string());
            pending.arg(&id).arg(&id).arg(1);
            queries.add_command(pending);
        }
        let replies = self.connection.send_all(&queries).await.map_err(SourceError::unavailable)?;
        let mut received = Vec::with_capacity(entries.len());
        for ((id, fields), reply) in entries.into_iter().zip(replies) {
            let pending: Vec<(String, String, u64, u32)> = self.parse(reply)?;
            // Another consumer owns the entry by now if the reply took longer than the ack deadline.
            if let Some((_, owner, _, deliveries)) = pending.into_iter().next()
                && *owner == *self.group.consumer
            {
                received.push(ReceivedEntry::new(id, fields, deliveries));
            }
        }
        Ok(received)
    }

    /// Removes the names of dead processes once they have no pending entries. The name of a live process is back with its next read.
    async fn remove_dead_consumers(&self) -> Result<(), SourceError> {
        let consumers: Vec<HashMap<String, Value>> = self
            .query(redis::cmd("XINFO").arg("CONSUMERS").arg(&self.group.stream).arg(&self.group.name))
            .await?;
        for mut consumer in consumers {
            let mut part = |name: &str| consumer.remove(name).unwrap_or_default();
            let (name, pending, idle): (String, u64, u64) =
                (self.parse(part("name"))?, self.parse(part("pending"))?, self.parse(part("idle"))?);
            let is_dead = pending == 0 && idle > self.group.ack_deadline_millis().saturating_mul(2);
            if is_dead
                && name.starts_with(GENERATED_PREFIX)
                && name != NACKED_CONSUMER
                && *name != *self.group.consumer
            {
                self.query::<Value>(&script::remove(self.group, &name)).await?;
            }
        }
        Ok(())
    }
}

impl ReceivedEntry {
    fn new(id: EntryId, fields: Fields, deliveries: u32) -> Self {
        Self { id, fields, deliveries, at: Instant::now() }
    }
}

/// The result of a poll, with the reader for the next one.
pub(super) type PollResult = (EntryReader, Result<Vec<ReceivedEntry>, SourceError>);

/// Runs a poll as a task, so that no entry is lost when the caller is dropped.
pub(super) fn spawn(
    mut reader: EntryReader,
    session: Arc<Session<RedisConnection>>,
    server: Arc<Server>,
    group: Arc<ConsumerGroup>,
    most: usize,
) -> JoinHandle<PollResult> {
    tokio::spawn(async move {
        let entries = reader.poll_once(&session, &server, &group, most).await;
        (reader, entries)
    })
}
