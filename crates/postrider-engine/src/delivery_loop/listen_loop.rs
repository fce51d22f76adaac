//! The listener for store notifications, with a fallback to polling.

use super::{backoff::Backoff, wakeup::Wakeup};
use postrider_core::{Error, QueueName, notifier::Notifier};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// A connection that lasted this long was healthy: the backoff starts anew after it.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct ListenLoop {
    pub(super) notifier: Arc<dyn Notifier>,
    pub(super) wakeups: HashMap<QueueName, Arc<Wakeup>>,
    /// Whether notifications arrive now.
    pub(super) is_listening: Arc<AtomicBool>,
}

impl ListenLoop {
    pub(super) async fn run(self) {
        let queues: Vec<QueueName> = self.wakeups.keys().cloned().collect();
        let new_backoff = || Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut backoff = new_backoff();
        let mut is_reported = false;
        loop {
            let started_at = Instant::now();
            let error = self.listen(&queues, &mut is_reported).await;
            self.is_listening.store(false, SeqCst);
            if started_at.elapsed() >= HEALTHY_AFTER {
                backoff = new_backoff();
            }
            if !is_reported {
                is_reported = true;
                tracing::warn!(name: "postrider.listen_failed", %error, "store notifications unavailable: {error}; falling back to polling, reconnecting");
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Listens until the connection fails.
    async fn listen(&self, queues: &[QueueName], is_reported: &mut bool) -> Error {
        let mut listener = match self.notifier.listen(queues).await {
            Ok(listener) => listener,
            Err(error) => return error,
        };
        self.is_listening.store(true, SeqCst);
        if std::mem::take(is_reported) {
            tracing::info!(name: "postrider.listen_recovered", "store notifications available again; polling no longer needed");
        }
        // Messages that were staged while nobody listened are found by polling.
        self.wakeups.values().for_each(|wakeup| wakeup.notify());
        loop {
            match listener.wait().await {
                Ok(queue) => self.wakeups.get(&queue).into_iter().for_each(|wakeup| wakeup.notify()),
                Err(error) => return error,
            }
        }
    }
}
