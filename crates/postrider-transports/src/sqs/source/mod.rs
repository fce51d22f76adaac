//! A source that receives from an SQS queue.

mod builder;
mod check;
mod connection;
mod in_flight;
mod wire;

pub use builder::SqsSourceBuilder;

use crate::{
    aws::{AwsOptions, ServiceError, batch::ENTRIES},
    byte_budget::{ByteBudget, BytesInFlight},
};
use async_trait::async_trait;
use aws_sdk_sqs::types::Message;
use connection::QueueConnection;
use futures_util::future::join_all;
use in_flight::{InFlightMessage, PrefetchedMessage, SourceState};
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, Invalid, LaneId, ReceivedMessage, RedeliveryWindow, Source,
    SourceError,
};

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// SQS limits the time for which a message is invisible, counted from when it was received.
const MAX_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);
/// The service counts from its own clock, which started before ours.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// Receives from an SQS queue, standard or FIFO.
///
/// ```no_run
/// # use postrider_core::Source;
/// # use postrider_transports::sqs::{AwsOptions, SqsSource};
/// # use std::time::Duration;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let source = SqsSource::builder(AwsOptions::new().with_region("eu-central-1"), "orders")
///     .with_visibility_timeout(Duration::from_secs(60))
///     .with_reject_to("orders-dead")
///     .build()?;
/// for finding in source.check().await? {
///     println!("{} {}: {} {}", finding.severity, finding.subject, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
///
/// | ack | effect |
/// |---|---|
/// | [`Ack::Ack`] | the message is deleted; each message of a request has its own result |
/// | [`Ack::Nack`] | the message is invisible for the delay, up to 12 hours after it was received, and is then redelivered |
/// | [`Ack::Reject`] | the message is sent to the queue of [`with_reject_to`](SqsSourceBuilder::with_reject_to), if there is one, and deleted |
///
/// **The ack deadline** of a message is its visibility timeout, regardless of the connection: messages of a process that died are redelivered after
/// it, and messages of a closed source at once. An ack after the deadline is stale.
///
/// **FIFO**: the lane is the message group. While a message of a group is in flight, the service delivers no other message of it; after
/// [`Ack::Nack`], messages that were prefetched behind it are released as well.
pub struct SqsSource(Arc<Inner>);

struct Inner {
    connection: QueueConnection,
    state: Mutex<SourceState>,
    budget: ByteBudget,
    /// How many receive requests may run at the same time. One, while they do not return full batches.
    max_fetches: AtomicUsize,
    changed: Notify,
}

/// The content of an ack handle: the message, and the source that received it.
struct MessageHandle {
    source: Weak<Inner>,
    message: Arc<InFlightMessage>,
    _bytes: BytesInFlight,
}

impl SqsSource {
    /// Receives from a queue, by its name in the account and region of the options or by its URL.
    pub fn builder(options: AwsOptions, queue: impl Into<String>) -> SqsSourceBuilder {
        SqsSourceBuilder::new(options, queue.into())
    }

    /// Receives from a queue with default settings.
    ///
    /// # Errors
    /// Names the invalid option.
    pub fn connect(options: AwsOptions, queue: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(options, queue).build()
    }

    fn new(connection: QueueConnection) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        let budget = ByteBudget::new(connection.settings.max_bytes);
        Self(Arc::new(Inner { connection, state, budget, max_fetches: AtomicUsize::new(1), changed }))
    }

    fn message<'h>(&self, handle: &'h AckHandle) -> Result<&'h Arc<InFlightMessage>, SourceError> {
        match handle.downcast::<MessageHandle>() {
            Some(MessageHandle { source, message, .. }) if source.as_ptr() == Arc::as_ptr(&self.0) => {
                Ok(message)
            }
            _ => Err(SourceError::stale("the message came from another source")),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes prefetched messages; if there are none, starts receive requests.
    fn take(self: &Arc<Self>, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let settings = &self.connection.settings;
        let mut state = self.lock();
        if state.is_closed {
            return Err(SourceError::unavailable("the source is closed"));
        }
        let taken = state.take(most, settings.visibility_timeout);
        if !taken.is_empty() {
            return Ok(taken);
        }
        if let Some(error) = state.error.take() {
            return Err(error.into());
        }
        let wanted = self.budget.messages(most.min(settings.prefetch));
        while state.fetching < wanted.div_ceil(ENTRIES).min(self.max_fetches.load(Relaxed)) {
            state.fetching += 1;
            // In a task of its own: a caller may be cancelled, and the messages of its request would be invisible to everybody.
            tokio::spawn(Arc::clone(self).fetch(wanted));
        }
        Ok(taken)
    }

    async fn fetch(self: Arc<Self>, most: usize) {
        let fetched = self.connection.fetch(most).await;
        let late = self.store(fetched);
        self.changed.notify_waiters();
        self.release(&late, Duration::ZERO).await;
    }

    /// Stores fetched messages; returns those that arrived after the source was closed, to be released.
    fn store(self: &Arc<Self>, fetched: Result<Vec<Message>, ServiceError>) -> Vec<Arc<InFlightMessage>> {
        let settings = &self.connection.settings;
        let mut state = self.lock();
        state.fetching -= 1;
        let now = Instant::now();
        state.in_flight.retain(|_, (until, _)| *until > now);
        match fetched {
            Ok(messages) => {
                let most = settings.prefetch.div_ceil(ENTRIES);
                let max_fetches =
                    if messages.len() < ENTRIES { 1 } else { (self.max_fetches.load(Relaxed) * 2).min(most) };
                self.max_fetches.store(max_fetches, Relaxed);
                let first = state.next_number;
                state.next_number += messages.len() as u64;
                let fetched = messages
                    .into_iter()
                    .zip(first..)
                    .filter_map(|(message, number)| self.prefetched(message, number));
                state.prefetched.extend(fetched);
            }
            Err(error) => {
                self.max_fetches.store(1, Relaxed);
                state.error = Some(error);
            }
        }
        if state.is_closed { state.clear() } else { Vec::new() }
    }

    fn prefetched(self: &Arc<Self>, message: Message, number: u64) -> Option<PrefetchedMessage> {
        let settings = &self.connection.settings;
        let incoming = wire::incoming(&settings.queue, &message);
        // A standard queue may have groups, too, but keeps no order in them.
        let is_fifo = settings.queue.ends_with(".fifo");
        let lane = wire::group(&message).filter(|_| is_fifo).map(LaneId::of);
        let deliveries = wire::deliveries(&message);
        let message = Arc::new(InFlightMessage {
            number,
            // A message without a receipt handle cannot be acked, and is redelivered.
            receipt_handle: message.receipt_handle()?.into(),
            lane,
            received_at: Instant::now(),
            original: settings.reject_to.is_some().then_some(message),
            is_acked: AtomicBool::new(false),
        });
        let handle = MessageHandle {
            source: Arc::downgrade(self),
            message: Arc::clone(&message),
            _bytes: self.budget.add(&incoming),
        };
        let mut received = ReceivedMessage::new(incoming, AckHandle::new(handle));
        received.deliveries = deliveries;
        received.lane = lane;
        Some(PrefetchedMessage { received, message })
    }

    /// Makes messages visible again after a delay. If that fails, they are redelivered when their visibility timeout expires.
    async fn release(&self, messages: &[Arc<InFlightMessage>], after: Duration) {
        let handles: Vec<_> =
            messages.iter().map(|message| (Arc::clone(&message.receipt_handle), after)).collect();
        self.connection.change_visibility(&handles).await;
    }

    /// Sends a rejected message to its queue, if one is set.
    async fn forward(&self, message: &InFlightMessage) -> Result<(), SourceError> {
        match (&self.connection.settings.reject_to, &message.original) {
            (Some(to), Some(message)) => self.connection.forward(to, message).await,
            _ => Ok(()),
        }
    }
}

/// The requests of a batch of acks, with the index of each ack.
#[derive(Default)]
struct AckRequests {
    delete: Vec<(usize, Arc<InFlightMessage>)>,
    change_visibility: Vec<(usize, Arc<InFlightMessage>, Duration)>,
}

impl Drop for SqsSource {
    /// No message can be acked any more. Messages in flight are redelivered when their visibility timeout expires.
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_waiters();
    }
}

#[async_trait]
impl Source for SqsSource {
    fn kind(&self) -> &'static str {
        "sqs"
    }

    fn origin(&self) -> &str {
        &self.0.connection.settings.queue
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(ENTRIES)
            .with_delivery_counts()
            .with_max_delay(MAX_VISIBILITY_TIMEOUT - CLOCK_SLACK)
            .with_ack_deadline(self.0.connection.settings.visibility_timeout)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        loop {
            let changed = self.0.changed.notified();
            let taken = self.0.take(most)?;
            if !taken.is_empty() || most == 0 {
                return Ok(taken);
            }
            tokio::select! {
                () = changed => {}
                () = self.0.budget.freed() => {}
            }
        }
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let inner = &self.0;
        let mut results: Vec<Result<(), SourceError>> = (0..acks.len()).map(|_| Ok(())).collect();
        let (mut requests, mut rejected, mut behind) = (AckRequests::default(), Vec::new(), Vec::new());
        for (index, (handle, ack)) in acks.iter().enumerate() {
            let mut state = inner.lock();
            let message = match self.message(handle) {
                Ok(message) if !state.is_closed && !message.is_acked.swap(true, Relaxed) => {
                    Arc::clone(message)
                }
                Ok(_) => {
                    results[index] =
                        Err(SourceError::stale("the message was acked before, or the source is closed"));
                    continue;
                }
                Err(error) => {
                    results[index] = Err(error);
                    continue;
                }
            };
            match ack {
                Ack::Ack => requests.delete.push((index, message)),
                Ack::Reject => rejected.push((index, message)),
                Ack::Nack { after } => {
                    // The limit counts from when the message was received.
                    let after = (*after).min(
                        MAX_VISIBILITY_TIMEOUT.saturating_sub(message.received_at.elapsed() + CLOCK_SLACK),
                    );
                    let same_lane = message.lane.map(|lane| state.take_lane(lane)).unwrap_or_default();
                    behind.extend(same_lane.into_iter().map(|message| (message, after)));
                    requests.change_visibility.push((index, message, after));
                }
            }
        }
        let forwarded = join_all(rejected.iter().map(|(_, message)| inner.forward(message))).await;
        for ((index, message), result) in rejected.into_iter().zip(forwarded) {
            match result {
                Ok(()) => requests.delete.push((index, message)),
                Err(error) => {
                    message.is_acked.store(false, Relaxed);
                    results[index] = Err(error);
                }
            }
        }
        let delete: Vec<_> =
            requests.delete.iter().map(|(_, message)| Arc::clone(&message.receipt_handle)).collect();
        let change_visibility = requests
            .change_visibility
            .iter()
            .map(|(_, message, after)| (Arc::clone(&message.receipt_handle), *after));
        let change_visibility: Vec<_> = change_visibility
            .chain(behind.iter().map(|(message, after)| (Arc::clone(&message.receipt_handle), *after)))
            .collect();
        let (deleted, changed) = tokio::join!(
            inner.connection.delete(&delete),
            inner.connection.change_visibility(&change_visibility)
        );
        let changes = requests.change_visibility.into_iter().map(|(index, message, _)| (index, message));
        // The messages behind a nacked one have no ack of their own.
        let outcomes = requests.delete.into_iter().zip(deleted).chain(changes.zip(changed));
        let mut state = inner.lock();
        for ((index, message), result) in outcomes {
            match &result {
                Err(SourceError::Unavailable { .. }) => message.is_acked.store(false, Relaxed),
                _ => drop(state.in_flight.remove(&message.number)),
            }
            results[index] = result;
        }
        results
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        let visibility_timeout = self.0.connection.settings.visibility_timeout;
        let in_flight = |handle| match self.message(handle)? {
            message if message.is_acked.load(Relaxed) => {
                Err(SourceError::stale("the message was acked before"))
            }
            message => Ok(message),
        };
        let messages: Vec<_> = handles.iter().map(in_flight).collect();
        let handles: Vec<_> = messages
            .iter()
            .flatten()
            .map(|message| (Arc::clone(&message.receipt_handle), visibility_timeout))
            .collect();
        let mut extended = self.0.connection.change_visibility(&handles).await.into_iter();
        let mut state = self.0.lock();
        let results = messages.into_iter().map(|message| {
            let message = message?;
            extended.next().unwrap_or_else(|| {
                Err(SourceError::unavailable("SQS returned no result for this message"))
            })?;
            if let Some((until, _)) = state.in_flight.get_mut(&message.number) {
                *until = Instant::now() + visibility_timeout;
            }
            Ok(())
        });
        results.collect()
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        Ok(self.0.connection.retention().await?)
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        Ok(self.0.connection.findings().await?)
    }

    async fn close(&self) {
        let messages = {
            let mut state = self.0.lock();
            state.is_closed = true;
            state.clear()
        };
        self.0.changed.notify_waiters();
        let messages: Vec<_> =
            messages.into_iter().filter(|message| !message.is_acked.swap(true, Relaxed)).collect();
        self.0.release(&messages, Duration::ZERO).await;
    }
}

impl fmt::Debug for SqsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSource").field("settings", &self.0.connection.settings).finish_non_exhaustive()
    }
}
