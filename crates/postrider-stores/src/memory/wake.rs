//! Signals within the process.

use super::{MemoryStore, clock::after};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    wake::{Ear, Sleeper, Wake},
};
use std::{future, time::Duration};
use tokio::sync::broadcast::{self, error::RecvError};

/// How many signals an ear keeps for somebody who does not listen just now. More of them say nothing new.
const KEPT: usize = 1024;

/// Where signals are given.
#[derive(Debug)]
pub(super) struct Signals(broadcast::Sender<QueueName>);

impl Default for Signals {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

impl Signals {
    pub(super) fn send(&self, queue: QueueName) {
        // An error says that nobody listens.
        let _ = self.0.send(queue);
    }
}

#[async_trait]
impl Wake for MemoryStore {
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error> {
        let (mut rooms, now) = self.enter();
        let until = after(now, lasting);
        rooms.sleepers.retain(|_, until| *until > now);
        rooms.sleepers.extend(sleeper.queues.iter().map(|queue| ((queue.clone(), sleeper.worker), until)));
        Ok(())
    }

    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error> {
        let mut rooms = self.lock();
        for queue in &sleeper.queues {
            rooms.sleepers.remove(&(queue.clone(), sleeper.worker));
        }
        Ok(())
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error> {
        let signals = self.shared.signals.0.subscribe();
        Ok(Box::new(MemoryEar { signals, queues: queues.to_vec() }))
    }
}

#[derive(Debug)]
struct MemoryEar {
    signals: broadcast::Receiver<QueueName>,
    queues: Vec<QueueName>,
}

#[async_trait]
impl Ear for MemoryEar {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            match self.signals.recv().await {
                Ok(queue) if self.queues.contains(&queue) => return Ok(queue),
                Ok(_) => {}
                // Some signals were missed: any of them may have been ours, and looking once too often does no harm.
                Err(RecvError::Lagged(_)) => {
                    if let Some(queue) = self.queues.first() {
                        return Ok(queue.clone());
                    }
                }
                // Every handle of the store is gone, so nobody can give a signal.
                Err(RecvError::Closed) => return future::pending().await,
            }
        }
    }
}
