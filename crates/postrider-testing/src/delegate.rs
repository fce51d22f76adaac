//! The store traits without fault injection: every call goes to the in-memory store.

#![deny(clippy::missing_trait_methods, reason = "a default method would not reach the in-memory store")]

use crate::TestStore;
use async_trait::async_trait;
use postrider_core::{
    Error, Message, MessageId, OrderingKey, Pausable, PruneRequest, QueueName, QueuePolicy, StageReport,
    TenantId, TimerName,
    inspect::{
        Action, ActiveTimer, AuditRow, BlockedKey, CappedCount, ChangeReport, Chunk, Counts, DeadGroup,
        DeduplicationRecord, FindBy, Inspect, ListRequest, MessageRow, Operate, Page, Prunable, Selection,
        SelectionSummary,
    },
    notifier::{IdleWorker, Listener, Notifier},
    schema::{Drift, Migrations, Schema},
};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

#[async_trait]
impl Notifier for TestStore {
    async fn register_idle(&self, idle: &IdleWorker, lasting: Duration) -> Result<(), Error> {
        self.memory.register_idle(idle, lasting).await
    }

    async fn deregister_idle(&self, idle: &IdleWorker) -> Result<(), Error> {
        self.memory.deregister_idle(idle).await
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Listener>, Error> {
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

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<MessageRow>, Error> {
        self.memory.get(queue, id).await
    }

    async fn summarize(&self, selection: &Selection) -> Result<SelectionSummary, Error> {
        self.memory.summarize(selection).await
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        self.memory.dead_groups(queue, limit).await
    }

    async fn find(&self, by: &FindBy, limit: usize) -> Result<Vec<MessageRow>, Error> {
        self.memory.find(by, limit).await
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<CappedCount>, Error> {
        self.memory.ahead(queue, id).await
    }

    async fn deduplication_records(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> Result<Vec<DeduplicationRecord>, Error> {
        self.memory.deduplication_records(tenant, id).await
    }

    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<ActiveTimer>, Error> {
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

    async fn pause(&self, target: &Pausable, action: &Action) -> Result<bool, Error> {
        self.memory.pause(target, action).await
    }

    async fn resume(&self, target: &Pausable, action: &Action) -> Result<bool, Error> {
        self.memory.resume(target, action).await
    }

    async fn requeue_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        self.memory.requeue_next(selection, chunk, action).await
    }

    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        self.memory.discard_next(selection, chunk, action).await
    }

    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<StageReport, Error> {
        self.memory.replay(queue, originals, copies, action).await
    }

    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error> {
        self.memory.drop_timer(queue, timer, action).await
    }

    async fn prune_audit(&self, age: Duration, limit: usize, action: &Action) -> Result<u64, Error> {
        self.memory.prune_audit(age, limit, action).await
    }
}
