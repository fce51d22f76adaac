//! The builder of a consumer.

use super::{
    Consumer,
    decoder::{Decoder, DeduplicateBy},
    handler::{Handler, Handlers, Plain, Typed},
    metrics::ConsumerMetrics,
    processor::Processor,
    replay::ReplayDeliver,
    retention::RESEND_WINDOW,
};
use crate::{
    context::Shared,
    delivery_loop::{DeliveryEngine, Subscription, store_outage::StoreOutage},
    failure::Failure,
    failure_policy::{ErrorText, FailurePolicy},
    pruner::{PRUNE_INTERVAL, check_prune_interval},
    worker::{
        Context, OnUnknownType, Tx,
        handler::{event, json},
    },
};
use postrider_core::{
    Backend, ConsumerName, Event, Incoming, Invalid, QueueName, RetryStrategy, Source, TxBackend,
    hlc::HybridClock, retry::Retry,
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Builder of a [`Consumer`]; [`build`](Self::build) checks the settings.
#[must_use = "a builder does nothing until it is built"]
pub struct ConsumerBuilder<R: TxBackend> {
    name: String,
    source: Arc<dyn Source>,
    store: R,
    queue: Option<String>,
    handlers: Vec<(&'static str, Handler<R::Tx>)>,
    fallback: Option<Handler<R::Tx>>,
    unknown: OnUnknownType,
    shared: Shared,
    clock: Option<Arc<HybridClock>>,
    deduplicate_by: Option<DeduplicateBy>,
    concurrency: usize,
    batch_size: usize,
    prefetch: usize,
    timeout: Duration,
    max_deliveries: Option<u32>,
    retry_in_place: Option<RetryStrategy>,
    retry: RetryStrategy,
    error_text: ErrorText,
    restart_backoff_max: Duration,
    idle_after: Duration,
    keep_deduplication_records_for: Option<Duration>,
    resend_window: Duration,
    redelivery_window: Option<Duration>,
    prune_interval: Option<Duration>,
}

impl<R: TxBackend> ConsumerBuilder<R> {
    pub(super) fn new(name: String, source: Arc<dyn Source>, store: R) -> Self {
        Self {
            name,
            source,
            store,
            queue: None,
            handlers: Vec::new(),
            fallback: None,
            unknown: OnUnknownType::default(),
            shared: Shared::default(),
            clock: None,
            deduplicate_by: None,
            concurrency: 5,
            batch_size: 100,
            prefetch: 1_000,
            timeout: Duration::from_secs(30),
            max_deliveries: None,
            retry_in_place: None,
            retry: RetryStrategy::default().without_max_attempts(),
            error_text: ErrorText::default(),
            restart_backoff_max: Duration::from_secs(5),
            idle_after: Duration::from_secs(1),
            keep_deduplication_records_for: None,
            resend_window: RESEND_WINDOW,
            redelivery_window: None,
            prune_interval: Some(PRUNE_INTERVAL),
        }
    }

    /// Registers the handler of one event type. Writes and staged messages in the transaction commit with the deduplication
    /// record of the message, or not at all. Do not commit the transaction. It must be dropped before the handler ends,
    /// which happens by itself.
    pub fn on<E, F, Fut, G>(mut self, handler: F) -> Self
    where
        E: Event + Send + 'static,
        F: Fn(E, Tx<R::Tx>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        self.handlers.push((E::TYPE, Arc::new(Typed { decode: event::<E>(), run: handler })));
        self
    }

    /// Registers the handler of all messages without a handler of their own, whatever their type. The payload is decoded
    /// from JSON.
    pub fn on_json<T, F, Fut, G>(mut self, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Tx<R::Tx>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        self.fallback = Some(Arc::new(Typed { decode: json::<T>(), run: handler }));
        self
    }

    /// Registers the handler of all messages without a handler of their own, whatever their type. The handler reads the
    /// payload itself.
    pub fn on_any<F, Fut, G>(mut self, handler: F) -> Self
    where
        F: Fn(Tx<R::Tx>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        self.fallback = Some(Arc::new(Plain(handler)));
        self
    }

    /// Policy for messages whose type has no handler; default: they are dead-lettered.
    pub fn on_unknown(mut self, unknown: OnUnknownType) -> Self {
        self.unknown = unknown;
        self
    }

    /// Shares a value with all handlers; they read it with [`Context::shared`]. One value per type.
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.put(value);
        self
    }

    /// Merges the senders' hybrid logical clocks into this clock: its readings after a message was received are later than
    /// the message's timestamp. Duplicates are not merged, since their effects happened before. Messages that handlers stage with
    /// [`Context::follow`] have readings of it.
    pub fn clock(mut self, clock: Arc<HybridClock>) -> Self {
        self.shared.put(Arc::clone(&clock));
        self.clock = Some(clock);
        self
    }

    /// Deduplicates messages by the identity that this function returns, instead of the identity of the event or of the protocol:
    /// for senders that send the same message twice with different ids, or without an id. It becomes the message id, too. When
    /// the function returns `None`, the message keeps its own identity. A function that panics makes the message undecodable.
    ///
    /// The tenant and the consumer are part of the identity already. Never use the ordering key: many messages share a key.
    ///
    /// ```
    /// # use postrider_engine::{Consumer, Context, Failure, Tx};
    /// # use postrider_stores::memory::{MemoryStore, MemoryTransaction};
    /// # use postrider_transports::memory::MemoryQueue;
    /// # let (source, store) = (MemoryQueue::new("payments").source(), MemoryStore::new());
    /// let consumer = Consumer::builder("billing", source, store)
    ///     .deduplicate_by(|incoming| incoming.header("idempotency-key").map(str::to_owned))
    /// #   .on_any(|_: Tx<MemoryTransaction>, _: Context| async { Ok::<(), Failure>(()) })
    ///     .build()?;
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    pub fn deduplicate_by(
        mut self,
        identity: impl Fn(&Incoming) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.deduplicate_by = Some(Arc::new(identity));
        self
    }

    /// Queue of the consumer's dead letters; default `inbox.` followed by the consumer's name. No worker may work on it.
    pub fn dead_letter_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Concurrency: the maximum number of transactions at once, each on a connection of its own; default 5.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Batch size: the maximum number of messages that one transaction handles, one after the other, when many wait;
    /// default 100. When one of them fails, all are rolled back and each is handled again, alone. With 1, each message has
    /// a transaction of its own.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Prefetch: the maximum number of messages in flight, running ones included; default 1,000.
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// Handler timeout: a handler that takes longer is stopped and counts as failed; default 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Dead-letters a message, without running its handler, when it was delivered more often than this. Default: no limit,
    /// except the broker's own. When the broker does not count deliveries, the inbox does.
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = Some(max_deliveries);
        self
    }

    /// Retries a failed message in this process, before it is nacked; default: no such retries. The message stays in
    /// flight.
    pub fn retry_in_place(mut self, retry: RetryStrategy) -> Self {
        self.retry_in_place = Some(retry);
        self
    }

    /// Redelivery delay of a nacked message, by its number of deliveries where that is known. When the broker cannot delay
    /// a message, it stays in flight for the delay, at most half a minute. A strategy that gives up dead-letters the
    /// message.
    pub fn retry(mut self, retry: RetryStrategy) -> Self {
        self.retry = retry;
        self
    }

    /// The part of an error that is stored with a dead letter; default the name of its type.
    pub fn error_text(mut self, error_text: ErrorText) -> Self {
        self.error_text = error_text;
        self
    }

    /// Maximum backoff before receiving again after a lost connection; default 5 seconds.
    pub fn restart_backoff_max(mut self, longest: Duration) -> Self {
        self.restart_backoff_max = longest;
        self
    }

    /// [`run_until_idle`](Consumer::run_until_idle) and [`run_batch`](Consumer::run_batch) end when no message has arrived for
    /// this long; default one second. No broker reports that it has nothing more to deliver.
    pub fn idle_after(mut self, idle_after: Duration) -> Self {
        self.idle_after = idle_after;
        self
    }

    /// Retention of deduplication records; older ones are removed. Default: as long as a message can be redelivered. A
    /// retention that is too short is an error at the start.
    pub fn keep_deduplication_records_for(mut self, keep: Duration) -> Self {
        self.keep_deduplication_records_for = Some(keep);
        self
    }

    /// Resend window: how long the sender may resend a message that was not confirmed; default one day.
    pub fn resend_window(mut self, longest: Duration) -> Self {
        self.resend_window = longest;
        self
    }

    /// Redelivery window: how long the broker may redeliver a message, for brokers that cannot report it or keep messages without limit.
    pub fn redelivery_window(mut self, longest: Duration) -> Self {
        self.redelivery_window = Some(longest);
        self
    }

    /// Prunes expired deduplication records, and delivered messages past their retention, about this often while the consumer
    /// runs, in small steps; `None`: never, if `postrider gc` does it. Default: every ten minutes.
    pub fn prune_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.prune_interval = interval.into();
        self
    }

    /// Checks the settings and builds the consumer.
    ///
    /// # Errors
    /// Names the first invalid setting and the valid values.
    pub fn build(self) -> Result<Consumer<R>, Invalid> {
        let name = ConsumerName::new(self.name.as_str())?;
        let queue = QueueName::new(self.queue.clone().unwrap_or_else(|| format!("inbox.{name}")))?;
        self.check(&name)?;
        let capabilities = self.source.capabilities();
        let warnings = self.warnings(&name, &queue);
        let mut typed: BTreeMap<&'static str, Handler<R::Tx>> = BTreeMap::new();
        for (event_type, handler) in self.handlers {
            if typed.insert(event_type, handler).is_some() {
                let rule = format!("{name} has two for events of type {event_type}: register one");
                return Err(Invalid::rule("handlers", rule));
            }
        }
        let handlers =
            Handlers { typed, fallback: self.fallback, unknown: self.unknown, timeout: self.timeout };
        let retry: Arc<dyn Retry> = Arc::new(self.retry);
        let replay = Arc::new(ReplayDeliver {
            processor: OnceLock::new(),
            failure_policy: FailurePolicy {
                retry: Arc::new(RetryStrategy::default()),
                error_text: self.error_text.clone(),
            },
            max_deliveries: Some(MAX_REPLAYS),
        });
        let backend: Arc<dyn Backend> = Arc::new(self.store.backend());
        let subscription =
            Subscription::new(queue.clone(), Arc::clone(&replay) as _).with_concurrency(self.concurrency);
        // The consumer prunes, including its deduplication records.
        let engine = DeliveryEngine::new(&backend).with_prune_interval(None).subscribe(subscription)?;
        let processor = Arc::new(Processor {
            metrics: ConsumerMetrics::new(&name),
            origin: format!("{} {}", self.source.kind(), self.source.origin()),
            engine,
            name,
            decoder: Decoder { queue: queue.clone(), deduplicate_by: self.deduplicate_by },
            queue: queue.clone(),
            source: self.source,
            capabilities,
            store: self.store,
            handlers,
            shared: Arc::new(self.shared),
            store_outage: StoreOutage::default(),
            warnings,
            clock: self.clock,
            error_text: self.error_text,
            concurrency: self.concurrency,
            batch_size: self.batch_size,
            prefetch: self.prefetch,
            max_deliveries: self.max_deliveries,
            retry_in_place: self.retry_in_place.map(|retry| Arc::new(retry) as Arc<dyn Retry>),
            retry,
            restart_backoff_max: self.restart_backoff_max,
            idle_after: self.idle_after,
            keep_deduplication_records_for: self.keep_deduplication_records_for,
            resend_window: self.resend_window,
            redelivery_window: self.redelivery_window,
            prune_interval: self.prune_interval,
        });
        replay.processor.get_or_init(|| Arc::downgrade(&processor));
        Ok(Consumer { processor })
    }

    fn check(&self, name: &ConsumerName) -> Result<(), Invalid> {
        if self.handlers.is_empty() && self.fallback.is_none() {
            let rule = format!("{name} has none: add one with `on`, `on_json` or `on_any`");
            return Err(Invalid::rule("handlers", rule));
        }
        for (field, value) in [
            ("concurrency", self.concurrency),
            ("batch_size", self.batch_size),
            ("prefetch", self.prefetch),
            ("max_deliveries", self.max_deliveries.map_or(1, |max| max as usize)),
        ] {
            if value == 0 {
                return Err(Invalid::rule(field, "is 0; nothing would ever run: set at least 1"));
            }
        }
        for (field, value) in [
            ("timeout", self.timeout),
            ("restart_backoff_max", self.restart_backoff_max),
            ("idle_after", self.idle_after),
        ] {
            if value.is_zero() {
                return Err(Invalid::rule(field, "is zero: set a duration above zero"));
            }
        }
        check_prune_interval(self.prune_interval)?;
        self.retry_in_place.as_ref().map_or(Ok(()), RetryStrategy::check)?;
        self.retry.check()
    }

    fn warnings(&self, name: &ConsumerName, queue: &QueueName) -> Vec<String> {
        let mut warnings = Vec::new();
        let capabilities = self.source.capabilities();
        if let Some(max) = self.max_deliveries
            && !capabilities.counts_deliveries
        {
            warnings.push(format!(
                "consumer {name}: {} does not count deliveries, so the inbox does, to dead-letter messages after {max}: that costs one more \
                 statement per batch",
                self.source.kind()
            ));
        }
        if self.prefetch < self.concurrency {
            warnings.push(format!(
                "consumer {name}: a prefetch of {} messages is too small for {} transactions at once: raise prefetch",
                self.prefetch, self.concurrency
            ));
        }
        if let Some(ack_deadline) = capabilities.ack_deadline
            && ack_deadline < Duration::from_secs(1)
        {
            warnings.push(format!(
                "consumer {name}: the ack deadline is {ack_deadline:?}, so messages are extended several times a second, and redelivered \
                 after a short pause of the process: raise the broker's ack deadline"
            ));
        }
        if queue.as_str() == self.source.origin() {
            warnings.push(format!(
                "consumer {name}: dead letters go to the queue {queue} of the store, which has the same name as its source; these are two different queues"
            ));
        }
        warnings
    }
}

/// A message that was replayed more often than this without an outcome may be crashing its process.
const MAX_REPLAYS: u32 = 25;

impl<R: TxBackend> fmt::Debug for ConsumerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
