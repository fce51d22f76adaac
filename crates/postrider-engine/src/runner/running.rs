//! A running worker, relay, consumer or saga runner, and its graceful shutdown.

use super::{Report, signal::Signals};
use crate::consumer::StartError;
use futures_util::future::BoxFuture;
use postrider_core::{Error, QueueName};
use std::{collections::BTreeMap, fmt, future::Future, io, sync::Arc, time::Duration};

/// A running worker, relay, consumer or saga runner. Dropping it ends it at once: leases expire, brokers redeliver, and no
/// message is lost.
pub struct Running {
    tasks: Box<dyn RunningTasks>,
}

/// The tasks of a started runner.
pub(crate) trait RunningTasks: Send + Sync {
    /// A function that returns the counts since the start, also after a stop.
    fn report(&self) -> ReadReport;

    /// The counts since the start, by queue.
    fn reports(&self) -> BTreeMap<QueueName, Report>;

    /// Checks the store and every task.
    fn ping(&mut self, within: Duration) -> BoxFuture<'_, Health>;

    /// Stops gracefully.
    fn stop(self: Box<Self>, deadline: Duration) -> BoxFuture<'static, Stopped>;

    /// Ends all tasks at once.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Stopped>;
}

/// Reads the counts since a start.
pub(crate) type ReadReport = Box<dyn Fn() -> Report + Send + Sync>;

/// The result of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Whether all messages in flight ended, and were settled or acked, within the drain timeout.
    pub clean: bool,
    /// The counts since the start.
    pub report: Report,
}

/// Liveness and readiness of a runner.
#[derive(Debug)]
pub struct Health {
    /// Tasks that ended unexpectedly: restart the process.
    pub dead_tasks: Vec<&'static str>,
    /// Whether the store answers.
    pub store: Result<(), Error>,
    /// Why a consumer does not receive yet. Always `None` for the other runners.
    pub start_error: Option<Arc<StartError>>,
    /// Whether a stop was requested.
    pub is_stopping: bool,
}

impl Health {
    /// Liveness: when `false`, restart the process. An unavailable store is no reason to restart.
    pub fn is_alive(&self) -> bool {
        self.dead_tasks.is_empty()
    }

    /// Readiness: whether messages are being delivered or received.
    pub fn is_ready(&self) -> bool {
        self.is_alive() && self.store.is_ok() && self.start_error.is_none() && !self.is_stopping
    }
}

impl Running {
    pub(crate) fn new(tasks: impl RunningTasks + 'static) -> Self {
        Self { tasks: Box::new(tasks) }
    }

    /// The counts since the start.
    pub fn report(&self) -> Report {
        self.tasks.report()()
    }

    /// The counts since the start, by queue. The queue of a consumer is that of its dead letters.
    pub fn reports(&self) -> BTreeMap<QueueName, Report> {
        self.tasks.reports()
    }

    /// Checks the store and every task, waiting at most `within` for the store. An unavailable broker does not count as
    /// unhealthy: sending and receiving are retried.
    pub async fn ping(&mut self, within: Duration) -> Health {
        self.tasks.ping(within).await
    }

    /// Stops gracefully: claims and receives nothing more, lets running deliveries finish and settles them, releases or
    /// nacks messages that were not started. Takes at most `deadline`; the last fifth of it, up to two seconds, is reserved
    /// for the last settlements.
    pub async fn stop(self, deadline: Duration) -> Stopped {
        self.tasks.stop(deadline).await
    }

    /// Ends at once, as a killed process does: leases expire, brokers redeliver, and no message is lost.
    pub async fn abort(self) -> Stopped {
        self.tasks.abort().await
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("report", &self.report()).finish_non_exhaustive()
    }
}

/// Starts a runner, and stops it gracefully on the first SIGINT or SIGTERM, within `drain_timeout`. The second signal ends it
/// at once. An error of `misconfigured` ends it as well: the runner would never get ready.
pub(crate) async fn run_until_signal(
    start: impl FnOnce() -> Running,
    misconfigured: impl Future<Output = io::Error>,
    drain_timeout: Duration,
) -> io::Result<Stopped> {
    // Installed before the start, so that no signal is missed.
    let mut signals = Signals::new()?;
    let running = start();
    let report = running.tasks.report();
    tokio::select! {
        () = signals.next() => {}
        error = misconfigured => {
            running.abort().await;
            return Err(error);
        }
    }
    tracing::info!(
        name: "postrider.stopping", ?drain_timeout,
        "signal received: stopping gracefully within {drain_timeout:?}"
    );
    tokio::select! {
        stopped = running.stop(drain_timeout) => Ok(stopped),
        () = signals.next() => Ok(Stopped { clean: false, report: report() }),
    }
}
