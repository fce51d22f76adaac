//! A running consumer, and its graceful shutdown.

use super::{
    Consumer, ConsumerReport, StartError,
    processor::{ConsumerState, Processor},
};
use crate::delivery_loop::{Health, Running, signal::Signals};
use postrider_core::ConsumerStore;
use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

/// A running consumer. Dropping it ends it at once: messages in flight are redelivered, and none is lost.
pub struct RunningConsumer<R: ConsumerStore> {
    processor: Arc<Processor<R>>,
    state: Arc<ConsumerState>,
    before: ConsumerReport,
    receiver: JoinSet<()>,
    processors: JoinSet<()>,
    /// Tasks that extend ack deadlines and remove expired records.
    housekeeping: JoinSet<()>,
    /// Replays.
    engine: Running,
}

/// The result of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoppedConsumer {
    /// Whether all messages in flight ended within the drain timeout.
    pub clean: bool,
    /// The counts since the start.
    pub consumed: ConsumerReport,
}

impl<R: ConsumerStore> Consumer<R> {
    /// Starts the consumer. It runs until it is stopped. Failures of the broker and of the database are retried.
    ///
    /// # Errors
    /// When deduplication records would expire before the last possible duplicate, or the source cannot report its
    /// redelivery window.
    pub async fn start(&self) -> Result<RunningConsumer<R>, StartError> {
        let keeps = self.processor.retention().await?;
        for warning in &self.processor.warnings {
            tracing::warn!(name: "postrider.warning", "{warning}");
        }
        let (processor, before) = (&self.processor, self.consumed());
        let state = Arc::new(ConsumerState::new(processor.prefetch));
        let (mut receiver, mut processors, mut housekeeping) =
            (JoinSet::new(), JoinSet::new(), JoinSet::new());
        receiver.spawn(Arc::clone(processor).receive(Arc::clone(&state)));
        for _ in 0..processor.concurrency {
            processors.spawn(Arc::clone(processor).run(Arc::clone(&state)));
        }
        housekeeping.spawn(Arc::clone(processor).extend(Arc::clone(&state)));
        housekeeping.spawn(Arc::clone(processor).prune_deduplication_records(keeps));
        let engine = processor.engine.start();
        Ok(RunningConsumer {
            processor: Arc::clone(processor),
            state,
            before,
            receiver,
            processors,
            housekeeping,
            engine,
        })
    }

    /// Starts the consumer, and stops it when no message has arrived for `idle_for` and none is in flight. For tests and
    /// scheduled jobs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn run_until_idle(&self, idle_for: Duration) -> Result<ConsumerReport, StartError> {
        let running = self.start().await?;
        loop {
            let last_received_at =
                *running.state.last_received_at.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = running.state.free_slots.available_permits() == self.processor.prefetch;
            match (last_received_at + idle_for).saturating_duration_since(Instant::now()) {
                Duration::ZERO if is_idle => break,
                left => sleep(left.max(Duration::from_millis(1))).await,
            }
        }
        Ok(running.stop(Duration::from_secs(30)).await.consumed)
    }

    /// Starts the consumer, and stops it gracefully on the first SIGINT or SIGTERM, within `deadline`. The second signal
    /// ends it at once: messages in flight are redelivered.
    ///
    /// # Errors
    /// As [`start`](Self::start), or when no signal handler can be installed.
    pub async fn run_until_signal(
        &self,
        deadline: Duration,
    ) -> Result<StoppedConsumer, Box<dyn std::error::Error + Send + Sync>> {
        let mut signals = Signals::new()?;
        let running = self.start().await?;
        signals.next().await;
        tracing::info!(name: "postrider.stopping", ?deadline, "signal received: stopping gracefully within {deadline:?}");
        tokio::select! {
            drained = running.stop(deadline) => Ok(drained),
            () = signals.next() => Ok(StoppedConsumer { clean: false, consumed: self.consumed() }),
        }
    }
}

impl<R: ConsumerStore> RunningConsumer<R> {
    /// The counts since the start.
    pub fn consumed(&self) -> ConsumerReport {
        self.processor.metrics.report() - self.before
    }

    /// Checks the database and every task, waiting at most `within` for the database. An unavailable broker does not count
    /// as unhealthy: receiving is retried.
    pub async fn ping(&mut self, within: Duration) -> Health {
        let mut health = self.engine.ping(within).await;
        let is_stopping = self.state.stop.is_cancelled();
        // One removes expired records, and one extends ack deadlines where the source has them.
        let housekeeping = 1 + usize::from(self.processor.capabilities.ack_deadline.is_some());
        for (name, tasks, started) in [
            ("receiver", &mut self.receiver, 1),
            ("processor", &mut self.processors, self.processor.concurrency),
            ("housekeeping", &mut self.housekeeping, housekeeping),
        ] {
            while tasks.try_join_next().is_some() {}
            if tasks.len() < started && !is_stopping {
                health.dead_loops.push(name);
            }
        }
        health
    }

    /// Stops gracefully: receives nothing more, nacks messages that were not started, and lets running batches finish
    /// within `deadline`. Then the source is closed, and messages that are still in flight are redelivered.
    pub async fn stop(mut self, deadline: Duration) -> StoppedConsumer {
        let end_at = Instant::now() + deadline;
        self.state.stop.cancel();
        self.receiver.shutdown().await;
        let left = self.state.dispatcher.close();
        self.state.delayed_nacks.close();
        let replays = self.engine.stop(deadline);
        let processors = &mut self.processors;
        let (processor, state) = (&self.processor, &self.state);
        let running = async {
            processor.nack_unstarted(left, state).await;
            while processors.join_next().await.is_some() {}
            state.delayed_nacks.wait().await;
        };
        let (ran, replayed) = tokio::join!(timeout_at(end_at, running), replays);
        if ran.is_err() {
            tracing::warn!(
                name: "postrider.drain_timeout", consumer = %processor.name, ?deadline,
                "drain timeout {deadline:?} of consumer {} reached: running batches are cancelled, their messages are redelivered", processor.name
            );
            processors.shutdown().await;
        }
        self.housekeeping.shutdown().await;
        timeout_at(end_at.max(Instant::now() + Duration::from_secs(1)), processor.source.close()).await.ok();
        let consumed = processor.metrics.report() - self.before;
        StoppedConsumer { clean: ran.is_ok() && replayed.clean, consumed }
    }

    /// Ends at once, as a killed process does.
    pub async fn abort(mut self) -> StoppedConsumer {
        for tasks in [&mut self.receiver, &mut self.processors, &mut self.housekeeping] {
            tasks.shutdown().await;
        }
        self.engine.abort().await;
        StoppedConsumer { clean: false, consumed: self.processor.metrics.report() - self.before }
    }
}

impl<R: ConsumerStore> fmt::Debug for RunningConsumer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningConsumer")
            .field("consumed", &self.processor.metrics.report())
            .finish_non_exhaustive()
    }
}
