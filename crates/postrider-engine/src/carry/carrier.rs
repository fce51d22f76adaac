//! Putting the loop together.

use super::{
    Running, Subscription,
    alarm::Alarm,
    desk::{Desk, Flushing, Settler},
    fetch::Fetcher,
    hall::Hall,
    idle::Idle,
    leases::{self, Leases},
    listen::Listener,
    run::Runner,
    running::{Draining, Parts, Started},
    trouble::Trouble,
};
use postrider_core::{Invalid, QueueName, Store, wake::Wake};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Carries the messages of some queues.
#[derive(Debug, Clone)]
pub struct Carrier {
    pub(super) store: Arc<dyn Store>,
    wake: Option<Arc<dyn Wake>>,
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    concurrency: Option<usize>,
    flushing: Flushing,
}

impl Carrier {
    /// Carries out of `store`, woken by `wake` if it is given; otherwise it polls.
    pub fn new(store: Arc<dyn Store>, wake: Option<Arc<dyn Wake>>) -> Self {
        Self { store, wake, subscriptions: Vec::new(), concurrency: None, flushing: Flushing::default() }
    }

    /// Also carries this queue.
    ///
    /// # Errors
    /// When its settings make no sense, or the queue is carried already.
    pub fn subscribe(mut self, subscription: Subscription) -> Result<Self, Invalid> {
        subscription.check()?;
        if self.subscriptions.iter().any(|other| other.queue == subscription.queue) {
            let rule = format!("{} is there twice; give all of its handlers to one", subscription.queue);
            return Err(Invalid::rule("queue", rule));
        }
        self.subscriptions.push(Arc::new(subscription));
        Ok(self)
    }

    /// Runs at most so many deliveries at once, of all queues together.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Settles up to `size` deliveries together, and lets none wait longer than `age` for others.
    #[must_use]
    pub fn with_flushing(mut self, size: usize, age: Duration) -> Self {
        self.flushing = Flushing { size: size.max(1), age };
        self
    }

    /// Starts, and goes on until it is stopped. Needs to be called within a runtime of tokio.
    pub fn start(&self) -> Running {
        self.begin(&self.alarms(), None)
    }

    /// Starts, and stops by itself when nothing is due and nothing is in hand.
    pub(super) fn start_draining(&self) -> (Running, Arc<Draining>) {
        let draining = Arc::new(Draining::new(self.alarms()));
        (self.begin(draining.alarms(), Some(&draining)), draining)
    }

    fn alarms(&self) -> Vec<Arc<Alarm>> {
        self.subscriptions.iter().map(|_| Arc::default()).collect()
    }

    fn begin(&self, alarms: &[Arc<Alarm>], draining: Option<&Arc<Draining>>) -> Running {
        // Before anything runs that counts.
        let before = self.subscriptions.iter().map(|subscription| subscription.tally()).collect();
        let lines = self.subscriptions.iter().zip(alarms);
        let hall = Arc::new(Hall::new(
            lines.clone().map(|(line, alarm)| (line.concurrency, line.weight, Arc::clone(alarm))),
        ));
        let by_queue: HashMap<QueueName, Arc<Alarm>> =
            lines.clone().map(|(line, alarm)| (line.queue.clone(), Arc::clone(alarm))).collect();
        let desk = Arc::new(Desk::new(self.flushing));
        let leases = Arc::new(Leases::default());
        let trouble = Arc::new(Trouble::default());
        let hears = Arc::new(AtomicBool::new(false));
        let (stop, over) = (CancellationToken::new(), CancellationToken::new());
        let wake = self.wake.clone().filter(|_| draining.is_none());

        let mut fetchers = JoinSet::new();
        for (line, (subscription, alarm)) in lines.enumerate() {
            let fetcher = Fetcher {
                store: Arc::clone(&self.store),
                subscription: Arc::clone(subscription),
                line,
                hall: Arc::clone(&hall),
                desk: Arc::clone(&desk),
                leases: Arc::clone(&leases),
                trouble: Arc::clone(&trouble),
                alarm: Arc::clone(alarm),
                hears: Arc::clone(&hears),
                idle: Idle::new(Arc::clone(subscription), wake.clone()),
                draining: draining.cloned(),
                stop: stop.clone(),
            };
            fetchers.spawn(fetcher.run());
        }

        let wanted = self.subscriptions.iter().map(|subscription| subscription.concurrency).sum();
        let mut runners = JoinSet::new();
        for _ in 0..self.concurrency.map_or(wanted, |most| most.min(wanted)) {
            let runner = Runner {
                hall: Arc::clone(&hall),
                desk: Arc::clone(&desk),
                leases: Arc::clone(&leases),
                draining: draining.cloned(),
            };
            runners.spawn(runner.run());
        }

        let mut keepers = JoinSet::new();
        if let Some(wake) = wake {
            keepers.spawn(Listener { wake, fetchers: by_queue.clone(), hears }.run());
        }
        keepers.spawn(leases::keep(
            Arc::clone(&self.store),
            Arc::clone(&leases),
            self.subscriptions.clone(),
            Arc::clone(&trouble),
            over.clone(),
        ));

        let mut settler = JoinSet::new();
        let settling = Settler {
            store: Arc::clone(&self.store),
            desk: Arc::clone(&desk),
            leases: Arc::clone(&leases),
            trouble,
            alarms: by_queue,
            draining: draining.cloned(),
        };
        settler.spawn(settling.run());
        let started = Started { fetchers: fetchers.len(), runners: runners.len(), keepers: keepers.len() };
        Running::new(Parts {
            store: Arc::clone(&self.store),
            subscriptions: self.subscriptions.clone(),
            before,
            hall,
            desk,
            leases,
            fetchers,
            runners,
            keepers,
            settler,
            started,
            stop,
            over,
        })
    }
}
