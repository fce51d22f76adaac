//! Notifications that wake idle workers. They are hints: polling guarantees delivery.

use crate::{Error, QueueName};
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};
use uuid::Uuid;

/// Wakes idle workers, so that producers notify only while a worker is idle.
///
/// A worker registers with [`register_idle`](Self::register_idle), **claims once more**, and then [`wait`](Listener::wait)s: a producer
/// that committed in between did not see the registration. A lost notification costs one poll interval, never a message.
#[async_trait]
pub trait Notifier: Debug + Send + Sync + 'static {
    /// Registers an idle worker for `lasting`. The registration expires, so that a crashed worker costs little; repeat it to keep it.
    async fn register_idle(&self, idle: &IdleWorker, lasting: Duration) -> Result<(), Error>;

    /// Removes the registration.
    async fn deregister_idle(&self, idle: &IdleWorker) -> Result<(), Error>;

    /// Listens (LISTEN in PostgreSQL) for notifications of some queues that are sent from now on.
    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Listener>, Error>;
}

/// Receives the notifications sent since it was opened.
#[async_trait]
pub trait Listener: Debug + Send {
    /// Waits for the next notification and returns its queue. Cancel safe.
    async fn wait(&mut self) -> Result<QueueName, Error>;
}

/// An idle worker and its queues.
#[derive(Debug, Clone)]
pub struct IdleWorker {
    /// The worker.
    pub worker: Uuid,
    /// The queues whose notifications wake it.
    pub queues: Vec<QueueName>,
}
