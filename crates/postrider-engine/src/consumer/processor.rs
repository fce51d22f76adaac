//! Processing a batch of received messages, and acking it.

use super::{
    decoder::Decoder,
    dispatcher::Dispatcher,
    handler::Handlers,
    in_flight::{Content, InFlightMessage, arrival_of},
    metrics::ConsumerMetrics,
    retention::StartError,
    transaction::{PendingMessage, TransactionOutcome},
};
use crate::{
    context::Shared,
    delivery_loop::{DeliveryEngine, backoff::Backoff, store_outage::StoreOutage},
    failure::{Failure, Next},
    failure_policy::ErrorText,
    runner::Report,
};
use postrider_core::{
    Ack, AckHandle, Admission, Arrival, Capabilities, ConsumerName, Error, LaneId, QueueName, Reason, Source,
    TxBackend,
    hlc::HybridClock,
    retry::{Attempt as FailedAttempt, Retry, Verdict, decide},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The parts and settings of a consumer. Read-only.
pub(super) struct Processor<R: TxBackend> {
    pub(super) name: ConsumerName,
    /// The queue of its dead letters.
    pub(super) queue: QueueName,
    pub(super) decoder: Decoder,
    /// A description of the source, for dead letters.
    pub(super) origin: String,
    pub(super) source: Arc<dyn Source>,
    pub(super) capabilities: Capabilities,
    pub(super) store: R,
    pub(super) handlers: Handlers<R::Tx>,
    pub(super) shared: Arc<Shared>,
    pub(super) engine: DeliveryEngine,
    pub(super) metrics: ConsumerMetrics,
    pub(super) store_outage: StoreOutage,
    pub(super) warnings: Vec<String>,
    pub(super) clock: Option<Arc<HybridClock>>,
    pub(super) error_text: ErrorText,
    pub(super) concurrency: usize,
    pub(super) batch_size: usize,
    pub(super) prefetch: usize,
    pub(super) max_deliveries: Option<u32>,
    pub(super) retry_in_place: Option<Arc<dyn Retry>>,
    pub(super) retry: Arc<dyn Retry>,
    pub(super) restart_backoff_max: Duration,
    /// `run_until_idle` and `run_batch` end when no message has arrived for this long.
    pub(super) idle_after: Duration,
    pub(super) keep_deduplication_records_for: Option<Duration>,
    pub(super) resend_window: Duration,
    pub(super) redelivery_window: Option<Duration>,
    pub(super) prune_interval: Option<Duration>,
}

/// The outcome of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageOutcome {
    Processed,
    Duplicate,
    DeadLettered,
    /// Dead-lettered, and rejected at the broker.
    Rejected,
    /// It failed, and is nacked with this delay.
    Failed(Duration),
    /// It is nacked with this delay, which does not count as a failure.
    Nacked(Duration),
}

/// State shared by the tasks of a running consumer.
#[derive(Debug)]
pub(super) struct ConsumerState {
    pub(super) dispatcher: Dispatcher,
    /// Number of messages that may still be received.
    pub(super) free_slots: Semaphore,
    /// Number of receive calls that have begun.
    pub(super) calls: AtomicU64,
    pub(super) stop: CancellationToken,
    /// Messages that are nacked later.
    pub(super) delayed_nacks: TaskTracker,
    extended: Mutex<BTreeMap<u64, AckHandle>>,
    next: AtomicU64,
    pub(super) last_received_at: Mutex<Instant>,
    /// Whether the consumer has started, and why not.
    pub(super) start: watch::Sender<StartState>,
}

/// Whether a consumer has started to receive.
#[derive(Debug, Clone)]
pub(super) enum StartState {
    Pending(Arc<StartError>),
    /// It keeps deduplication records for this long.
    Started(Duration),
}

/// First and longest backoff after a failure of the database.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Maximum time that a message stays in flight because its broker cannot delay it.
const MAX_HOLD: Duration = Duration::from_secs(30);

impl ConsumerState {
    pub(super) fn new(free_slots: usize) -> Self {
        Self {
            dispatcher: Dispatcher::default(),
            free_slots: Semaphore::new(free_slots),
            calls: AtomicU64::new(0),
            stop: CancellationToken::new(),
            delayed_nacks: TaskTracker::new(),
            extended: Mutex::default(),
            next: AtomicU64::new(0),
            last_received_at: Mutex::new(Instant::now()),
            start: watch::Sender::new(StartState::Pending(Arc::new(StartError::Unanswered))),
        }
    }

    /// Why the consumer has not started, if it has not.
    pub(super) fn start_error(&self) -> Option<Arc<StartError>> {
        match &*self.start.borrow() {
            StartState::Pending(error) => Some(Arc::clone(error)),
            StartState::Started(_) => None,
        }
    }

    /// Waits until the consumer has started, and returns how long it keeps deduplication records.
    pub(super) async fn started(&self) -> Duration {
        let mut start = self.start.subscribe();
        loop {
            if let StartState::Started(keeps) = *start.borrow_and_update() {
                return keeps;
            }
            // The sender is a field of this state, so it outlives the wait.
            start.changed().await.ok();
        }
    }

    /// Waits for an error that only a change of settings resolves.
    pub(super) async fn misconfigured(&self) -> Arc<StartError> {
        let mut start = self.start.subscribe();
        loop {
            if let StartState::Pending(error) = &*start.borrow_and_update()
                && matches!(**error, StartError::RetentionTooShort { .. })
            {
                return Arc::clone(error);
            }
            start.changed().await.ok();
        }
    }

    /// The ack handles of all messages in flight.
    pub(super) fn ack_handles(&self) -> Vec<AckHandle> {
        self.extended.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Remembers that the ack deadlines of these messages must be extended.
    pub(super) fn start_extending(&self, messages: &mut [InFlightMessage]) {
        let mut extended = self.extended.lock().unwrap_or_else(PoisonError::into_inner);
        for message in messages {
            let number = self.next.fetch_add(1, SeqCst) + 1;
            message.extension_number = number;
            extended.insert(number, message.ack_handle.clone());
        }
    }

    fn stop_extending(&self, messages: &[&InFlightMessage]) {
        let mut extended = self.extended.lock().unwrap_or_else(PoisonError::into_inner);
        for message in messages {
            extended.remove(&message.extension_number);
        }
    }
}

impl<R: TxBackend> Processor<R> {
    /// One of the tasks that handle messages.
    pub(super) async fn run(self: Arc<Self>, state: Arc<ConsumerState>) {
        while let Some(batch) = state.dispatcher.take(self.concurrency, self.batch_size).await {
            self.process(batch, &state).await;
        }
    }

    /// Handles a batch and acks it.
    pub(super) async fn process(self: &Arc<Self>, batch: Vec<InFlightMessage>, state: &Arc<ConsumerState>) {
        let lanes: HashSet<LaneId> = batch.iter().filter_map(|message| message.lane).collect();
        let started_at = Instant::now();
        let outcomes = self.handle_all(&batch, &state.stop).await;
        self.metrics.record_handled(started_at.elapsed());
        self.count(&outcomes);
        self.ack_all(batch, outcomes, state).await;
        state.dispatcher.end(lanes);
    }

    async fn handle_all(&self, batch: &[InFlightMessage], stop: &CancellationToken) -> Vec<MessageOutcome> {
        let mut outcomes = vec![None; batch.len()];
        let mut pending: Vec<(usize, PendingMessage<'_>)> = Vec::new();
        for (index, message) in batch.iter().enumerate() {
            match &message.content {
                Content::Decoded(decoded) => {
                    let is_counted = self.is_counted_by_inbox(message);
                    pending.push((
                        index,
                        PendingMessage { decoded, deliveries: message.deliveries, is_counted },
                    ));
                }
                Content::Undecodable(incoming, invalid) => {
                    let dead_letter = || self.dead_letter_undecodable(incoming, invalid, message.deliveries);
                    outcomes[index] = Some(self.retry_until_stopped(stop, dead_letter).await);
                }
            }
        }
        self.count_deliveries(&mut pending, stop).await;
        let mut failed = None;
        if pending.len() > 1 && !pending.iter().any(|(_, pending)| self.exceeds_max_deliveries(pending)) {
            let messages: Vec<PendingMessage<'_>> = pending.iter().map(|(_, pending)| *pending).collect();
            match self.run_transaction(&messages).await {
                TransactionOutcome::Committed(admitted) => {
                    for ((index, _), admission) in pending.drain(..).zip(admitted) {
                        outcomes[index] = Some(outcome_of(admission));
                    }
                }
                // Each alone, so that one does not affect the others.
                TransactionOutcome::Failed { failure, failed_index } => {
                    failed =
                        failed_index.and_then(|failed_index| Some((pending.get(failed_index)?.0, failure)));
                }
                TransactionOutcome::Unavailable(error) => {
                    self.store_outage.report("handle received messages", &error);
                }
            }
        }
        let (mut halted, mut unstarted) = (HashSet::new(), Vec::new());
        for (index, pending) in pending {
            let lane = batch[index].lane;
            if lane.is_some_and(|lane| halted.contains(&lane)) {
                unstarted.extend(pending.is_counted.then(|| arrival_of(pending.decoded)));
                outcomes[index] = Some(MessageOutcome::Nacked(Duration::ZERO));
                continue;
            }
            let earlier_failure =
                failed.take_if(|(failed_index, _)| *failed_index == index).map(|(_, failure)| failure);
            let outcome = if self.exceeds_max_deliveries(&pending) {
                self.retry_until_stopped(stop, || self.dead_letter_unstarted(pending)).await
            } else {
                self.handle_alone(pending, earlier_failure, stop).await
            };
            if matches!(outcome, MessageOutcome::Failed(_) | MessageOutcome::Nacked(_)) {
                halted.extend(lane);
            }
            outcomes[index] = Some(outcome);
        }
        if !unstarted.is_empty() {
            // They were not started. When the count cannot be corrected, they may be dead-lettered too soon, and
            // nothing else.
            self.store.count_all(&self.name, &unstarted, -1).await.ok();
        }
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(MessageOutcome::Nacked(Duration::ZERO)))
            .collect()
    }

    fn exceeds_max_deliveries(&self, pending: &PendingMessage<'_>) -> bool {
        self.max_deliveries.is_some_and(|max| pending.deliveries.is_some_and(|deliveries| deliveries > max))
    }

    /// Whether the inbox counts its deliveries: when the broker does not, and when the broker also counts messages that
    /// were nacked only because another message of their lane had failed.
    fn is_counted_by_inbox(&self, message: &InFlightMessage) -> bool {
        self.max_deliveries.is_some() && (message.deliveries.is_none() || message.lane.is_some())
    }

    async fn count_deliveries(&self, pending: &mut [(usize, PendingMessage<'_>)], stop: &CancellationToken) {
        let mut counted: Vec<&mut PendingMessage<'_>> =
            pending.iter_mut().map(|(_, pending)| pending).filter(|pending| pending.is_counted).collect();
        if counted.is_empty() {
            return;
        }
        let arrivals: Vec<Arrival> = counted.iter().map(|pending| arrival_of(pending.decoded)).collect();
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        loop {
            match self.store.count_all(&self.name, &arrivals, 1).await {
                Ok(counts) => {
                    self.store_outage.resolved();
                    for (pending, count) in counted.iter_mut().zip(counts) {
                        pending.deliveries = Some(count);
                    }
                    return;
                }
                Err(error) => {
                    self.store_outage.report("count deliveries", &error);
                    if !matches!(error, Error::Unavailable(_)) {
                        return;
                    }
                }
            }
            if !sleep_unless_stopped(backoff.next_delay(), stop).await {
                return;
            }
        }
    }

    /// Handles one message in a transaction of its own, with retries in place.
    async fn handle_alone(
        &self,
        pending: PendingMessage<'_>,
        mut earlier_failure: Option<Failure>,
        stop: &CancellationToken,
    ) -> MessageOutcome {
        let started_at = Instant::now();
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        let mut attempts = 0;
        loop {
            let failure = match earlier_failure.take() {
                Some(failure) => failure,
                None => match self.run_transaction(&[pending]).await {
                    TransactionOutcome::Committed(admitted) => {
                        self.store_outage.resolved();
                        return outcome_of(admitted.first().copied().unwrap_or(Admission::Duplicate));
                    }
                    TransactionOutcome::Failed { failure, .. } => failure,
                    TransactionOutcome::Unavailable(error) => {
                        self.store_outage.report("handle received messages", &error);
                        if !sleep_unless_stopped(backoff.next_delay(), stop).await {
                            return MessageOutcome::Nacked(Duration::ZERO);
                        }
                        continue;
                    }
                },
            };
            attempts += 1;
            let attempt =
                FailedAttempt { number: attempts, elapsed: started_at.elapsed(), error: failure.kind() };
            if matches!(failure.next(), Next::Retry | Next::RetryAfter(_))
                && let Some(retry) = &self.retry_in_place
                && let Verdict::After(after) = verdict(retry.as_ref(), &attempt)
                && sleep_unless_stopped(after, stop).await
            {
                tracing::debug!(
                    name: "postrider.retried_in_place", consumer = %self.name, message_id = %pending.decoded.id, error = failure.kind(),
                    "handler of consumer {} failed ({}); retrying in place", self.name, failure.kind()
                );
                continue;
            }
            return self.after_failure(pending, &failure, stop).await;
        }
    }

    /// Nacks or dead-letters a message whose handler failed.
    async fn after_failure(
        &self,
        pending: PendingMessage<'_>,
        failure: &Failure,
        stop: &CancellationToken,
    ) -> MessageOutcome {
        let decoded = pending.decoded;
        let reason = match failure.next() {
            Next::Snooze(after) => return MessageOutcome::Nacked(after),
            Next::Reject => Reason::Rejected,
            Next::Undecodable => Reason::Undecodable,
            Next::Retry | Next::RetryAfter(_) => {
                let elapsed = decoded.sent_at.and_then(|at| SystemTime::now().duration_since(at).ok());
                let (number, elapsed) = (pending.deliveries.unwrap_or(1), elapsed.unwrap_or_default());
                let attempt = FailedAttempt { number, elapsed, error: failure.kind() };
                match (verdict(self.retry.as_ref(), &attempt), failure.next()) {
                    (Verdict::GiveUp, _) => Reason::RetriesExhausted,
                    (Verdict::After(_), Next::RetryAfter(after)) | (Verdict::After(after), _) => {
                        tracing::info!(
                            name: "postrider.nacked",
                            consumer = %self.name, message_id = %decoded.id, error = failure.kind(), ?after,
                            "handler of consumer {} failed ({}); message nacked, redelivery in {after:?}", self.name, failure.kind()
                        );
                        return MessageOutcome::Failed(after);
                    }
                }
            }
        };
        self.retry_until_stopped(stop, || self.dead_letter(pending, reason, failure)).await
    }

    /// Retries an action while the database is unavailable. When the consumer stops first, or the database refuses the action, the
    /// message is nacked: a dead letter that cannot be written must not block the messages behind it.
    async fn retry_until_stopped<F: Future<Output = Result<MessageOutcome, Error>>>(
        &self,
        stop: &CancellationToken,
        mut act: impl FnMut() -> F,
    ) -> MessageOutcome {
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        loop {
            match act().await {
                Ok(outcome) => {
                    self.store_outage.resolved();
                    return outcome;
                }
                Err(error) => {
                    self.store_outage.report("write a dead letter", &error);
                    if !matches!(error, Error::Unavailable(_)) {
                        return MessageOutcome::Failed(MAX_HOLD);
                    }
                }
            }
            if !sleep_unless_stopped(backoff.next_delay(), stop).await {
                return MessageOutcome::Nacked(Duration::ZERO);
            }
        }
    }

    fn count(&self, outcomes: &[MessageOutcome]) {
        let mut report = Report::default();
        for outcome in outcomes {
            match outcome {
                MessageOutcome::Processed => report.delivered += 1,
                MessageOutcome::Duplicate => report.duplicates += 1,
                MessageOutcome::DeadLettered | MessageOutcome::Rejected => report.dead += 1,
                MessageOutcome::Failed(_) => report.retried += 1,
                MessageOutcome::Nacked(_) => report.released += 1,
            }
        }
        self.metrics.record_outcomes(report);
    }

    /// Acks, nacks and rejects at the source. When the source cannot delay a nack, the message stays in flight until the
    /// delay is over.
    async fn ack_all(
        self: &Arc<Self>,
        batch: Vec<InFlightMessage>,
        outcomes: Vec<MessageOutcome>,
        state: &Arc<ConsumerState>,
    ) {
        let mut now: Vec<(InFlightMessage, Ack)> = Vec::new();
        let mut behind: Vec<InFlightMessage> = Vec::new();
        for (mut message, outcome) in batch.into_iter().zip(outcomes) {
            let after = match outcome {
                MessageOutcome::Processed | MessageOutcome::Duplicate | MessageOutcome::DeadLettered => {
                    now.push((message, Ack::Ack));
                    continue;
                }
                MessageOutcome::Rejected => {
                    now.push((message, Ack::Reject));
                    continue;
                }
                MessageOutcome::Failed(after) | MessageOutcome::Nacked(after) => after,
            };
            if let Some(lane) = message.lane {
                behind.extend(state.dispatcher.halt(lane, &mut message));
            }
            match self.capabilities.max_delay {
                Some(longest) => now.push((message, Ack::Nack { after: after.min(longest) })),
                None if after.is_zero() => now.push((message, Ack::REDELIVER_NOW)),
                None => {
                    let (processor, shared_state) = (Arc::clone(self), Arc::clone(state));
                    state.delayed_nacks.spawn(async move {
                        sleep_unless_stopped(after.min(MAX_HOLD), &shared_state.stop).await;
                        processor.send_acks(vec![(message, Ack::REDELIVER_NOW)], &shared_state).await;
                    });
                }
            }
        }
        self.metrics.record_unstarted(behind.len());
        now.extend(behind.into_iter().map(|message| (message, Ack::REDELIVER_NOW)));
        self.send_acks(now, state).await;
    }

    /// Nacks messages that were not started.
    pub(super) async fn nack_unstarted(&self, messages: Vec<InFlightMessage>, state: &ConsumerState) {
        self.metrics.record_unstarted(messages.len());
        self.send_acks(messages.into_iter().map(|message| (message, Ack::REDELIVER_NOW)).collect(), state)
            .await;
    }

    async fn send_acks(&self, acks: Vec<(InFlightMessage, Ack)>, state: &ConsumerState) {
        if acks.is_empty() {
            return;
        }
        let handles: Vec<_> = acks.iter().map(|(message, ack)| message.with_ack(*ack)).collect();
        let results = self.source.ack(&handles).await;
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            self.metrics.record_ack_lost();
            tracing::warn!(
                name: "postrider.ack_lost", consumer = %self.name, %error,
                "ack of a message of consumer {} lost: {error}; the broker redelivers the message", self.name
            );
        }
        let call = state.calls.load(SeqCst);
        for (message, ack) in &acks {
            if let (Some(lane), Ack::Nack { .. }) = (message.lane, ack) {
                state.dispatcher.nack_sent(lane, message.halt, call);
            }
        }
        if self.capabilities.ack_deadline.is_some() {
            state.stop_extending(&acks.iter().map(|(message, _)| message).collect::<Vec<_>>());
        }
        state.free_slots.add_permits(acks.len());
        self.metrics
            .record_in_flight(self.prefetch - state.free_slots.available_permits().min(self.prefetch));
    }
}

/// A function of its own: the random generator must not live across an await.
fn verdict(retry: &dyn Retry, failed: &FailedAttempt<'_>) -> Verdict {
    decide(retry, failed, &mut rand::rng())
}

fn outcome_of(admission: Admission) -> MessageOutcome {
    match admission {
        Admission::First => MessageOutcome::Processed,
        Admission::Duplicate => MessageOutcome::Duplicate,
    }
}

/// Sleeps, unless the consumer stops. Returns whether it slept to the end.
async fn sleep_unless_stopped(length: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = sleep(length) => true,
        () = stop.cancelled() => false,
    }
}
