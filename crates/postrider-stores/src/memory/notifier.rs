//! Notifications for idle workers, within the process.

use super::{MemoryStore, clock::after, listener::MemoryListener};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    notifier::{IdleWorker, Listener, Notifier},
};
use std::time::Duration;
use tokio::sync::broadcast;

/// How many notifications a listener buffers. More of them carry no information.
const BUFFERED: usize = 1024;

/// The sender of notifications.
#[derive(Debug)]
pub(super) struct Signals(broadcast::Sender<QueueName>);

impl Default for Signals {
    fn default() -> Self {
        Self(broadcast::Sender::new(BUFFERED))
    }
}

impl Signals {
    pub(super) fn send(&self, queue: QueueName) {
        // An error means that there is no listener.
        let _ = self.0.send(queue);
    }
}

#[async_trait]
impl Notifier for MemoryStore {
    async fn register_idle(&self, idle: &IdleWorker, lasting: Duration) -> Result<(), Error> {
        let (mut tables, now) = self.enter();
        let until = after(now, lasting);
        tables.idle_workers.retain(|_, until| *until > now);
        tables.idle_workers.extend(idle.queues.iter().map(|queue| ((queue.clone(), idle.worker), until)));
        Ok(())
    }

    async fn deregister_idle(&self, idle: &IdleWorker) -> Result<(), Error> {
        let mut tables = self.lock();
        for queue in &idle.queues {
            tables.idle_workers.remove(&(queue.clone(), idle.worker));
        }
        Ok(())
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Listener>, Error> {
        let signals = self.shared.signals.0.subscribe();
        Ok(Box::new(MemoryListener { signals, queues: queues.to_vec() }))
    }
}
