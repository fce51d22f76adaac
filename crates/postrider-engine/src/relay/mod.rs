//! The relay: publishes messages, on the shared delivery loop.
//!
//! A [`Route`] maps a queue to one or more [`Destination`]s. Between claim and settle a message is encoded, submitted to the
//! destination's batcher, and published in a batch; each message has its own publish result. It is settled as done only when
//! the destination confirmed that it has it.
//!
//! | publish result | consequence |
//! |---|---|
//! | accepted | done |
//! | retryable error, or outcome unknown | sent again under the same id, by the route's retry strategy |
//! | rejected permanently, too large, no address, undecodable | dead-lettered at once |
//! | destination unavailable | released, no attempt counted; the circuit breaker opens: nothing is claimed for that destination until a probe succeeds |
//! | address unavailable | the same if no other address of the destination accepts messages (`address_health.rs`); otherwise sent again, by the route's retry strategy |
//! | (an operator has paused the destination) | the same, until it is resumed |
//!
//! A route may have several destinations: each of them accepts or fails on its own (`fan_out.rs`).
//!
//! On a queue ordered by key, the next message of a key is sent when the one before was accepted, and a key stops at its first
//! message that was not.

mod address_health;
mod batcher;
mod circuit_breaker;
mod deliver;
mod destination;
mod drain_gate;
mod fan_out;
mod operator_pauses;
mod route;
mod unrouted;

pub use destination::Destination;
pub use route::{Route, RouteTarget};

use crate::{
    delivery_loop::DeliveryEngine,
    pruner::{PRUNE_INTERVAL, check_prune_interval},
    runner::{Report, Running, Stopped},
    setup::Setup,
};
use operator_pauses::OperatorPauses;
use postrider_core::{Backend, Error, Invalid, QueueName, cloudevents::check_source, inspect::CappedCount};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use unrouted::{unrouted_queues, warn_of_unrouted_queues};

/// Claims messages, publishes them and settles the accepted ones.
///
/// ```
/// # use postrider_core::{Message, OutboxExt};
/// # use postrider_engine::relay::{Destination, Relay, Route};
/// # use postrider_stores::memory::MemoryStore;
/// # use postrider_transports::memory::MemoryTransport;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let mut tx = store.begin();
/// store.stage(&mut tx, Message::builder("orders").event_type("order.placed").json(&17)).await?;
/// tx.commit();
///
/// let broker = MemoryTransport::new();
/// let relay = Relay::builder(store, "/shop")
///     .destination(Destination::new("billing", broker.clone()))
///     .route(Route::new("orders").to("billing", "orders.{type}"))
///     .build()?;
/// let report = relay.run_until_idle().await?; // or `start`, or `run_until_signal`
/// assert_eq!((report.claimed, report.delivered), (1, 1));
/// assert_eq!(broker.published()[0].destination, "orders.order.placed");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Relay {
    backend: Arc<dyn Backend>,
    engine: DeliveryEngine,
    /// The queues that its routes deliver.
    routed: BTreeSet<QueueName>,
    setup: Setup,
}

/// Builder of a [`Relay`]; [`build`](Self::build) checks the settings.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RelayBuilder {
    backend: Arc<dyn Backend>,
    has_notifications: bool,
    source: String,
    destinations: Vec<Destination>,
    routes: Vec<Route>,
    settle_batch: Option<(usize, Duration)>,
    prune_interval: Option<Duration>,
}

impl Relay {
    /// Starts building a relay of the messages in a store. `source` is the CloudEvents `source`: a URI reference of the
    /// application, such as `/shop`.
    pub fn builder(backend: impl Backend, source: impl Into<String>) -> RelayBuilder {
        Self::builder_on(Arc::new(backend), source)
    }

    /// Starts building a relay on a backend that is already shared.
    pub fn builder_on(backend: Arc<dyn Backend>, source: impl Into<String>) -> RelayBuilder {
        RelayBuilder {
            backend,
            has_notifications: true,
            source: source.into(),
            destinations: Vec::new(),
            routes: Vec::new(),
            settle_batch: None,
            prune_interval: Some(PRUNE_INTERVAL),
        }
    }

    /// Configuration warnings: valid settings that are probably a mistake. They are also logged when the relay starts.
    pub fn warnings(&self) -> &[String] {
        &self.setup.warnings
    }

    /// Declares the policies of its queues in the store, and logs a warning for each of the
    /// [unrouted queues](Self::unrouted_queues). Call it once after migrating, and after a change of the routes.
    ///
    /// # Errors
    /// When the store fails, or rejects a policy.
    pub async fn declare(&self) -> Result<(), Error> {
        self.setup.declare(&*self.backend).await?;
        warn_of_unrouted_queues(&*self.backend, &self.routed).await;
        Ok(())
    }

    /// The per-destination queues, such as `orders>billing`, that hold messages and belong to no route of this relay, with the
    /// number of their messages. That happens when a destination is renamed, or removed from a route while it was behind. Unless
    /// another relay has a route for them, nothing delivers these messages.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn unrouted_queues(&self) -> Result<BTreeMap<QueueName, CappedCount>, Error> {
        unrouted_queues(&*self.backend, &self.routed).await
    }

    /// Starts the relay. It runs until it is stopped. Call it within a tokio runtime; a stopped relay can be started again.
    pub fn start(&self) -> Running {
        self.setup.log_warnings();
        self.engine.start()
    }

    /// Publishes all messages that are due now, and stops when none is left that can be sent. Each message is attempted
    /// once, unless its retry comes due meanwhile; messages of an unavailable destination stay pending. For scheduled jobs.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_until_idle(&self) -> Result<Report, Error> {
        self.engine.run_until_idle().await
    }

    /// Publishes one batch of each queue: as many messages as one claim returns, within rate limits. Messages
    /// of an unavailable destination stay pending. For scheduled jobs: repeat it until [`Report::claimed`] is 0.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_batch(&self) -> Result<Report, Error> {
        self.engine.run_batch().await
    }

    /// Starts the relay, and stops it gracefully on the first SIGINT or SIGTERM, within `drain_timeout`. The second signal
    /// ends it at once: leases expire, and no message is lost.
    ///
    /// # Errors
    /// When no signal handler can be installed.
    pub async fn run_until_signal(&self, drain_timeout: Duration) -> std::io::Result<Stopped> {
        self.setup.log_warnings();
        self.engine.run_until_signal(drain_timeout).await
    }
}

impl RelayBuilder {
    /// Adds a destination, to which routes refer by name.
    pub fn destination(mut self, destination: Destination) -> Self {
        self.destinations.push(destination);
        self
    }

    /// Adds a route: also relays the messages of its queue.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Settles up to `size` messages in one batch; a finished message waits at most `age` for others. Default: 500 and 5
    /// ms.
    pub fn settle_batch(mut self, size: usize, age: Duration) -> Self {
        self.settle_batch = Some((size, age));
        self
    }

    /// Prunes delivered messages past their retention about this often while the relay runs, in small steps; `None`: never, if
    /// `postrider gc` does it. Default: every ten minutes.
    pub fn prune_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.prune_interval = interval.into();
        self
    }

    /// Polls only: for databases behind a pooler that breaks LISTEN, and for producers that never notify.
    pub fn without_notifications(mut self) -> Self {
        self.has_notifications = false;
        self
    }

    /// Checks the settings and builds the relay.
    ///
    /// # Errors
    /// Names the first invalid setting and the valid values.
    pub fn build(self) -> Result<Relay, Invalid> {
        check_source(&self.source)?;
        if self.routes.is_empty() {
            return Err(Invalid::rule("routes", "a relay needs at least one: add it with `route`"));
        }
        let operator_pauses = Arc::new(OperatorPauses::new(
            self.destinations.iter().map(|destination| destination.name.clone()),
        ));
        let mut batchers = BTreeMap::new();
        for destination in self.destinations {
            let name = destination.name.clone();
            if batchers.insert(name.clone(), destination.open(&operator_pauses)?).is_some() {
                let rule = format!("{name} is given twice: give each destination a name of its own");
                return Err(Invalid::rule("destination", rule));
            }
        }
        check_prune_interval(self.prune_interval)?;
        let mut engine = DeliveryEngine::new(&self.backend).with_prune_interval(self.prune_interval);
        if !self.has_notifications {
            engine = engine.without_notifications();
        }
        if let Some((size, age)) = self.settle_batch {
            engine = engine.with_settle_batch(size, age);
        }
        let source: Arc<str> = self.source.into();
        let (mut setup, mut routed) = (Setup::default(), BTreeSet::new());
        for route in self.routes {
            setup.warnings.extend(route.warnings());
            setup.policies.extend(route.declared()?);
            routed.extend(route.queues()?);
            for subscription in route.open(&source, &batchers, &self.backend)? {
                engine = engine.subscribe(subscription)?;
            }
        }
        Ok(Relay { backend: self.backend, engine, routed, setup })
    }
}
