//! The seams at which nothing goes wrong.

#![deny(clippy::missing_trait_methods, reason = "what is not forwarded would be another store's")]

use crate::TestStore;
use async_trait::async_trait;
use postrider_core::{
    Error, Message, MessageId, OrderingKey, Pausable, PruneRequest, QueueName, QueuePolicy, Staged, TenantId,
    TimerName,
    inspect::{
        Action, AuditRow, BlockedKey, Changed, Chunk, Clue, Counts, DeadGroup, Entry, InboxMark, Inspect,
        ListRequest, LivingTimer, Operate, Page, Prunable, Selected, Selection, Tally,
    },
    schema::{Drift, Migrations, Schema},
    wake::{Ear, Sleeper, Wake},
};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

#[async_trait]
impl Wake for TestStore {
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error> {
        self.memory.lie_down(sleeper, lasting).await
    }

    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error> {
        self.memory.rise(sleeper).await
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error> {
        self.memory.listen(queues).await
    }
}

#[async_trait]
impl Schema for TestStore {
    async fn migrate(&self) -> Result<(), Error> {
        self.memory.migrate().await
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        self.memory.migrations().await
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        self.memory.validate().await
    }

    fn print(&self) -> String {
        self.memory.print()
    }

    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error> {
        self.memory.declare(queue, policy).await
    }
}

#[async_trait]
impl Inspect for TestStore {
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error> {
        self.memory.counts().await
    }

    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error> {
        self.memory.lag(queue).await
    }

    async fn blocked_keys(&self, queue: &QueueName, limit: usize) -> Result<Vec<BlockedKey>, Error> {
        self.memory.blocked_keys(queue, limit).await
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        self.memory.list(request).await
    }

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<Entry>, Error> {
        self.memory.get(queue, id).await
    }

    async fn tally(&self, selection: &Selection) -> Result<Selected, Error> {
        self.memory.tally(selection).await
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        self.memory.dead_groups(queue, limit).await
    }

    async fn find(&self, clue: &Clue, limit: usize) -> Result<Vec<Entry>, Error> {
        self.memory.find(clue, limit).await
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<Tally>, Error> {
        self.memory.ahead(queue, id).await
    }

    async fn marks(&self, tenant: Option<&TenantId>, id: MessageId) -> Result<Vec<InboxMark>, Error> {
        self.memory.marks(tenant, id).await
    }

    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<LivingTimer>, Error> {
        self.memory.timers(queue, limit).await
    }

    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error> {
        self.memory.prunable(request, audit_older_than).await
    }

    async fn clock(&self) -> Result<SystemTime, Error> {
        self.memory.clock().await
    }

    async fn audit_of(&self, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.memory.audit_of(id, limit).await
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.memory.audit(limit).await
    }
}

#[async_trait]
impl Operate for TestStore {
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        self.memory.requeue(queue, ids, action).await
    }

    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        self.memory.discard(queue, ids, action).await
    }

    async fn release_key(
        &self,
        queue: &QueueName,
        key: &OrderingKey,
        action: &Action,
    ) -> Result<bool, Error> {
        self.memory.release_key(queue, key, action).await
    }

    async fn pause(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        self.memory.pause(what, action).await
    }

    async fn resume(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        self.memory.resume(what, action).await
    }

    async fn requeue_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error> {
        self.memory.requeue_next(selection, chunk, action).await
    }

    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error> {
        self.memory.discard_next(selection, chunk, action).await
    }

    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<Staged, Error> {
        self.memory.replay(queue, originals, copies, action).await
    }

    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error> {
        self.memory.drop_timer(queue, timer, action).await
    }

    async fn prune_audit(&self, age: Duration, limit: usize, action: &Action) -> Result<u64, Error> {
        self.memory.prune_audit(age, limit, action).await
    }
}
