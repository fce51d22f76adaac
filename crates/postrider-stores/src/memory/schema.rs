//! Queues and their policies. There are no tables.

use super::MemoryStore;
use async_trait::async_trait;
use postrider_core::{
    CheckupRequest, Error, Finding, Invalid, QueueName, QueuePolicy,
    schema::{Drift, Migrations, Schema},
};
use std::mem::discriminant;

#[async_trait]
impl Schema for MemoryStore {
    async fn migrate(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        Ok(Migrations::default())
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        Ok(Vec::new())
    }

    fn print(&self) -> String {
        "-- The memory store has no tables.\n".to_owned()
    }

    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error> {
        policy.check()?;
        let mut tables = self.lock();
        let declared = tables.queues.entry(queue.clone()).or_default();
        let is_empty = declared.ready.is_empty() && declared.scheduled.is_empty();
        if !is_empty && discriminant(&declared.policy.ordering) != discriminant(&policy.ordering) {
            let rule = format!("queue {queue:?} still holds messages; drain it, or use a new queue");
            return Err(Invalid::rule("ordering", rule).into());
        }
        declared.set_policy(policy.clone());
        Ok(())
    }

    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        Self::checkup(self, request)
    }
}

/// Without a server and a file there is nothing to check.
impl MemoryStore {
    pub(super) fn checkup(&self, _: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }
}
