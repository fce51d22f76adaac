//! The relay: publishes messages on the shared loop.
//!
//! A [`Route`] says which queue goes to which [`Destination`]. Between claim and settle a message is written for the wire, handed
//! in at the destination's post office, sent with others, and answered for by itself. It is settled as done only when the other side
//! said that it has it.
//!
//! | answer | what follows |
//! |---|---|
//! | accepted | done |
//! | refused for now, or nobody knows | sent again under the same id, as the route's retry strategy says |
//! | refused for good, too large, no address, unreadable | a dead letter at once |
//! | nothing gets through | handed back uncounted; nothing is claimed for that destination until a single message got through |
//! | (an operator has paused the destination) | the same, until it is resumed |
//!
//! A route may go to several destinations: each of them accepts or fails on its own (`fan_out.rs`).
//!
//! On a queue ordered by key, the next message of a key is sent when the one before was accepted, and a key halts at its first
//! message that was not.

mod breaker;
mod deliver;
mod destination;
mod fan_out;
mod pauses;
mod post;
mod route;

pub use destination::Destination;
pub use route::{Route, To};

use crate::{
    carry::{Carrier, Running, Stopped, Tally},
    set_up::SetUp,
};
use pauses::Pauses;
use postrider_core::{Error, Invalid, Store, cloudevents::check_source, schema::Schema, wake::Wake};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Claims messages, publishes them and settles what was accepted.
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
/// let report = relay.run_once().await?; // or `start`, or `run_until_signal`
/// assert_eq!((report.claimed, report.delivered), (1, 1));
/// assert_eq!(broker.published()[0].destination, "orders.order.placed");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Relay {
    carrier: Carrier,
    set_up: SetUp,
}

/// Collects what a relay needs; [`build`](Self::build) checks it all.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    wake: Option<Arc<dyn Wake>>,
    source: String,
    destinations: Vec<Destination>,
    routes: Vec<Route>,
    flushing: Option<(usize, Duration)>,
}

/// What one run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Claimed.
    pub claimed: u64,
    /// Accepted by their destination.
    pub delivered: u64,
    /// To be sent again.
    pub retried: u64,
    /// Dead letters.
    pub dead: u64,
    /// Of those claimed: had been in the hands of somebody whose lease lapsed, then or earlier.
    pub reclaimed: u64,
    /// Handed back, because nothing gets through to their destination or because the relay was stopped.
    pub handed_back: u64,
}

impl Relay {
    /// Begins a relay of the messages in `store`, sent in the name of `source`: a URI reference of the application, such as
    /// `/shop`, that CloudEvents carry along.
    pub fn builder<S: Store + Wake>(store: S, source: impl Into<String>) -> RelayBuilder {
        let store = Arc::new(store);
        let wake: Arc<dyn Wake> = Arc::clone(&store) as _;
        Self::builder_on(store, Some(wake), source)
    }

    /// Begins a relay on a store that is shared already. Without a `wake` it polls.
    pub fn builder_on(
        store: Arc<dyn Store>,
        wake: Option<Arc<dyn Wake>>,
        source: impl Into<String>,
    ) -> RelayBuilder {
        RelayBuilder {
            store,
            wake,
            source: source.into(),
            destinations: Vec::new(),
            routes: Vec::new(),
            flushing: None,
        }
    }

    /// Settings that work, but seldom as meant. They are also logged when the relay starts.
    pub fn traps(&self) -> &[String] {
        &self.set_up.traps
    }

    /// Declares the policies of its queues in the store. Call it once after migrating.
    ///
    /// # Errors
    /// When the store fails, or refuses a policy.
    pub async fn declare(&self, schema: &dyn Schema) -> Result<(), Error> {
        self.set_up.declare(schema).await
    }

    /// Starts, and goes on until it is stopped. Call it within a runtime of tokio; a stopped relay can be started again.
    pub fn start(&self) -> Running {
        self.set_up.tell_traps();
        self.carrier.start()
    }

    /// Sends what is due now, and stops when nothing is left that could be sent. Each message is tried once, unless its retry
    /// comes due meanwhile; what goes to a destination that is down is left waiting. For jobs that are started by a clock.
    ///
    /// # Errors
    /// When the store fails. What was in hand was settled or handed back.
    pub async fn run_once(&self) -> Result<Report, Error> {
        self.carrier.run_until_idle().await.map(Report::from)
    }

    /// Starts, and stops on the first SIGINT or SIGTERM within `deadline`. On the second it ends at once: leases lapse, and
    /// nothing is lost.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub async fn run_until_signal(&self, deadline: Duration) -> std::io::Result<Stopped> {
        self.set_up.tell_traps();
        self.carrier.run_until_signal(deadline).await
    }
}

impl From<Tally> for Report {
    fn from(tally: Tally) -> Self {
        Self {
            claimed: tally.fetched,
            delivered: tally.delivered,
            retried: tally.retried,
            dead: tally.dead,
            reclaimed: tally.reclaimed,
            handed_back: tally.released + tally.handed_back,
        }
    }
}

impl RelayBuilder {
    /// Can send there. Routes name it.
    pub fn destination(mut self, destination: Destination) -> Self {
        self.destinations.push(destination);
        self
    }

    /// Also carries this queue.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Settles up to `size` messages together, and lets none wait longer than `age` for others; 500 and 5 ms unless said
    /// otherwise.
    pub fn settle_together(mut self, size: usize, age: Duration) -> Self {
        self.flushing = Some((size, age));
        self
    }

    /// Only polls: for databases behind a pooler that breaks LISTEN, and for producers that never signal.
    pub fn without_signals(mut self) -> Self {
        self.wake = None;
        self
    }

    /// Checks everything and makes the relay.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does.
    pub fn build(self) -> Result<Relay, Invalid> {
        check_source(&self.source)?;
        if self.routes.is_empty() {
            return Err(Invalid::rule("routes", "a relay needs at least one: give it with `route`"));
        }
        let pauses =
            Arc::new(Pauses::new(self.destinations.iter().map(|destination| destination.name.clone())));
        let mut posts = BTreeMap::new();
        for destination in self.destinations {
            let name = destination.name.clone();
            if posts.insert(name.clone(), destination.open(&pauses)?).is_some() {
                let rule = format!("{name} is there twice; give each a name of its own");
                return Err(Invalid::rule("destination", rule));
            }
        }
        let mut carrier = Carrier::new(self.store, self.wake);
        if let Some((size, age)) = self.flushing {
            carrier = carrier.with_flushing(size, age);
        }
        let source: Arc<str> = self.source.into();
        let mut set_up = SetUp::default();
        for route in self.routes {
            set_up.traps.extend(route.traps());
            set_up.policies.extend(route.declared()?);
            for subscription in route.open(&source, &posts)? {
                carrier = carrier.subscribe(subscription)?;
            }
        }
        Ok(Relay { carrier, set_up })
    }
}
