//! What a consumer is told.

use super::{
    Consumer,
    count::Counts,
    handler::{Handler, Handlers, Plain, Typed},
    replay::Replay,
    retention::RESENT_WITHIN,
    work::Work,
};
use crate::{
    carry::{Carrier, Subscription, trouble::Trouble},
    failure::Failure,
    judge::{ErrorText, Judge},
    worker::{
        Context, Tx, Unknown,
        context::Shared,
        handler::{event, json},
    },
};
use postrider_core::{
    ConsumerName, Event, Invalid, QueueName, Receive, RetryStrategy, Source, Store, hlc::Clock, retry::Retry,
    wake::Wake,
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Collects what a consumer needs; [`build`](Self::build) checks it all.
#[must_use = "a builder does nothing until it is built"]
pub struct ConsumerBuilder<R: Receive> {
    name: String,
    source: Arc<dyn Source>,
    store: R,
    queue: Option<String>,
    handlers: Vec<(&'static str, Handler<R::Tx>)>,
    otherwise: Option<Handler<R::Tx>>,
    unknown: Unknown,
    shared: Shared,
    clock: Option<Arc<Clock>>,
    concurrency: usize,
    together: usize,
    in_hand: usize,
    timeout: Duration,
    max_deliveries: Option<u32>,
    in_place: Option<RetryStrategy>,
    again: RetryStrategy,
    error_text: ErrorText,
    restart_within: Duration,
    keep_marks_for: Option<Duration>,
    resent_within: Duration,
    redelivered_within: Option<Duration>,
}

impl<R: Receive> ConsumerBuilder<R> {
    pub(super) fn new(name: String, source: Arc<dyn Source>, store: R) -> Self {
        Self {
            name,
            source,
            store,
            queue: None,
            handlers: Vec::new(),
            otherwise: None,
            unknown: Unknown::default(),
            shared: Shared::default(),
            clock: None,
            concurrency: 5,
            together: 100,
            in_hand: 1_000,
            timeout: Duration::from_secs(30),
            max_deliveries: None,
            in_place: None,
            again: RetryStrategy::default().without_max_attempts(),
            error_text: ErrorText::default(),
            restart_within: Duration::from_secs(5),
            keep_marks_for: None,
            resent_within: RESENT_WITHIN,
            redelivered_within: None,
        }
    }

    /// Handles the events of one type. What is written and staged in the transaction commits with the mark that the message was received,
    /// or not at all. Do not commit it, and drop it before the handler ends, which happens by itself.
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

    /// Handles every message that no other handler is for, whatever its type, reading its payload as JSON.
    pub fn on_json<T, F, Fut, G>(mut self, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Tx<R::Tx>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        self.otherwise = Some(Arc::new(Typed { decode: json::<T>(), run: handler }));
        self
    }

    /// Handles every message that no other handler is for, whatever its type: the handler reads the payload itself.
    pub fn on_any<F, Fut, G>(mut self, handler: F) -> Self
    where
        F: Fn(Tx<R::Tx>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        self.otherwise = Some(Arc::new(Plain(handler)));
        self
    }

    /// What happens to a message that no handler is for. Otherwise it is parked.
    pub fn on_unknown(mut self, unknown: Unknown) -> Self {
        self.unknown = unknown;
        self
    }

    /// Gives a value to all handlers, to be had with [`Context::shared`]. One of each type.
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.put(value);
        self
    }

    /// Follows the clocks of those who send: what this clock says after a message was received comes after what the message says.
    /// Duplicates are not followed, since what they caused has been said already.
    pub fn clock(mut self, clock: Arc<Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Keeps parked messages as dead letters of this queue; `inbox.` and its own name unless said otherwise. No worker may work on it.
    pub fn parks_in(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Runs up to so many transactions at once, each on a connection of its own; 5 unless said otherwise.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Handles up to so many messages in one transaction, one after the other, when many wait; 100 unless said otherwise. When one of them
    /// fails, all are rolled back and each is run again, alone. With 1, each message has a transaction of its own.
    pub fn together(mut self, together: usize) -> Self {
        self.together = together;
        self
    }

    /// Holds up to so many messages at once, those that run included; 1,000 unless said otherwise.
    pub fn in_hand(mut self, in_hand: usize) -> Self {
        self.in_hand = in_hand;
        self
    }

    /// Stops a handler that takes longer, and counts a failure; 30 seconds unless said otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Parks a message, without running its handler, when it was delivered more often than this. Otherwise it is never parked because of
    /// that, and the broker's own limit is what ends it. Where the broker does not count, the inbox does.
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = Some(max_deliveries);
        self
    }

    /// Tries a failed message again here, before it is handed back; not at all unless said otherwise. The message stays in hand.
    pub fn retry_in_place(mut self, retry: RetryStrategy) -> Self {
        self.in_place = Some(retry);
        self
    }

    /// When a message that is handed back comes again, where the broker can delay it; where it cannot, it is kept in hand for that long,
    /// and at most for half a minute. By its deliveries, where those are known. A strategy that gives up parks.
    pub fn redeliver(mut self, retry: RetryStrategy) -> Self {
        self.again = retry;
        self
    }

    /// What is kept of an error with a parked message. Otherwise the name of its type.
    pub fn error_text(mut self, error_text: ErrorText) -> Self {
        self.error_text = error_text;
        self
    }

    /// The longest pause before it is tried again to receive after the connection was lost; 5 seconds unless said otherwise.
    pub fn restart_within(mut self, longest: Duration) -> Self {
        self.restart_within = longest;
        self
    }

    /// Keeps marks for so long, and removes older ones. Otherwise for as long as a message can come again. What is too short is refused at
    /// the start.
    pub fn keep_marks_for(mut self, keep: Duration) -> Self {
        self.keep_marks_for = Some(keep);
        self
    }

    /// For how long the sender may send a message again because it never heard that it had arrived; a day unless said otherwise.
    pub fn resent_within(mut self, longest: Duration) -> Self {
        self.resent_within = longest;
        self
    }

    /// For how long the broker may deliver a message again, where it cannot be asked or keeps messages for ever.
    pub fn redelivered_within(mut self, longest: Duration) -> Self {
        self.redelivered_within = Some(longest);
        self
    }

    /// Checks everything and makes the consumer.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does.
    pub fn build(self) -> Result<Consumer<R>, Invalid> {
        let name = ConsumerName::new(self.name.as_str())?;
        let queue = QueueName::new(self.queue.clone().unwrap_or_else(|| format!("inbox.{name}")))?;
        self.check(&name)?;
        let abilities = self.source.abilities();
        let traps = self.traps(&name, &queue);
        let mut typed: BTreeMap<&'static str, Handler<R::Tx>> = BTreeMap::new();
        for (event_type, handler) in self.handlers {
            if typed.insert(event_type, handler).is_some() {
                let rule = format!("{name} has two for events of the type {event_type}");
                return Err(Invalid::rule("handlers", rule));
            }
        }
        let handlers =
            Handlers { typed, otherwise: self.otherwise, unknown: self.unknown, timeout: self.timeout };
        let again: Arc<dyn Retry> = Arc::new(self.again);
        let replay = Arc::new(Replay {
            work: OnceLock::new(),
            judge: Judge { retry: Arc::new(RetryStrategy::default()), error_text: self.error_text.clone() },
            max_deliveries: Some(REPLAYED_AT_MOST),
        });
        let store = Arc::new(self.store.store());
        let wake: Arc<dyn Wake> = Arc::clone(&store) as _;
        let subscribed =
            || Subscription::new(queue.clone(), Arc::clone(&replay) as _).with_concurrency(self.concurrency);
        let carrier = Carrier::new(store as Arc<dyn Store>, Some(wake)).subscribe(subscribed())?;
        let work = Arc::new(Work {
            counts: Counts::new(&name),
            origin: format!("{} {}", self.source.kind(), self.source.origin()),
            subscription: Arc::new(subscribed()),
            carrier,
            name,
            queue: queue.clone(),
            source: self.source,
            abilities,
            store: self.store,
            handlers,
            shared: Arc::new(self.shared),
            trouble: Trouble::default(),
            traps,
            clock: self.clock,
            error_text: self.error_text,
            concurrency: self.concurrency,
            together: self.together,
            in_hand: self.in_hand,
            max_deliveries: self.max_deliveries,
            in_place: self.in_place.map(|retry| Arc::new(retry) as Arc<dyn Retry>),
            again,
            restart_within: self.restart_within,
            keep_marks_for: self.keep_marks_for,
            resent_within: self.resent_within,
            redelivered_within: self.redelivered_within,
        });
        replay.work.get_or_init(|| Arc::downgrade(&work));
        Ok(Consumer { work })
    }

    fn check(&self, name: &ConsumerName) -> Result<(), Invalid> {
        if self.handlers.is_empty() && self.otherwise.is_none() {
            let rule = format!("{name} has none: give it one with `on`, `on_json` or `on_any`");
            return Err(Invalid::rule("handlers", rule));
        }
        for (field, value) in [
            ("concurrency", self.concurrency),
            ("together", self.together),
            ("in_hand", self.in_hand),
            ("max_deliveries", self.max_deliveries.map_or(1, |max| max as usize)),
        ] {
            if value == 0 {
                return Err(Invalid::rule(field, "is 0; nothing would ever run: give at least 1"));
            }
        }
        for (field, value) in [("timeout", self.timeout), ("restart_within", self.restart_within)] {
            if value.is_zero() {
                return Err(Invalid::rule(field, "is zero: give some time"));
            }
        }
        self.in_place.as_ref().map_or(Ok(()), RetryStrategy::check)?;
        self.again.check()
    }

    fn traps(&self, name: &ConsumerName, queue: &QueueName) -> Vec<String> {
        let mut traps = Vec::new();
        let abilities = self.source.abilities();
        if let Some(max) = self.max_deliveries
            && !abilities.counts
        {
            traps.push(format!(
                "consumer {name}: {} does not count deliveries, so the inbox does, for messages to be parked after {max}: that is a \
                 statement more for each batch",
                self.source.kind()
            ));
        }
        if self.in_hand < self.concurrency {
            traps.push(format!(
                "consumer {name}: {} messages in hand are too few for {} at once: raise in_hand",
                self.in_hand, self.concurrency
            ));
        }
        if let Some(holds_for) = abilities.holds_for
            && holds_for < Duration::from_secs(1)
        {
            traps.push(format!(
                "consumer {name}: messages come again after {holds_for:?} unless they are extended several times a second; a short \
                 pause of the process is enough: let the broker wait longer"
            ));
        }
        if queue.as_str() == self.source.origin() {
            traps.push(format!(
                "consumer {name}: parks in {queue}, which has the name of what it reads; they are two queues"
            ));
        }
        traps
    }
}

/// A message that was replayed more often than this without an end may be what kills its process.
const REPLAYED_AT_MOST: u32 = 25;

impl<R: Receive> fmt::Debug for ConsumerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
