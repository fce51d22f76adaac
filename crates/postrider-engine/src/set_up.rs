//! What a worker and a relay have to say before they begin.

use postrider_core::{Error, QueueName, QueuePolicy, schema::Schema};

/// What is declared about their queues, and settings that work, but seldom as meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct SetUp {
    pub(crate) policies: Vec<(QueueName, QueuePolicy)>,
    pub(crate) traps: Vec<String>,
}

impl SetUp {
    pub(crate) async fn declare(&self, schema: &dyn Schema) -> Result<(), Error> {
        for (queue, policy) in &self.policies {
            schema.declare(queue, policy).await?;
        }
        Ok(())
    }

    pub(crate) fn tell_traps(&self) {
        for trap in &self.traps {
            tracing::warn!(name: "postrider.trap", "{trap}");
        }
    }
}
