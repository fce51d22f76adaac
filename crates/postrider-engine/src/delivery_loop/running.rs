//! A running delivery loop, and its graceful shutdown.

use super::{
    DeliveryEngine, Report, Subscription,
    dispatcher::Dispatcher,
    executor::{interrupted, unstarted},
    leases::LeaseRegistry,
    settle_buffer::SettleBuffer,
    signal::Signals,
    wakeup::Wakeup,
};
use postrider_core::{Error, QueueName, Store};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// A running worker, relay or saga runner. Dropping it ends it at once: leases expire, and no message is lost.
pub struct Running {
    parts: Parts,
}

pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    /// The counts before the start: metrics belong to the subscriptions, which outlive the run.
    pub(super) before: Vec<Report>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) settle_buffer: Arc<SettleBuffer>,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) claimers: JoinSet<()>,
    pub(super) executors: JoinSet<()>,
    /// The listener and the lease renewal.
    pub(super) housekeeping: JoinSet<()>,
    pub(super) settler: JoinSet<()>,
    pub(super) started: TaskCounts,
    /// No more claims.
    pub(super) stop: CancellationToken,
    /// No more renewals.
    pub(super) done: CancellationToken,
}

/// The number of tasks that were started.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskCounts {
    pub(super) claimers: usize,
    pub(super) executors: usize,
    pub(super) housekeeping: usize,
}

/// The result of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Whether all messages in flight ended, and were settled, within the drain timeout.
    pub clean: bool,
    /// The counts since the start.
    pub report: Report,
}

/// Liveness and readiness of a running loop.
#[derive(Debug)]
pub struct Health {
    /// Tasks that ended unexpectedly: restart the process.
    pub dead_loops: Vec<&'static str>,
    /// Whether the store answers.
    pub store: Result<(), Error>,
    /// Whether a stop was requested.
    pub is_stopping: bool,
}

impl Health {
    /// Liveness: when `false`, restart the process. An unavailable store is no reason to restart.
    pub fn is_alive(&self) -> bool {
        self.dead_loops.is_empty()
    }

    /// Readiness: whether messages are being delivered.
    pub fn is_ready(&self) -> bool {
        self.is_alive() && self.store.is_ok() && !self.is_stopping
    }
}

impl Running {
    pub(super) fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// The counts since the start.
    pub fn report(&self) -> Report {
        total_since(&self.parts.subscriptions, &self.parts.before)
    }

    /// The counts since the start, by queue.
    pub fn reports(&self) -> BTreeMap<QueueName, Report> {
        let subscriptions = self.parts.subscriptions.iter().zip(&self.parts.before);
        let report = |(subscription, before): (&Arc<Subscription>, &Report)| {
            (subscription.queue.clone(), subscription.report() - *before)
        };
        subscriptions.map(report).collect()
    }

    /// Checks the store and every task, waiting at most `within` for the store.
    pub async fn ping(&mut self, within: Duration) -> Health {
        let parts = &mut self.parts;
        let is_stopping = parts.stop.is_cancelled();
        let mut dead_loops = Vec::new();
        let mut note = |is_dead: bool, name| dead_loops.extend((is_dead && !is_stopping).then_some(name));
        for (name, tasks, started) in [
            ("claimer", &mut parts.claimers, parts.started.claimers),
            ("executor", &mut parts.executors, parts.started.executors),
            ("housekeeping", &mut parts.housekeeping, parts.started.housekeeping),
            ("settler", &mut parts.settler, 1),
        ] {
            while tasks.try_join_next().is_some() {}
            note(tasks.len() < started, name);
        }
        let store = match timeout(within, parts.store.ping()).await {
            Ok(result) => result,
            Err(late) => Err(Error::Unavailable(Box::new(late))),
        };
        Health { dead_loops, store, is_stopping }
    }

    /// Stops gracefully: claims nothing more, lets running deliveries finish and settles them, releases messages that were
    /// not started. Takes at most `deadline`; the last fifth of it, up to two seconds, is reserved for the last
    /// settlements.
    pub async fn stop(self, deadline: Duration) -> Stopped {
        let Parts {
            subscriptions,
            before,
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
        } = self.parts;
        let end_at = Instant::now() + deadline;
        let run_until = end_at - (deadline / 5).min(Duration::from_secs(2));
        stop.cancel();
        let mut clean = join_all(&mut claimers, run_until).await;
        settle_buffer.push(
            dispatcher.close().iter().flat_map(super::delivery::WorkUnit::deliveries).map(unstarted),
            true,
        );
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
        Stopped { clean, report: total_since(&subscriptions, &before) }
    }

    /// Ends at once, as a killed process does: leases expire, and no message is lost.
    pub async fn abort(mut self) -> Stopped {
        self.parts.stop.cancel();
        let parts = &mut self.parts;
        for tasks in [&mut parts.claimers, &mut parts.executors, &mut parts.housekeeping, &mut parts.settler]
        {
            tasks.shutdown().await;
        }
        Stopped { clean: false, report: self.report() }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("report", &self.report()).finish_non_exhaustive()
    }
}

fn total_since(subscriptions: &[Arc<Subscription>], before: &[Report]) -> Report {
    let since =
        subscriptions.iter().zip(before).map(|(subscription, before)| subscription.report() - *before);
    since.fold(Report::default(), |sum, one| sum + one)
}

async fn join_all(tasks: &mut JoinSet<()>, until: Instant) -> bool {
    timeout_at(until, async { while tasks.join_next().await.is_some() {} }).await.is_ok()
}

impl DeliveryEngine {
    /// Delivers all messages that are due now or come due meanwhile, and stops when none is due and none is in flight.
    /// Scheduled retries stay scheduled.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_until_idle(&self) -> Result<Report, Error> {
        let (running, idle_detector) = self.start_until_idle();
        idle_detector.wait_until_idle().await;
        let stopped = running.stop(Duration::from_secs(30)).await;
        match idle_detector.error() {
            Some(error) => Err(error),
            None => Ok(stopped.report),
        }
    }

    /// Starts the loop, and stops it gracefully on the first SIGINT or SIGTERM, within `deadline`. The second signal ends
    /// it at once: leases expire, and no message is lost.
    ///
    /// # Errors
    /// When no signal handler can be installed.
    pub async fn run_until_signal(&self, deadline: Duration) -> std::io::Result<Stopped> {
        let mut signals = Signals::new()?;
        let running = self.start();
        signals.next().await;
        tracing::info!(name: "postrider.stopping", ?deadline, "signal received: stopping gracefully within {deadline:?}");
        tokio::select! {
            stopped = running.stop(deadline) => Ok(stopped),
            () = signals.next() => Ok(Stopped { clean: false, report: Report::default() }),
        }
    }
}

/// Detects that nothing is left to do.
///
/// Every change (a message was claimed, a batch was settled) increments a version. Nothing is left when every claimer has found
/// nothing in a claim that began at the present version, and nothing is in flight. A message that leaves the in-flight set
/// increments the version before it does.
#[derive(Debug)]
pub(super) struct IdleDetector {
    wakeups: Vec<Arc<Wakeup>>,
    version: AtomicU64,
    /// By claimer: the version at which its last empty claim began.
    empty_at: Mutex<Vec<Option<u64>>>,
    error: Mutex<Option<Error>>,
    done: CancellationToken,
}

impl IdleDetector {
    pub(super) fn new(wakeups: Vec<Arc<Wakeup>>) -> Self {
        let empty_at = Mutex::new(vec![None; wakeups.len()]);
        Self {
            wakeups,
            version: AtomicU64::new(0),
            empty_at,
            error: Mutex::default(),
            done: CancellationToken::new(),
        }
    }

    pub(super) fn wakeups(&self) -> &[Arc<Wakeup>] {
        &self.wakeups
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// The store has changed: every claimer claims again.
    pub(super) fn note_change(&self) {
        self.version.fetch_add(1, SeqCst);
        self.wakeups.iter().for_each(|wakeup| wakeup.notify());
    }

    pub(super) fn note_empty(&self, queue_index: usize, version: u64, in_flight: usize) {
        let mut empty_at = self.empty_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(empty) = empty_at.get_mut(queue_index) {
            *empty = Some(version);
        }
        let now = self.version();
        if in_flight == 0 && empty_at.iter().all(|empty| *empty == Some(now)) {
            self.done.cancel();
        }
    }

    pub(super) fn fail(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.done.cancel();
    }

    async fn wait_until_idle(&self) {
        if self.wakeups.is_empty() {
            return;
        }
        self.done.cancelled().await;
    }

    fn error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
