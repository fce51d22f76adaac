//! A store wrapper that counts calls and fails on demand.

use async_trait::async_trait;
use postrider_core::{
    Backend, ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, MessageId, PauseRecord,
    PruneReport, PruneRequest, QueueName, ScheduleName, Store,
    notifier::{IdleWorker, Listener, Notifier},
    timetable::ScheduleReading,
};
use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::Semaphore;

/// Counters and injected faults of a store under a worker.
pub(crate) struct StoreProbe {
    pub(crate) claims: AtomicUsize,
    /// Messages that were claimed.
    pub(crate) claimed: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    pub(crate) settles: AtomicUsize,
    /// The highest number of messages in flight.
    pub(crate) max_in_flight: AtomicUsize,
    in_flight: AtomicUsize,
    pub(crate) announcements: AtomicUsize,
    pub(crate) signals: AtomicUsize,
    pub(crate) listens: AtomicUsize,
    /// The number of next calls that fail, as if the store were unavailable.
    pub(crate) failing_claims: AtomicUsize,
    pub(crate) failing_settles: AtomicUsize,
    pub(crate) failing_renewals: AtomicUsize,
    pub(crate) failing_listens: AtomicUsize,
    pub(crate) failing_prunes: AtomicUsize,
    pub(crate) prunes: AtomicUsize,
    /// The store refuses this number of next settlements of this message, and whole batches with it.
    pub(crate) refused: Mutex<Option<(MessageId, usize)>>,
    pub(crate) is_unavailable: AtomicBool,
    /// Every settlement takes a permit; there are plenty, unless a case removes them.
    pub(crate) settle_gate: Semaphore,
    /// Runs after the worker's next claim and takes over the messages of that claim.
    pub(crate) thief: Mutex<Option<LeaseThief>>,
}

/// Lets every lease expire, and claims everything.
pub(crate) type LeaseThief = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl Default for StoreProbe {
    fn default() -> Self {
        Self {
            claims: AtomicUsize::default(),
            claimed: AtomicUsize::default(),
            renewals: AtomicUsize::default(),
            settles: AtomicUsize::default(),
            max_in_flight: AtomicUsize::default(),
            in_flight: AtomicUsize::default(),
            announcements: AtomicUsize::default(),
            signals: AtomicUsize::default(),
            listens: AtomicUsize::default(),
            failing_claims: AtomicUsize::default(),
            failing_settles: AtomicUsize::default(),
            failing_renewals: AtomicUsize::default(),
            failing_listens: AtomicUsize::default(),
            failing_prunes: AtomicUsize::default(),
            prunes: AtomicUsize::default(),
            refused: Mutex::default(),
            is_unavailable: AtomicBool::default(),
            settle_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            thief: Mutex::default(),
        }
    }
}

impl fmt::Debug for StoreProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreProbe").finish_non_exhaustive()
    }
}

impl StoreProbe {
    fn check(&self, failing: &AtomicUsize) -> Result<(), Error> {
        let fails = failing.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails || self.is_unavailable.load(SeqCst) {
            return Err(Error::Unavailable("outage injected by the test".into()));
        }
        Ok(())
    }

    fn refuse(&self, settlements: &[LeaseSettlement]) -> Result<(), Error> {
        match &mut *self.refused.lock().unwrap() {
            Some((id, left)) if *left > 0 && settlements.iter().any(|each| each.lease.id() == *id) => {
                *left -= 1;
                Err(Error::Other("refused by the test".into()))
            }
            _ => Ok(()),
        }
    }
}

/// A store and notifier with instrumentation.
pub(crate) struct InstrumentedStore {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) probe: Arc<StoreProbe>,
}

impl fmt::Debug for InstrumentedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstrumentedStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InstrumentedStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        self.probe.check(&self.probe.failing_claims)?;
        let claimed = self.store.claim(request).await?;
        self.probe.claims.fetch_add(1, SeqCst);
        self.probe.claimed.fetch_add(claimed.len(), SeqCst);
        let in_flight = self.probe.in_flight.fetch_add(claimed.len(), SeqCst) + claimed.len();
        self.probe.max_in_flight.fetch_max(in_flight, SeqCst);
        let thief = if claimed.is_empty() { None } else { self.probe.thief.lock().unwrap().take() };
        if let Some(thief) = thief {
            thief().await;
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.probe.check(&self.probe.failing_renewals)?;
        let lost = self.store.renew(leases, lease_for).await?;
        self.probe.renewals.fetch_add(1, SeqCst);
        Ok(lost)
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        self.probe.check(&self.probe.failing_settles)?;
        self.probe.refuse(settlements)?;
        self.probe.settle_gate.acquire().await.unwrap().forget();
        let lost = self.store.settle(settlements).await?;
        self.probe.settles.fetch_add(1, SeqCst);
        self.probe.in_flight.fetch_sub(settlements.len(), SeqCst);
        Ok(lost)
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.probe.prunes.fetch_add(1, SeqCst);
        self.probe.check(&self.probe.failing_prunes)?;
        self.store.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.store.paused().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        self.store.read_schedule(schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        self.store.tick(schedule, at, messages).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.probe.check(&AtomicUsize::new(0))?;
        self.store.ping().await
    }
}

postrider_core::forward_backend!(InstrumentedStore, store: inspect, operate, schema);

#[async_trait]
impl Notifier for InstrumentedStore {
    async fn register_idle(&self, idle: &IdleWorker, lasting: Duration) -> Result<(), Error> {
        self.store.register_idle(idle, lasting).await?;
        self.probe.announcements.fetch_add(1, SeqCst);
        Ok(())
    }

    async fn deregister_idle(&self, idle: &IdleWorker) -> Result<(), Error> {
        self.store.deregister_idle(idle).await
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Listener>, Error> {
        self.probe.check(&self.probe.failing_listens)?;
        let listener = self.store.listen(queues).await?;
        self.probe.listens.fetch_add(1, SeqCst);
        Ok(Box::new(InstrumentedListener { listener, probe: Arc::clone(&self.probe) }))
    }
}

#[derive(Debug)]
struct InstrumentedListener {
    listener: Box<dyn Listener>,
    probe: Arc<StoreProbe>,
}

#[async_trait]
impl Listener for InstrumentedListener {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        let queue = self.listener.wait().await?;
        self.probe.signals.fetch_add(1, SeqCst);
        Ok(queue)
    }
}
