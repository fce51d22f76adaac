//! Which messages go where.

use super::{
    deliver::{Leg, Relaying},
    fan_out::{AnyOpen, FanOut},
    post::Post,
};
use crate::{
    carry::{Deliver, Gate, Subscription},
    judge::{ErrorText, Judge},
};
use postrider_core::{
    Format, Invalid, Message, MessageBuilder, Ordering, QueueName, QueuePolicy, RetryStrategy, Template,
    retry::Jitter,
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// One queue of a relay, and where its messages go.
///
/// ```
/// # use postrider_core::Format;
/// # use postrider_engine::relay::{Route, To};
/// let orders = Route::new("orders")
///     .to("billing", "orders.{type}")
///     .to_with(To::new("audit", "{queue}").format(Format::Structured).only(|message| message.tenant().is_some()));
/// ```
#[must_use = "a route does nothing until a relay has it"]
pub struct Route {
    pub(super) queue: String,
    legs: Vec<To>,
    in_hand: usize,
    weight: u32,
    lease_for: Duration,
    hold_for: Duration,
    retry: RetryStrategy,
    max_deliveries: Option<u32>,
    error_text: ErrorText,
    rate: Option<(u32, Duration)>,
    waits: Option<(Duration, Duration)>,
    pub(super) policy: Option<QueuePolicy>,
}

/// One destination of a route: the address there, and what is carried to it.
#[must_use = "it does nothing until a route has it"]
pub struct To {
    destination: String,
    address: String,
    format: Format,
    only: Option<Only>,
    change: Option<Change>,
}

pub(super) type Only = Arc<dyn Fn(&Message) -> bool + Send + Sync>;
pub(super) type Change = Arc<dyn Fn(&Message) -> MessageBuilder + Send + Sync>;

impl To {
    /// Goes to `address` at the destination of that name: an exchange and routing key, a subject, a topic, a stream or a URL,
    /// as a [`Template`].
    pub fn new(destination: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            destination: destination.into(),
            address: address.into(),
            format: Format::default(),
            only: None,
            change: None,
        }
    }

    /// Writes messages like this; as CloudEvents in binary mode unless said otherwise.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Carries only those messages; the others count as delivered here.
    pub fn only(mut self, only: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(only));
        self
    }

    /// Carries something else in their stead: fewer fields, another type, another payload. The identity stays. What the
    /// function answers with is checked like any message; one that breaks a rule becomes a dead letter.
    pub fn change(mut self, change: impl Fn(&Message) -> MessageBuilder + Send + Sync + 'static) -> Self {
        self.change = Some(Arc::new(change));
        self
    }

    fn open(&self, queue: &QueueName, posts: &BTreeMap<String, Arc<Post>>) -> Result<Leg, Invalid> {
        let Some(post) = posts.get(&self.destination) else {
            let known: Vec<_> = posts.keys().map(String::as_str).collect();
            let rule = format!(
                "{} is not there, though queue {queue} goes to it; give it with `destination`. There are: {}",
                self.destination,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
            return Err(Invalid::rule("destination", rule));
        };
        Ok(Leg {
            post: Arc::clone(post),
            queue: queue_of(queue.as_str(), &self.destination)?,
            address: Template::parse(self.address.as_str())?,
            format: self.format,
            only: self.only.clone(),
            change: self.change.clone(),
        })
    }
}

impl Route {
    /// Carries what waits in `queue`.
    pub fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            legs: Vec::new(),
            in_hand: 2_000,
            weight: 1,
            lease_for: Duration::from_secs(60),
            hold_for: Duration::from_secs(15 * 60),
            retry: RetryStrategy::default(),
            max_deliveries: Some(25),
            error_text: ErrorText::default(),
            rate: None,
            waits: None,
            policy: None,
        }
    }

    /// Goes to `address` at that destination.
    pub fn to(self, destination: impl Into<String>, address: impl Into<String>) -> Self {
        self.to_with(To::new(destination, address))
    }

    /// Also goes there. Each destination accepts or fails on its own: what one of them still owes waits in a queue of its own,
    /// named `queue>destination`, and is not sent to the others again.
    pub fn to_with(mut self, to: To) -> Self {
        self.legs.push(to);
        self
    }

    /// Has at most so many messages on their way; 2,000 unless said otherwise. As many again wait in memory for their turn: where messages
    /// are large, give less.
    pub fn in_hand(mut self, messages: usize) -> Self {
        self.in_hand = messages;
        self
    }

    /// Its share among the routes of one relay when there is more to do than can be done at once.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Leases messages for so long at a time, and renews that while they are under way; a minute unless said otherwise.
    pub fn lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// When messages that were refused are sent again, and when they are given up. A destination that is down costs no
    /// attempts.
    pub fn retry(mut self, retry: RetryStrategy) -> Self {
        self.retry = retry;
        self
    }

    /// Gives a message up, without sending it, when it was claimed more often than this; 25 unless said otherwise.
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = Some(max_deliveries);
        self
    }

    /// Never gives a message up because of how often it was claimed.
    pub fn without_max_deliveries(mut self) -> Self {
        self.max_deliveries = None;
        self
    }

    /// What is kept of an error with its message. Otherwise its kind.
    pub fn error_text(mut self, error_text: ErrorText) -> Self {
        self.error_text = error_text;
        self
    }

    /// Claims at most so many messages in so long. Each process counts for itself.
    pub fn rate(mut self, messages: u32, per: Duration) -> Self {
        self.rate = Some((messages, per));
        self
    }

    /// While there is nothing to do, looks again after at least and at most so long. Signals come besides.
    pub fn waits(mut self, shortest: Duration, longest: Duration) -> Self {
        self.waits = Some((shortest, longest));
        self
    }

    /// What holds for the queue in the store, for [`declare`](super::Relay::declare). A route to several destinations has to
    /// know when its queue is ordered by key.
    pub fn policy(mut self, policy: QueuePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The settings of a classic outbox relay: five attempts, after pauses that double from a second to five minutes with
    /// jitter, and leases of five minutes.
    pub fn classic(self) -> Self {
        let retry = RetryStrategy::exponential(Duration::from_secs(1), 2.0)
            .with_max_delay(Duration::from_secs(5 * 60))
            .with_jitter(Jitter::Equal)
            .with_max_attempts(5);
        self.retry(retry).lease_for(Duration::from_secs(5 * 60))
    }

    /// Settings that work, but seldom as meant.
    pub(super) fn traps(&self) -> Vec<String> {
        let queue = &self.queue;
        let mut traps = Vec::new();
        if let (Some(max_deliveries), Some(max_attempts)) = (self.max_deliveries, self.retry.max_attempts())
            && max_deliveries < max_attempts
        {
            traps.push(format!(
                "queue {queue}: messages are given up after {max_deliveries} deliveries, before their {max_attempts} attempts \
                 are used up: raise max_deliveries"
            ));
        }
        if self.policy.as_ref().is_some_and(|policy| !policy.dead_letters) {
            traps.push(format!("queue {queue}: dead letters are off; what is refused for good is deleted"));
        }
        traps
    }

    /// Its queues and what is declared about them: its own and, where it goes to several destinations, one for each.
    pub(super) fn declared(&self) -> Result<Vec<(QueueName, QueuePolicy)>, Invalid> {
        let Some(policy) = &self.policy else { return Ok(Vec::new()) };
        let mut declared = vec![(QueueName::new(self.queue.as_str())?, policy.clone())];
        if self.legs.len() > 1 {
            // What one destination has is not kept again for each.
            let policy = QueuePolicy { keep_for: None, ..policy.clone() };
            for to in &self.legs {
                declared.push((queue_of(&self.queue, &to.destination)?, policy.clone()));
            }
        }
        Ok(declared)
    }

    /// Makes of it what a carrier needs: a subscription for its queue and, where it goes to several destinations, one for each.
    pub(super) fn open(
        self,
        source: &Arc<str>,
        posts: &BTreeMap<String, Arc<Post>>,
    ) -> Result<Vec<Subscription>, Invalid> {
        let queue = QueueName::new(self.queue.as_str())?;
        let wrong = |field: &'static str, rule: String| Err(Invalid::rule(field, rule));
        if self.max_deliveries == Some(0) {
            let rule = format!("is 0 for queue {queue}; nothing would ever be sent: give at least 1");
            return wrong("max_deliveries", rule);
        }
        if self.in_hand == 0 {
            return wrong(
                "in_hand",
                format!("is 0 for queue {queue}; nothing would ever be sent: give at least 1"),
            );
        }
        self.retry.check()?;
        let is_ordered = self.policy.as_ref().is_some_and(|policy| policy.ordering != Ordering::Unordered);
        let mut legs = Vec::with_capacity(self.legs.len());
        for to in &self.legs {
            let leg = Arc::new(to.open(&queue, posts)?);
            if legs.iter().any(|other: &Arc<Leg>| other.queue == leg.queue) {
                return wrong("route", format!("queue {queue} goes to {} twice", to.destination));
            }
            legs.push(leg);
        }
        let to_one = |leg: &Arc<Leg>, is_ordered: Option<bool>| {
            let deliver = Relaying {
                leg: Arc::clone(leg),
                source: Arc::clone(source),
                judge: Judge { retry: Arc::new(self.retry.clone()), error_text: self.error_text.clone() },
                max_deliveries: self.max_deliveries,
                is_ordered,
            };
            (Arc::new(deliver) as Arc<dyn Deliver>, Arc::clone(&leg.post.breaker) as Arc<dyn Gate>)
        };
        match &legs[..] {
            [] => wrong("route", format!("queue {queue} goes nowhere: give it a destination with `to`")),
            [leg] => Ok(vec![self.subscription(queue, to_one(leg, None))]),
            legs => {
                let deliver = FanOut {
                    legs: legs.to_vec(),
                    source: Arc::clone(source),
                    max_deliveries: self.max_deliveries,
                    is_ordered,
                };
                let gate = AnyOpen(legs.iter().map(|leg| Arc::clone(&leg.post.breaker)).collect());
                let mut all = vec![self.subscription(queue, (Arc::new(deliver), Arc::new(gate)))];
                let each = legs.iter().map(|leg| (leg.queue.clone(), to_one(leg, Some(is_ordered))));
                all.extend(each.map(|(queue, delivering)| self.subscription(queue, delivering)));
                Ok(all)
            }
        }
    }

    fn subscription(
        &self,
        queue: QueueName,
        (deliver, gate): (Arc<dyn Deliver>, Arc<dyn Gate>),
    ) -> Subscription {
        let mut subscription = Subscription::new(queue, deliver)
            .with_concurrency(self.in_hand)
            .with_weight(self.weight)
            .with_lease_for(self.lease_for)
            .with_hold_for(self.hold_for)
            .with_gate(gate);
        if let Some((messages, per)) = self.rate {
            subscription = subscription.with_rate(messages, per);
        }
        if let Some((shortest, longest)) = self.waits {
            subscription = subscription.with_waits(shortest, longest);
        }
        subscription
    }
}

/// Where the messages of `queue` wait that one of its destinations has not accepted yet.
fn queue_of(queue: &str, destination: &str) -> Result<QueueName, Invalid> {
    QueueName::new(format!("{queue}>{destination}"))
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("queue", &self.queue).field("to", &self.legs).finish_non_exhaustive()
    }
}

impl fmt::Debug for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("To")
            .field("destination", &self.destination)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
