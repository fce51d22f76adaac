//! The seam that tells a sleeping worker to look again. A hint: polling is the truth.

use crate::{Error, QueueName};
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};
use uuid::Uuid;

/// Wakes workers that announced that they sleep, so that producers signal only while somebody listens.
///
/// A worker announces itself with [`lie_down`](Self::lie_down), **looks once more**, and then [`wait`](Ear::wait)s: a
/// producer that committed in between did not see the announcement. A lost signal costs one poll interval, never a
/// message.
#[async_trait]
pub trait Wake: Debug + Send + Sync + 'static {
    /// Announces that a worker sleeps. The announcement lapses by itself, so that a crashed worker costs nothing for
    /// long; repeat it to keep it.
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error>;

    /// Withdraws the announcement.
    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error>;

    /// Opens an ear for the signals of some queues. Signals given from now on are heard.
    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error>;
}

/// An open ear: hears the signals given since it was opened.
#[async_trait]
pub trait Ear: Debug + Send {
    /// Waits for the next signal and says for which queue it is. Safe to cancel.
    async fn wait(&mut self) -> Result<QueueName, Error>;
}

/// A worker that sleeps.
#[derive(Debug, Clone)]
pub struct Sleeper {
    /// The worker.
    pub worker: Uuid,
    /// The queues it wants to be woken for.
    pub queues: Vec<QueueName>,
}
