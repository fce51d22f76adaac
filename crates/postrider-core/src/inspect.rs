//! The seam for operators: the command line and the dashboard. Never on the hot path.

use crate::{
    Error, EventType, Invalid, Message, MessageId, OrderingKey, QueueName, Reason, State,
    limits::{self, Charset},
};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    time::{Duration, SystemTime},
};

/// Looks into a store, and mends what needs a hand. Every action leaves an audit row in its own transaction.
#[async_trait]
pub trait Inspect: Debug + Send + Sync + 'static {
    /// How many messages each queue holds in each state. Bounded: above a cap it says so instead of counting on.
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error>;

    /// How long the oldest message that is due has been waiting, or `None` when nothing is due.
    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error>;

    /// The keys that wait for a retry or for a hand, longest first.
    async fn blocked_keys(&self, queue: &QueueName, limit: usize) -> Result<Vec<BlockedKey>, Error>;

    /// One page of messages.
    async fn list(&self, request: &ListRequest) -> Result<Page, Error>;

    /// One message, wherever it is.
    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<Entry>, Error>;

    /// Puts dead letters back, each under its own identity and in its key's order, with its counters at zero. Answers with
    /// those that were there.
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error>;

    /// Removes messages that are not in anybody's hands, dead letters included. Answers with those that were there.
    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error>;

    /// Lets a blocked key run again now. `false` when it was not blocked.
    async fn release_key(&self, queue: &QueueName, key: &OrderingKey, action: &Action)
    -> Result<bool, Error>;

    /// What operators did, newest first.
    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error>;
}

/// Who does something, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Who.
    pub actor: String,
    /// Why.
    pub why: String,
}

impl Action {
    /// `actor` does it because of `why`.
    pub fn new(actor: impl Into<String>, why: impl Into<String>) -> Self {
        Self { actor: actor.into(), why: why.into() }
    }

    /// Whether somebody can be held to it.
    ///
    /// # Errors
    /// When the actor or the reason is missing or unreadable.
    pub fn check(&self) -> Result<(), Invalid> {
        limits::name("actor", Charset::Line, &self.actor)?;
        limits::text("why", limits::HEADER_VALUE_BYTES, Charset::Line, &self.why)
    }
}

/// Something an operator did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When, by the store's clock.
    pub at: SystemTime,
    /// Who and why.
    pub action: Action,
    /// What: `requeue`, `discard`, `release_key` or `erase_subject`.
    pub verb: String,
    /// Where.
    pub queue: QueueName,
    /// The messages it touched.
    pub ids: Vec<MessageId>,
    /// The key it touched.
    pub key: Option<OrderingKey>,
}

/// How many messages a queue holds in each state; every state is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Due and free, or due and blocked behind its key.
    pub pending: Tally,
    /// In somebody's hands.
    pub leased: Tally,
    /// Not due yet: timers and retries.
    pub waiting: Tally,
    /// Dead letters.
    pub dead: Tally,
    /// Kept after success.
    pub done: Tally,
}

/// A count that stops at a cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many were counted.
    pub at_least: u64,
    /// Whether there may be more.
    pub capped: bool,
}

impl Tally {
    /// A tally of `counted`, which stopped at `cap`.
    pub fn new(counted: u64, cap: u64) -> Self {
        Self { at_least: counted.min(cap), capped: counted > cap }
    }
}

/// A key that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedKey {
    /// The key.
    pub key: OrderingKey,
    /// The message at its head.
    pub head: MessageId,
    /// When it runs again by itself; `None` when it is parked and waits for a hand.
    pub due_at: Option<SystemTime>,
    /// Why it is parked, when it failed for good.
    pub reason: Option<Reason>,
    /// What failed.
    pub error: Option<String>,
}

/// Which messages to list.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// The queue.
    pub queue: QueueName,
    /// Where they are.
    pub room: Room,
    /// How many.
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// Only this key.
    pub key: Option<OrderingKey>,
    /// Only this type.
    pub event_type: Option<EventType>,
    /// Only dead letters of this reason.
    pub reason: Option<Reason>,
}

impl ListRequest {
    /// The first hundred messages of a room, oldest first.
    pub fn new(queue: QueueName, room: Room) -> Self {
        Self { queue, room, limit: 100, after: None, key: None, event_type: None, reason: None }
    }

    /// So many a page.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// The page after this one.
    #[must_use]
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.after = cursor;
        self
    }

    /// Only this key.
    #[must_use]
    pub fn with_key(mut self, key: OrderingKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Only this type.
    #[must_use]
    pub fn with_event_type(mut self, event_type: EventType) -> Self {
        self.event_type = Some(event_type);
        self
    }

    /// Only dead letters of this reason.
    #[must_use]
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }
}

/// Where messages are. A message is in exactly one room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// May run now, leased or not. A retry may wait here too, if the store does not move it for so short a time.
    Ready,
    /// Waits: timers, and retries of unordered queues.
    Later,
    /// Dead letters.
    Dead,
    /// Kept after success.
    Archive,
}

/// Where a page ended. Opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The time column of the room, where it is paged by time.
    pub at: Option<SystemTime>,
    /// The place in the line.
    pub place: i64,
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The messages.
    pub entries: Vec<Entry>,
    /// Where to go on, when there may be more.
    pub next: Option<Cursor>,
}

/// A message as an operator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The message; its id is set.
    pub message: Message,
    /// What state it is in.
    pub state: State,
    /// When it was staged.
    pub staged_at: SystemTime,
    /// When it is or was due; for a dead letter when it failed; for a kept one when it was delivered.
    pub at: SystemTime,
    /// How often it was claimed.
    pub deliveries: u32,
    /// How many failures were reported.
    pub attempts: u32,
    /// Why it is dead.
    pub reason: Option<Reason>,
    /// What failed last.
    pub error: Option<String>,
}
