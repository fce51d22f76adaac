//! The seams for operators: the command line and the dashboard. Never on the hot path.
//!
//! [`Inspect`] looks and changes nothing; [`Operate`] changes.

use crate::{Error, MessageId, OrderingKey, PruneRequest, QueueName, Reason, TenantId};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    time::{Duration, SystemTime},
};

mod action;
mod clue;
mod counts;
mod list;
mod operate;
mod selection;

pub use action::{Action, AuditRow};
pub use clue::{Clue, InboxMark, LivingTimer};
pub use counts::{Counts, Tally};
pub use list::{Cursor, Entry, ListRequest, Page, Room};
pub use operate::Operate;
pub use selection::{Changed, Chunk, DeadGroup, ERROR_KIND_CHARS, Fence, Selected, Selection, error_kind};

/// Looks into a store, and changes nothing.
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

    /// How many messages a selection holds, counted to the last one, and where it ends now. Without payloads, in one statement.
    async fn tally(&self, selection: &Selection) -> Result<Selected, Error>;

    /// Dead letters by what they have in common, of one queue or of all, the most numerous first. Counted to the last one.
    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error>;

    /// Up to `limit` messages that a clue leads to, in whatever queue and room, the first staged first.
    async fn find(&self, clue: &Clue, limit: usize) -> Result<Vec<Entry>, Error>;

    /// How many messages of its key a message has before it in `ready`; `None` when it is not there, or its queue has no order. Bounded, as
    /// [`counts`](Self::counts).
    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<Tally>, Error>;

    /// Who has admitted a message of a tenant, or of nobody.
    async fn marks(&self, tenant: Option<&TenantId>, id: MessageId) -> Result<Vec<InboxMark>, Error>;

    /// Up to `limit` timers that live, by queue and name: of one queue, or of all.
    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<LivingTimer>, Error>;

    /// How much [`prune`](crate::Store::prune) would remove now, however many calls it takes; and how many audit rows are older than this.
    /// Counted to the last one.
    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error>;

    /// The store's clock.
    async fn clock(&self) -> Result<SystemTime, Error>;

    /// What operators did to a message, newest first.
    async fn audit_of(&self, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error>;

    /// What operators did, newest first.
    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error>;
}

/// What may go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prunable {
    /// Archived messages whose time is over.
    pub archived: u64,
    /// Dead letters.
    pub dead: u64,
    /// Marks of the inbox.
    pub inbox: u64,
    /// Rows of what operators did.
    pub audit: u64,
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
