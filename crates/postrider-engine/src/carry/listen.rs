//! Listening for signals, with a fall-back to polling and back.

use super::{alarm::Alarm, trouble::Backoff};
use postrider_core::{Error, QueueName, wake::Wake};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// A listener that lasted so long was a good one: the next failure begins anew.
const HEALTHY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) wake: Arc<dyn Wake>,
    pub(super) fetchers: HashMap<QueueName, Arc<Alarm>>,
    /// Whether signals are heard now.
    pub(super) hears: Arc<AtomicBool>,
}

impl Listener {
    pub(super) async fn run(self) {
        let queues: Vec<QueueName> = self.fetchers.keys().cloned().collect();
        let fresh = || Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut backoff = fresh();
        let mut is_told = false;
        loop {
            let begun_at = Instant::now();
            let error = self.listen(&queues, &mut is_told).await;
            self.hears.store(false, SeqCst);
            if begun_at.elapsed() >= HEALTHY {
                backoff = fresh();
            }
            if !is_told {
                is_told = true;
                tracing::warn!(name: "postrider.listen_failed", %error, "cannot listen for signals; polling");
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Listens until that fails.
    async fn listen(&self, queues: &[QueueName], is_told: &mut bool) -> Error {
        let mut ear = match self.wake.listen(queues).await {
            Ok(ear) => ear,
            Err(error) => return error,
        };
        self.hears.store(true, SeqCst);
        if std::mem::take(is_told) {
            tracing::info!(name: "postrider.listens", "listening for signals again");
        }
        // What was signalled while nobody listened is found by looking.
        self.fetchers.values().for_each(|fetcher| fetcher.ring());
        loop {
            match ear.wait().await {
                Ok(queue) => self.fetchers.get(&queue).into_iter().for_each(|fetcher| fetcher.ring()),
                Err(error) => return error,
            }
        }
    }
}
