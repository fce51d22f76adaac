//! The seams at which nothing goes wrong.

#![deny(clippy::missing_trait_methods, reason = "what is not forwarded would be another store's")]

use crate::TestStore;
use async_trait::async_trait;
use postrider_core::{
    Error, MessageId, OrderingKey, QueueName, QueuePolicy,
    inspect::{Action, AuditRow, BlockedKey, Counts, Entry, Inspect, ListRequest, Page},
    schema::{Drift, Schema},
    wake::{Ear, Sleeper, Wake},
};
use std::{collections::BTreeMap, time::Duration};

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

    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.memory.audit(limit).await
    }
}
