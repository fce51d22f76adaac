//! The tasks of a running consumer, and their graceful shutdown.

use super::{
    Consumer, StartError,
    processor::{ConsumerState, Processor, StartState},
};
use crate::runner::{self, Health, ReadReport, Report, Running, RunningTasks, Stopped};
use futures_util::future::BoxFuture;
use postrider_core::{QueueName, TxBackend};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

/// The tasks of a running consumer.
struct ConsumerTasks<R: TxBackend> {
    processor: Arc<Processor<R>>,
    state: Arc<ConsumerState>,
    before: Report,
    receiver: JoinSet<()>,
    processors: JoinSet<()>,
    /// Tasks that extend ack deadlines and remove expired records.
    housekeeping: JoinSet<()>,
    /// Replays.
    engine: Running,
}

/// Drain timeout of a run that ended by itself.
const LAST_ACKS: Duration = Duration::from_secs(30);

impl<R: TxBackend> Consumer<R> {
    /// Starts the consumer. It runs until it is stopped. Failures of the broker and of the database are retried.
    ///
    /// The consumer first asks its source how long messages can be redelivered. Until the source answers, and while
    /// deduplication records would expire before the last possible duplicate, the consumer receives nothing, logs why, and
    /// [is not ready](crate::Health::is_ready).
    pub fn start(&self) -> Running {
        self.spawn(Arc::new(ConsumerState::new(self.processor.prefetch)))
    }

    /// Receives and handles messages until none has arrived for [`idle_after`](super::ConsumerBuilder::idle_after) and none is
    /// in flight. For tests and scheduled jobs.
    ///
    /// # Errors
    /// When deduplication records would expire before the last possible duplicate, or the source cannot report its
    /// redelivery window.
    pub async fn run_until_idle(&self) -> Result<Report, StartError> {
        let state = self.started_state().await?;
        let running = self.spawn(Arc::clone(&state));
        loop {
            let last_received_at = *state.last_received_at.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = state.free_slots.available_permits() == self.processor.prefetch;
            match (last_received_at + self.processor.idle_after).saturating_duration_since(Instant::now()) {
                Duration::ZERO if is_idle => break,
                left => sleep(left.max(Duration::from_millis(1))).await,
            }
        }
        Ok(running.stop(LAST_ACKS).await.report)
    }

    /// Receives once, waiting at most [`idle_after`](super::ConsumerBuilder::idle_after), and handles and acks what arrived.
    /// The source stays open. For scheduled jobs: repeat it until [`Report::claimed`] is 0.
    ///
    /// # Errors
    /// As [`run_until_idle`](Self::run_until_idle), and when the source fails.
    pub async fn run_batch(&self) -> Result<Report, StartError> {
        let (processor, before) = (&self.processor, self.report());
        let state = self.started_state().await?;
        let Ok(received) = timeout(processor.idle_after, processor.receive_some(&state)).await else {
            return Ok(Report::default());
        };
        let mut extending = JoinSet::new();
        extending.spawn(Arc::clone(processor).extend(Arc::clone(&state)));
        let to_nack = state.dispatcher.enqueue(received.map_err(StartError::Source)?);
        processor.nack_unstarted(to_nack, &state).await;
        while state.dispatcher.has_waiting()
            && let Some(batch) = state.dispatcher.take(1, processor.batch_size).await
        {
            processor.process(batch, &state).await;
        }
        // A nack that the source cannot delay is sent now, as at a stop.
        state.stop.cancel();
        state.delayed_nacks.close();
        state.delayed_nacks.wait().await;
        Ok(self.report() - before)
    }

    /// Starts the consumer, and stops it gracefully on the first SIGINT or SIGTERM, within `drain_timeout`. The second signal
    /// ends it at once: messages in flight are redelivered.
    ///
    /// # Errors
    /// When no signal handler can be installed, or deduplication records would expire before the last possible duplicate.
    pub async fn run_until_signal(&self, drain_timeout: Duration) -> io::Result<Stopped> {
        let state = Arc::new(ConsumerState::new(self.processor.prefetch));
        let misconfigured = async { io::Error::other(state.misconfigured().await) };
        runner::run_until_signal(|| self.spawn(Arc::clone(&state)), misconfigured, drain_timeout).await
    }

    /// The state of a consumer whose source has reported its redelivery window.
    async fn started_state(&self) -> Result<Arc<ConsumerState>, StartError> {
        let keeps = self.processor.retention().await?;
        let state = Arc::new(ConsumerState::new(self.processor.prefetch));
        state.start.send_replace(StartState::Started(keeps));
        Ok(state)
    }

    fn spawn(&self, state: Arc<ConsumerState>) -> Running {
        for warning in &self.processor.warnings {
            tracing::warn!(name: "postrider.warning", "{warning}");
        }
        let (processor, before) = (Arc::clone(&self.processor), self.report());
        let (mut receiver, mut processors, mut housekeeping) =
            (JoinSet::new(), JoinSet::new(), JoinSet::new());
        receiver.spawn(Arc::clone(&processor).receive(Arc::clone(&state)));
        for _ in 0..processor.concurrency {
            processors.spawn(Arc::clone(&processor).run(Arc::clone(&state)));
        }
        housekeeping.spawn(Arc::clone(&processor).extend(Arc::clone(&state)));
        if let Some(interval) = processor.prune_interval {
            housekeeping.spawn(Arc::clone(&processor).prune(interval, Arc::clone(&state)));
        }
        let engine = processor.engine.start();
        Running::new(ConsumerTasks { processor, state, before, receiver, processors, housekeeping, engine })
    }
}

impl<R: TxBackend> RunningTasks for ConsumerTasks<R> {
    fn report(&self) -> ReadReport {
        let (processor, before) = (Arc::clone(&self.processor), self.before);
        Box::new(move || processor.metrics.report() - before)
    }

    fn reports(&self) -> BTreeMap<QueueName, Report> {
        BTreeMap::from([(self.processor.queue.clone(), self.report()())])
    }

    fn ping(&mut self, within: Duration) -> BoxFuture<'_, Health> {
        Box::pin(self.check(within))
    }

    fn stop(self: Box<Self>, deadline: Duration) -> BoxFuture<'static, Stopped> {
        Box::pin(self.shut_down(deadline))
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            for tasks in [&mut self.receiver, &mut self.processors, &mut self.housekeeping] {
                tasks.shutdown().await;
            }
            self.engine.abort().await;
            Stopped { clean: false, report: self.processor.metrics.report() - self.before }
        })
    }
}

impl<R: TxBackend> ConsumerTasks<R> {
    async fn check(&mut self, within: Duration) -> Health {
        let mut health = self.engine.ping(within).await;
        let is_stopping = self.state.stop.is_cancelled();
        // One removes expired records, and one extends ack deadlines where the source has them.
        let housekeeping = usize::from(self.processor.prune_interval.is_some())
            + usize::from(self.processor.capabilities.ack_deadline.is_some());
        for (name, tasks, started) in [
            ("receiver", &mut self.receiver, 1),
            ("processor", &mut self.processors, self.processor.concurrency),
            ("housekeeping", &mut self.housekeeping, housekeeping),
        ] {
            while tasks.try_join_next().is_some() {}
            if tasks.len() < started && !is_stopping {
                health.dead_tasks.push(name);
            }
        }
        health.start_error = self.state.start_error();
        health
    }

    /// Receives nothing more, nacks messages that were not started, and lets running batches finish within `deadline`. Then
    /// the source is closed, and messages that are still in flight are redelivered.
    async fn shut_down(mut self, deadline: Duration) -> Stopped {
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
        let report = processor.metrics.report() - self.before;
        Stopped { clean: ran.is_ok() && replayed.clean, report }
    }
}
