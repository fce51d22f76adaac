//! The tasks of a running delivery loop, and their graceful shutdown.

use super::{
    Subscription,
    delivery::WorkUnit,
    dispatcher::Dispatcher,
    executor::{interrupted, unstarted},
    leases::LeaseRegistry,
    settle_buffer::SettleBuffer,
};
use crate::runner::{Health, ReadReport, Report, RunningTasks, Stopped};
use futures_util::future::BoxFuture;
use postrider_core::{Error, QueueName, Store};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// The tasks of a started delivery loop.
pub(super) struct DeliveryTasks {
    pub(super) store: Arc<dyn Store>,
    pub(super) counts: Counts,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) settle_buffer: Arc<SettleBuffer>,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) claimers: JoinSet<()>,
    pub(super) executors: JoinSet<()>,
    /// The listener, the pruner and the lease renewal.
    pub(super) housekeeping: JoinSet<()>,
    pub(super) settler: JoinSet<()>,
    pub(super) started: TaskCounts,
    /// No more claims.
    pub(super) stop: CancellationToken,
    /// No more renewals.
    pub(super) done: CancellationToken,
}

/// The counts of the subscribed queues since the start: metrics belong to the subscriptions, which outlive the run.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    pub(super) before: Vec<Report>,
}

impl Counts {
    pub(super) fn new(subscriptions: &[Arc<Subscription>]) -> Self {
        let before = subscriptions.iter().map(|subscription| subscription.report()).collect();
        Self { subscriptions: subscriptions.to_vec(), before }
    }

    fn by_queue(&self) -> impl Iterator<Item = (&QueueName, Report)> {
        let subscriptions = self.subscriptions.iter().zip(&self.before);
        subscriptions.map(|(subscription, before)| (&subscription.queue, subscription.report() - *before))
    }

    fn total(&self) -> Report {
        self.by_queue().fold(Report::default(), |sum, (_, report)| sum + report)
    }
}

/// The number of tasks that were started.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskCounts {
    pub(super) claimers: usize,
    pub(super) executors: usize,
    pub(super) housekeeping: usize,
}

impl RunningTasks for DeliveryTasks {
    fn report(&self) -> ReadReport {
        let counts = self.counts.clone();
        Box::new(move || counts.total())
    }

    fn reports(&self) -> BTreeMap<QueueName, Report> {
        self.counts.by_queue().map(|(queue, report)| (queue.clone(), report)).collect()
    }

    fn ping(&mut self, within: Duration) -> BoxFuture<'_, Health> {
        Box::pin(self.check(within))
    }

    fn stop(self: Box<Self>, deadline: Duration) -> BoxFuture<'static, Stopped> {
        Box::pin(self.shut_down(deadline))
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            self.stop.cancel();
            for tasks in [&mut self.claimers, &mut self.executors, &mut self.housekeeping, &mut self.settler]
            {
                tasks.shutdown().await;
            }
            Stopped { clean: false, report: self.counts.total() }
        })
    }
}

impl DeliveryTasks {
    async fn check(&mut self, within: Duration) -> Health {
        let is_stopping = self.stop.is_cancelled();
        let mut dead_tasks = Vec::new();
        for (name, tasks, started) in [
            ("claimer", &mut self.claimers, self.started.claimers),
            ("executor", &mut self.executors, self.started.executors),
            ("housekeeping", &mut self.housekeeping, self.started.housekeeping),
            ("settler", &mut self.settler, 1),
        ] {
            while tasks.try_join_next().is_some() {}
            dead_tasks.extend((tasks.len() < started && !is_stopping).then_some(name));
        }
        let store = match timeout(within, self.store.ping()).await {
            Ok(result) => result,
            Err(late) => Err(Error::Unavailable(Box::new(late))),
        };
        Health { dead_tasks, store, start_error: None, is_stopping }
    }

    async fn shut_down(self, deadline: Duration) -> Stopped {
        let Self {
            counts,
            dispatcher,
            settle_buffer,
            leases,
            mut claimers,
            mut executors,
            mut housekeeping,
            mut settler,
            stop,
            done,
            ..
        } = self;
        let end_at = Instant::now() + deadline;
        let run_until = end_at - (deadline / 5).min(Duration::from_secs(2));
        stop.cancel();
        let mut clean = join_all(&mut claimers, run_until).await;
        settle_buffer.push(dispatcher.close().iter().flat_map(WorkUnit::deliveries).map(unstarted), true);
        if !join_all(&mut executors, run_until).await {
            clean = false;
            let open = leases.unsettled();
            let left = open.iter().filter(|delivery| !delivery.is_buffered.load(SeqCst)).count();
            metrics::counter!("postrider_drain_timeout_total").increment(1);
            tracing::warn!(
                name: "postrider.drain_timeout", left, ?deadline,
                "drain timeout {deadline:?} reached: {left} running deliveries are cancelled and released"
            );
            open.iter().for_each(|delivery| delivery.lose());
            // Awaited, so that no delivery runs any more when its message is released.
            executors.shutdown().await;
            let open = leases.unsettled();
            settle_buffer.push(
                open.iter().filter(|delivery| !delivery.is_buffered.load(SeqCst)).filter_map(interrupted),
                true,
            );
        }
        settle_buffer.close();
        clean &= join_all(&mut settler, end_at).await;
        done.cancel();
        settler.shutdown().await;
        housekeeping.shutdown().await;
        Stopped { clean, report: counts.total() }
    }
}

async fn join_all(tasks: &mut JoinSet<()>, until: Instant) -> bool {
    timeout_at(until, async { while tasks.join_next().await.is_some() {} }).await.is_ok()
}
