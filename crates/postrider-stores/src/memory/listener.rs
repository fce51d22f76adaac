//! The listener: receives notifications within the process.

use async_trait::async_trait;
use postrider_core::{Error, QueueName, notifier::Listener};
use std::future;
use tokio::sync::broadcast::{self, error::RecvError};

#[derive(Debug)]
pub(super) struct MemoryListener {
    pub(super) signals: broadcast::Receiver<QueueName>,
    pub(super) queues: Vec<QueueName>,
}

#[async_trait]
impl Listener for MemoryListener {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            match self.signals.recv().await {
                Ok(queue) if self.queues.contains(&queue) => return Ok(queue),
                Ok(_) => {}
                // Some notifications were missed: one of them may have been ours, and a needless wake-up does no harm.
                Err(RecvError::Lagged(_)) => {
                    if let Some(queue) = self.queues.first() {
                        return Ok(queue.clone());
                    }
                }
                // All handles of the store are dropped, so no notification can come.
                Err(RecvError::Closed) => return future::pending().await,
            }
        }
    }
}
