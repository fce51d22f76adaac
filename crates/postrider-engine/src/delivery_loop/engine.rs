//! Assembling and starting the delivery loop.

use super::{
    Subscription,
    claimer::Claimer,
    dispatcher::Dispatcher,
    executor::Executor,
    idle::IdleState,
    idle_detector::{IdleDetector, RunScope},
    leases::{self, LeaseRegistry},
    listen_loop::ListenLoop,
    settle_buffer::{FlushPolicy, SettleBuffer, Settler},
    store_outage::StoreOutage,
    tasks::{Counts, DeliveryTasks, TaskCounts},
    wakeup::Wakeup,
};
use crate::{
    pruner::{PRUNE_INTERVAL, Pruner},
    runner::{self, Report, Running, Stopped},
};
use postrider_core::{Backend, Error, Invalid, PruneRequest, QueueName, Store, notifier::Notifier};
use std::{
    collections::HashMap,
    future::pending,
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Drain timeout of a run that ended by itself.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(30);

/// Claims, delivers and settles the messages of its subscribed queues.
#[derive(Debug, Clone)]
pub struct DeliveryEngine {
    pub(super) store: Arc<dyn Store>,
    notifier: Option<Arc<dyn Notifier>>,
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    concurrency: Option<usize>,
    flush_policy: FlushPolicy,
    prune_interval: Option<Duration>,
}

impl DeliveryEngine {
    /// Delivers the messages of a backend. Notifications wake idle claimers.
    pub fn new(backend: &Arc<dyn Backend>) -> Self {
        Self {
            store: Arc::clone(backend) as _,
            notifier: Some(Arc::clone(backend) as _),
            subscriptions: Vec::new(),
            concurrency: None,
            flush_policy: FlushPolicy::default(),
            prune_interval: Some(PRUNE_INTERVAL),
        }
    }

    /// Also delivers the messages of this queue.
    ///
    /// # Errors
    /// When a setting is invalid, or the queue is subscribed twice.
    pub fn subscribe(mut self, subscription: Subscription) -> Result<Self, Invalid> {
        subscription.check()?;
        if self.subscriptions.iter().any(|other| other.queue == subscription.queue) {
            let rule = format!("{} is given twice: combine both into one", subscription.queue);
            return Err(Invalid::rule("queue", rule));
        }
        self.subscriptions.push(Arc::new(subscription));
        Ok(self)
    }

    /// Polls only: idle claimers are not notified.
    #[must_use]
    pub fn without_notifications(mut self) -> Self {
        self.notifier = None;
        self
    }

    /// Runs at most `concurrency` deliveries at once, over all queues.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Settles up to `size` deliveries in one batch; a finished delivery waits at most `age` for others.
    #[must_use]
    pub fn with_settle_batch(mut self, size: usize, age: Duration) -> Self {
        self.flush_policy = FlushPolicy { size: size.max(1), age };
        self
    }

    /// Prunes delivered messages past their retention about this often; `None`: never. Default: every ten minutes. Runs that end by
    /// themselves do not prune.
    #[must_use]
    pub fn with_prune_interval(mut self, interval: Option<Duration>) -> Self {
        self.prune_interval = interval;
        self
    }

    /// Starts the loop. It runs until it is stopped. Call it within a tokio runtime.
    pub fn start(&self) -> Running {
        self.spawn(&self.wakeups(), None)
    }

    /// Starts the loop, and stops it gracefully on the first SIGINT or SIGTERM, within `drain_timeout`. The second signal
    /// ends it at once: leases expire, and no message is lost.
    ///
    /// # Errors
    /// When no signal handler can be installed.
    pub async fn run_until_signal(&self, drain_timeout: Duration) -> io::Result<Stopped> {
        runner::run_until_signal(|| self.start(), pending(), drain_timeout).await
    }

    /// Delivers all messages that are due now or come due meanwhile, and stops when none is due and none is in flight.
    /// Scheduled retries stay scheduled.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_until_idle(&self) -> Result<Report, Error> {
        self.run_to_end(RunScope::UntilIdle).await
    }

    /// Claims once from each queue, and stops when the claimed messages are settled. Circuits and rate limits apply.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_batch(&self) -> Result<Report, Error> {
        self.run_to_end(RunScope::OneBatch).await
    }

    async fn run_to_end(&self, scope: RunScope) -> Result<Report, Error> {
        let idle_detector = Arc::new(IdleDetector::new(self.wakeups(), scope));
        let running = self.spawn(idle_detector.wakeups(), Some(&idle_detector));
        idle_detector.wait_until_idle().await;
        let stopped = running.stop(LAST_SETTLEMENTS).await;
        match idle_detector.error() {
            Some(error) => Err(error),
            None => Ok(stopped.report),
        }
    }

    fn wakeups(&self) -> Vec<Arc<Wakeup>> {
        self.subscriptions.iter().map(|_| Arc::default()).collect()
    }

    fn spawn(&self, wakeups: &[Arc<Wakeup>], idle_detector: Option<&Arc<IdleDetector>>) -> Running {
        // Before any task runs that increments a counter.
        let counts = Counts::new(&self.subscriptions);
        let queues = self.subscriptions.iter().zip(wakeups);
        let dispatcher = Arc::new(Dispatcher::new(queues.clone().map(|(subscription, wakeup)| {
            (subscription.concurrency, subscription.weight, Arc::clone(wakeup))
        })));
        let wakeups_by_queue: HashMap<QueueName, Arc<Wakeup>> = queues
            .clone()
            .map(|(subscription, wakeup)| (subscription.queue.clone(), Arc::clone(wakeup)))
            .collect();
        let settle_buffer = Arc::new(SettleBuffer::new(self.flush_policy));
        let leases = Arc::new(LeaseRegistry::default());
        let store_outage = Arc::new(StoreOutage::default());
        let is_listening = Arc::new(AtomicBool::new(false));
        let (stop, done) = (CancellationToken::new(), CancellationToken::new());
        let notifier = self.notifier.clone().filter(|_| idle_detector.is_none());

        let mut claimers = JoinSet::new();
        for (queue_index, (subscription, wakeup)) in queues.enumerate() {
            let claimer = Claimer {
                store: Arc::clone(&self.store),
                subscription: Arc::clone(subscription),
                queue_index,
                dispatcher: Arc::clone(&dispatcher),
                settle_buffer: Arc::clone(&settle_buffer),
                leases: Arc::clone(&leases),
                store_outage: Arc::clone(&store_outage),
                wakeup: Arc::clone(wakeup),
                is_listening: Arc::clone(&is_listening),
                idle: IdleState::new(
                    Arc::clone(subscription),
                    notifier.clone().filter(|_| subscription.has_notifications),
                ),
                idle_detector: idle_detector.cloned(),
                stop: stop.clone(),
            };
            claimers.spawn(claimer.run());
        }

        let wanted = self.subscriptions.iter().map(|subscription| subscription.concurrency).sum();
        let mut executors = JoinSet::new();
        for _ in 0..self.concurrency.map_or(wanted, |max| max.min(wanted)) {
            let executor = Executor {
                store: Arc::clone(&self.store),
                store_outage: Arc::clone(&store_outage),
                dispatcher: Arc::clone(&dispatcher),
                settle_buffer: Arc::clone(&settle_buffer),
                leases: Arc::clone(&leases),
                idle_detector: idle_detector.cloned(),
            };
            executors.spawn(executor.run());
        }

        let mut housekeeping = JoinSet::new();
        if let Some(notifier) = notifier {
            housekeeping
                .spawn(ListenLoop { notifier, wakeups: wakeups_by_queue.clone(), is_listening }.run());
        }
        if let Some(interval) = self.prune_interval.filter(|_| idle_detector.is_none()) {
            housekeeping.spawn(Pruner::new(Arc::clone(&self.store), PruneRequest::new(), interval).run());
        }
        housekeeping.spawn(leases::renew_until_done(
            Arc::clone(&self.store),
            Arc::clone(&leases),
            self.subscriptions.clone(),
            Arc::clone(&store_outage),
            done.clone(),
        ));

        let mut settler = JoinSet::new();
        let settle_task = Settler {
            store: Arc::clone(&self.store),
            settle_buffer: Arc::clone(&settle_buffer),
            leases: Arc::clone(&leases),
            store_outage,
            wakeups: wakeups_by_queue,
            idle_detector: idle_detector.cloned(),
        };
        settler.spawn(settle_task.run());
        let started = TaskCounts {
            claimers: claimers.len(),
            executors: executors.len(),
            housekeeping: housekeeping.len(),
        };
        Running::new(DeliveryTasks {
            store: Arc::clone(&self.store),
            counts,
            dispatcher,
            settle_buffer,
            leases,
            claimers,
            executors,
            housekeeping,
            settler,
            started,
            stop,
            done,
        })
    }
}
