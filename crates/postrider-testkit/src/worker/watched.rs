//! A store that is watched, and that fails when told to.

use async_trait::async_trait;
use postrider_core::{
    ClaimRequest, Claimed, Error, Lease, Paused, PruneRequest, Pruned, QueueName, Settle, Store,
    wake::{Ear, Sleeper, Wake},
};
use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

/// What is done to a store while a worker uses it, and what was seen of that.
pub(crate) struct Watch {
    pub(crate) claims: AtomicUsize,
    /// Messages that were claimed.
    pub(crate) claimed: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    pub(crate) settles: AtomicUsize,
    /// The most messages that were claimed and not settled at any time.
    pub(crate) most_in_hand: AtomicUsize,
    in_hand: AtomicUsize,
    pub(crate) announcements: AtomicUsize,
    pub(crate) signals: AtomicUsize,
    pub(crate) listens: AtomicUsize,
    /// The next calls that fail, as if the store were away.
    pub(crate) failing_claims: AtomicUsize,
    pub(crate) failing_settles: AtomicUsize,
    pub(crate) failing_renewals: AtomicUsize,
    pub(crate) failing_listens: AtomicUsize,
    pub(crate) is_away: AtomicBool,
    /// A settlement takes one of these; there are plenty, unless a case takes them away.
    pub(crate) settle_gate: Semaphore,
    /// Takes from the store, after the worker's next claim, what that has claimed.
    pub(crate) thief: Mutex<Option<Thief>>,
}

/// Lets every lease lapse, and claims everything.
pub(crate) type Thief = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl Default for Watch {
    fn default() -> Self {
        Self {
            claims: AtomicUsize::default(),
            claimed: AtomicUsize::default(),
            renewals: AtomicUsize::default(),
            settles: AtomicUsize::default(),
            most_in_hand: AtomicUsize::default(),
            in_hand: AtomicUsize::default(),
            announcements: AtomicUsize::default(),
            signals: AtomicUsize::default(),
            listens: AtomicUsize::default(),
            failing_claims: AtomicUsize::default(),
            failing_settles: AtomicUsize::default(),
            failing_renewals: AtomicUsize::default(),
            failing_listens: AtomicUsize::default(),
            is_away: AtomicBool::default(),
            settle_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            thief: Mutex::default(),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    fn check(&self, failing: &AtomicUsize) -> Result<(), Error> {
        let fails = failing.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails || self.is_away.load(SeqCst) {
            return Err(Error::Unavailable("it was told to be away".into()));
        }
        Ok(())
    }
}

/// The seams of a store, watched.
pub(crate) struct Watched {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) wake: Arc<dyn Wake>,
    pub(crate) watch: Arc<Watch>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Watched {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        self.watch.check(&self.watch.failing_claims)?;
        let claimed = self.store.claim(request).await?;
        self.watch.claims.fetch_add(1, SeqCst);
        self.watch.claimed.fetch_add(claimed.len(), SeqCst);
        let in_hand = self.watch.in_hand.fetch_add(claimed.len(), SeqCst) + claimed.len();
        self.watch.most_in_hand.fetch_max(in_hand, SeqCst);
        let thief = if claimed.is_empty() { None } else { self.watch.thief.lock().unwrap().take() };
        if let Some(thief) = thief {
            thief().await;
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.watch.check(&self.watch.failing_renewals)?;
        let lost = self.store.renew(leases, lease_for).await?;
        self.watch.renewals.fetch_add(1, SeqCst);
        Ok(lost)
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        self.watch.check(&self.watch.failing_settles)?;
        self.watch.settle_gate.acquire().await.unwrap().forget();
        let lost = self.store.settle(settlements).await?;
        self.watch.settles.fetch_add(1, SeqCst);
        self.watch.in_hand.fetch_sub(settlements.len(), SeqCst);
        Ok(lost)
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        self.store.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.store.paused().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.watch.check(&AtomicUsize::new(0))?;
        self.store.ping().await
    }
}

#[async_trait]
impl Wake for Watched {
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error> {
        self.wake.lie_down(sleeper, lasting).await?;
        self.watch.announcements.fetch_add(1, SeqCst);
        Ok(())
    }

    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error> {
        self.wake.rise(sleeper).await
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error> {
        self.watch.check(&self.watch.failing_listens)?;
        let ear = self.wake.listen(queues).await?;
        self.watch.listens.fetch_add(1, SeqCst);
        Ok(Box::new(WatchedEar { ear, watch: Arc::clone(&self.watch) }))
    }
}

#[derive(Debug)]
struct WatchedEar {
    ear: Box<dyn Ear>,
    watch: Arc<Watch>,
}

#[async_trait]
impl Ear for WatchedEar {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        let queue = self.ear.wait().await?;
        self.watch.signals.fetch_add(1, SeqCst);
        Ok(queue)
    }
}
