//! The relay of one database: prepared, then carrying.

use super::{
    opening::open,
    unit::{Pulse, Rested, Working},
};
use crate::{
    config::{Place, RelayPlan},
    opened::Opened,
    problem::{Code, Problem},
    transport,
};
use async_trait::async_trait;
use postrider::{
    Destination, Error, Relay, Route, Transport,
    relay::{RelayBuilder, To},
    worker::{ErrorText, Running},
};
use std::{path::Path, sync::Arc, time::Duration};

/// A database that says nothing for so long is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A transport has an answer to each message at its timeout; the relay waits so much longer for them.
const GRACE: Duration = Duration::from_secs(5);

/// Nobody takes so many from the store without having an answer for one.
const DELIVERIES: u32 = 25;

/// Everything is there that the plan needs, and nothing is claimed yet.
#[derive(Debug)]
pub(super) struct Prepared {
    opened: Opened,
    transports: Vec<Arc<dyn Transport>>,
    relay: Relay,
}

/// A relay at work.
#[derive(Debug)]
struct Carrying {
    prepared: Box<Prepared>,
    running: Running,
}

impl Prepared {
    /// Opens the database and makes the relay. `file` is where the plan stands.
    pub(super) async fn new(file: &Path, plan: &RelayPlan, migrate: bool) -> Result<Self, Problem> {
        let mut transports = Vec::new();
        for (name, place) in &plan.destinations {
            transports.push((transport::build(file, name, place)?, name, place));
        }
        let opened = open(&plan.database, migrate).await?;
        let mut builder = Relay::builder_on(opened.store(), Some(opened.wake()), plan.source.as_str());
        for (transport, name, place) in &transports {
            builder = builder.destination(destination(name, place, Arc::clone(transport)));
        }
        match routed(builder, plan).build() {
            Ok(relay) => {
                let transports = transports.into_iter().map(|(transport, ..)| transport).collect();
                Ok(Self { opened, transports, relay })
            }
            Err(error) => {
                opened.close().await;
                let line = plan.routes.first().map_or(1, |route| route.line.0);
                let what = format!("{}:{line}: {error}", file.display());
                Err(Problem::new(what, "change the routes of this database").coded(Code::Config))
            }
        }
    }

    fn begin(self: Box<Self>) -> Box<dyn Working> {
        Box::new(Carrying { running: self.relay.start(), prepared: self })
    }
}

#[async_trait]
impl Rested for Prepared {
    /// Declares its queues and begins. Nobody else may carry them in this process: their order may change.
    async fn start(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        match self.relay.declare(&*self.opened.schema()).await {
            Ok(()) => Ok(self.begin()),
            Err(error) => {
                let problem = match &error {
                    Error::Invalid(refused) => Problem::new(
                        format!("{}: {refused}", self.opened.database()),
                        "let the route say of its queue what holds already, or see to what is asked for",
                    )
                    .coded(Code::Config),
                    error => self.opened.problem(error),
                };
                Err((self, problem))
            }
        }
    }

    /// Begins with what was declared already.
    async fn resume(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        Ok(self.begin())
    }

    async fn close(self: Box<Self>) {
        for transport in &self.transports {
            transport.close().await;
        }
        self.opened.close().await;
    }
}

#[async_trait]
impl Working for Carrying {
    async fn ping(&mut self) -> Pulse {
        self.running.ping(PATIENCE).await.into()
    }

    async fn drain(self: Box<Self>, deadline: Duration) -> Box<dyn Rested> {
        let stopped = self.running.shutdown(deadline).await;
        let database = self.prepared.opened.database();
        let (delivered, is_clean) = (stopped.tally.delivered, stopped.is_clean);
        tracing::info!(name: "postrider.drained", %database, delivered, is_clean, "drained");
        self.prepared
    }
}

fn destination(name: &str, place: &Place, transport: Arc<dyn Transport>) -> Destination {
    let mut destination = Destination::shared(name, transport);
    if let Some(timeout) = place.duration("timeout") {
        // Whoever gives up first must be the one that knows which message it was.
        destination = destination.timeout(timeout.saturating_add(GRACE));
    }
    match place.number("max_per_second") {
        Some(most) => destination.rate(most, Duration::from_secs(1)),
        None => destination,
    }
}

fn routed(builder: RelayBuilder, plan: &RelayPlan) -> RelayBuilder {
    plan.routes.iter().fold(builder, |builder, section| {
        let in_hand = usize::try_from(section.concurrency.value).unwrap_or(usize::MAX);
        let mut route = Route::new(section.queue.as_str())
            .in_hand(in_hand)
            .retry(section.retry.strategy())
            .max_deliveries(section.retry.attempts().max(DELIVERIES));
        for way in &section.to {
            let to = To::new(way.destination.as_str(), way.address.as_str());
            let to = to.format(section.format.value);
            route = route.to_with(match &way.types {
                Some(types) => {
                    let types = types.value.clone();
                    to.only(move |message| types.iter().any(|wanted| wanted.takes(message)))
                }
                None => to,
            });
        }
        if section.keep_error_text.value {
            route = route.error_text(ErrorText::Full(Arc::new(str::to_owned)));
        }
        builder.route(match section.policy() {
            Some(policy) => route.policy(policy),
            None => route,
        })
    })
}
