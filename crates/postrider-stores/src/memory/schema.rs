//! Queues and their policies. There are no tables.

use super::MemoryStore;
use async_trait::async_trait;
use postrider_core::{
    Error, Invalid, QueueName, QueuePolicy,
    schema::{Drift, Schema},
};
use std::mem::discriminant;

#[async_trait]
impl Schema for MemoryStore {
    async fn migrate(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        Ok(Vec::new())
    }

    fn print(&self) -> String {
        "-- The memory store has no tables.\n".to_owned()
    }

    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error> {
        policy.check()?;
        let mut rooms = self.lock();
        let declared = rooms.queues.entry(queue.clone()).or_default();
        let is_empty = declared.ready.is_empty() && declared.later.is_empty();
        if !is_empty && discriminant(&declared.policy.ordering) != discriminant(&policy.ordering) {
            let rule = format!("queue {queue:?} still holds messages; drain it, or use a new queue");
            return Err(Invalid::rule("ordering", rule).into());
        }
        declared.govern(policy.clone());
        Ok(())
    }
}
