//! Setup of a worker or a relay: queue policies and configuration warnings.

use postrider_core::{Error, QueueName, QueuePolicy, schema::Schema};

/// The declared policies of the queues, and the configuration warnings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    pub(crate) policies: Vec<(QueueName, QueuePolicy)>,
    pub(crate) warnings: Vec<String>,
}

impl Setup {
    pub(crate) async fn declare(&self, schema: &dyn Schema) -> Result<(), Error> {
        for (queue, policy) in &self.policies {
            schema.declare(queue, policy).await?;
        }
        Ok(())
    }

    pub(crate) fn log_warnings(&self) {
        for warning in &self.warnings {
            tracing::warn!(name: "postrider.warning", "{warning}");
        }
    }
}
