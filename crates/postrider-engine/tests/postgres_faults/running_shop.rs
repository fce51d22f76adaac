//! A worker and a producer in this process, through an outage.

use crate::{
    orders::{Journal, batch},
    postgres_shop::PostgresShop,
    shop::{Ending, Shop, assert_valid, ending, history, until},
};
use postrider_core::MessageId;
use postrider_engine::Running;
use postrider_testkit::History;
use rand::{SeedableRng, rngs::StdRng};
use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The messages of a producer, as it knows them.
#[derive(Debug, Default)]
pub(crate) struct Produced {
    /// Their transactions were to commit; some of the replies were lost.
    pub(crate) attempted: HashSet<Uuid>,
    /// The database has confirmed the commit.
    pub(crate) committed: HashSet<Uuid>,
}

pub(crate) struct RunningShop {
    running: Running,
    producer: JoinHandle<()>,
    produced: Arc<Mutex<Produced>>,
    folder: TempDir,
}

/// Everything about a run that has ended.
pub(crate) struct FinishedRun {
    pub(crate) history: History,
    pub(crate) produced: Produced,
}

impl RunningShop {
    pub(crate) fn open(shop: &PostgresShop, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal"));
        // Longer than the outages: messages in flight stay leased.
        let worker = shop.worker(journal, Duration::from_secs(10)).build().unwrap();
        let produced = Arc::new(Mutex::new(Produced::default()));
        let producer = tokio::spawn(produce(shop.clone(), seed, Arc::clone(&produced)));
        Self { running: worker.start(), producer, produced, folder }
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    pub(crate) fn produced(&self) -> MutexGuard<'_, Produced> {
        self.produced.lock().unwrap()
    }

    /// Returns when this many more commits were confirmed.
    pub(crate) async fn until_committed(&self, more: usize) {
        let wanted = self.produced().committed.len() + more;
        until("too few commits", TIMEOUT, async || self.produced().committed.len() >= wanted).await;
    }

    /// Stops the producer, waits until every message has ended, as seen through `observer`, and stops the worker.
    pub(crate) async fn finish(self, observer: &PostgresShop) -> FinishedRun {
        let journal = self.journal();
        self.producer.abort();
        self.producer.await.ok();
        until("messages are left", TIMEOUT, async || observer.left().await == 0).await;
        assert!(self.running.stop(TIMEOUT).await.clean);
        let history = history(observer, &journal).await;
        let produced = std::mem::take(&mut *self.produced.lock().unwrap());
        FinishedRun { history, produced }
    }
}

impl FinishedRun {
    /// Asserts that every confirmed commit was kept, that everything staged was delivered, and nothing else. Returns how many messages
    /// were staged.
    pub(crate) fn check(&self, context: &str) -> usize {
        assert_valid(&self.history, context);
        let witness = &self.history.witness;
        let lost = self.produced.committed.iter().filter(|id| !witness.contains_key(id)).count();
        assert_eq!(lost, 0, "{context}: confirmed commits were lost");
        witness.len()
    }
}

/// Continues whatever happens: the witness table shows what was committed.
async fn produce(shop: PostgresShop, seed: u64, produced: Arc<Mutex<Produced>>) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let (messages, doomed) = batch(&mut random, 10);
        let ids: Vec<MessageId> = messages.iter().map(|_| MessageId::at(SystemTime::now())).collect();
        let messages: Vec<_> =
            messages.into_iter().zip(&ids).map(|(message, id)| message.identified(*id)).collect();
        let ids = ids.iter().map(MessageId::as_uuid);
        let ending = ending(&mut random);
        if ending == Ending::Commit {
            produced.lock().unwrap().attempted.extend(ids.clone());
        }
        if shop.produce(&messages, &doomed, ending).await.is_ok() && ending == Ending::Commit {
            produced.lock().unwrap().committed.extend(ids);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
