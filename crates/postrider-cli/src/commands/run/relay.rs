//! The relay of one database, with its routes and destinations.

use super::{
    component::{Health, PreparedComponent, RunningComponent, StartResult},
    shared_database::{SharedDatabase, SharedDatabases},
};
use crate::{
    config::{EndpointSection, RelayPlan},
    problem::{Code, Problem},
    transport,
};
use async_trait::async_trait;
use postrider::{
    Destination, Error, Relay, Route, Running, Transport,
    relay::{RelayBuilder, RouteTarget},
    worker::ErrorText,
};
use std::{path::Path, sync::Arc, time::Duration};

/// A database that does not reply to a ping within this time is unavailable.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A transport returns a result for each message by its own timeout; the relay's timeout is this much longer.
const GRACE: Duration = Duration::from_secs(5);

/// A message that was claimed this often without being settled becomes a dead letter.
const MAX_DELIVERIES: u32 = 25;

/// A relay whose database and transports are open, and that does not claim yet.
#[derive(Debug)]
pub(super) struct PreparedRelay {
    database: Arc<SharedDatabase>,
    transports: Vec<Arc<dyn Transport>>,
    relay: Relay,
}

/// A relay that claims and delivers.
#[derive(Debug)]
struct RunningRelay {
    prepared: Box<PreparedRelay>,
    running: Running,
}

impl PreparedRelay {
    /// Opens the database and builds the relay. `file` is the configuration file, for error messages.
    pub(super) async fn new(
        file: &Path,
        plan: &RelayPlan,
        databases: &SharedDatabases,
        migrate: bool,
    ) -> Result<Self, Problem> {
        let mut transports = Vec::new();
        for (name, section) in &plan.destinations {
            transports.push((transport::build(file, name, section)?, name, section));
        }
        let database = databases.open(&plan.database, migrate).await?;
        let mut builder = Relay::builder_on(database.opened().backend(), plan.source.as_str());
        for (transport, name, section) in &transports {
            builder = builder.destination(destination(name, section, Arc::clone(transport)));
        }
        match with_routes(builder, plan).build() {
            Ok(relay) => {
                let transports = transports.into_iter().map(|(transport, ..)| transport).collect();
                Ok(Self { database, transports, relay })
            }
            Err(error) => {
                database.release().await;
                let line = plan.routes.first().map_or(1, |route| route.line.0);
                let what = format!("{}:{line}: {error}", file.display());
                Err(Problem::new(what, "fix the [[routes]] of this database").with_code(Code::Config))
            }
        }
    }

    fn run(self: Box<Self>) -> Box<dyn RunningComponent> {
        Box::new(RunningRelay { running: self.relay.start(), prepared: self })
    }
}

#[async_trait]
impl PreparedComponent for PreparedRelay {
    /// Declares the queue policies and starts. No other relay of this process may work on these queues: their ordering may change.
    async fn start(self: Box<Self>) -> StartResult {
        match self.relay.declare().await {
            Ok(()) => Ok(self.run()),
            Err(error) => {
                let problem = match &error {
                    Error::Invalid(violation) => Problem::new(
                        format!("{}: {violation}", self.database.opened().database()),
                        "set ordered, keep_for, dead_letters and fair_by_tenant of the route to the queue's present policy, or drain the queue first",
                    )
                    .with_code(Code::Config),
                    error => self.database.opened().problem(error),
                };
                Err((self, problem))
            }
        }
    }

    /// Starts with the policies that are declared already.
    async fn resume(self: Box<Self>) -> StartResult {
        Ok(self.run())
    }

    async fn close(self: Box<Self>) {
        for transport in &self.transports {
            transport.close().await;
        }
        self.database.release().await;
    }
}

#[async_trait]
impl RunningComponent for RunningRelay {
    async fn health(&mut self) -> Health {
        self.running.ping(PING_TIMEOUT).await.into()
    }

    async fn drain(self: Box<Self>, deadline: Duration) -> Box<dyn PreparedComponent> {
        let stopped = self.running.stop(deadline).await;
        let database = self.prepared.database.opened().database();
        let (delivered, clean) = (stopped.report.delivered, stopped.clean);
        tracing::info!(name: "postrider.drained", %database, delivered, clean, "relay drained");
        self.prepared
    }
}

fn destination(name: &str, section: &EndpointSection, transport: Arc<dyn Transport>) -> Destination {
    let mut destination = Destination::shared(name, transport);
    if let Some(timeout) = section.duration("request_timeout") {
        // The transport must time out first: it knows which message failed.
        destination = destination.timeout(timeout.saturating_add(GRACE));
    }
    match section.rate("rate_limit") {
        Some(rate) => destination.rate_limit(rate.messages, rate.per),
        None => destination,
    }
}

fn with_routes(builder: RelayBuilder, plan: &RelayPlan) -> RelayBuilder {
    plan.routes.iter().fold(builder, |builder, section| {
        let mut route = Route::new(section.queue.as_str())
            .retry(section.retry())
            .max_deliveries(section.max_attempts().max(MAX_DELIVERIES));
        if let Some(concurrency) = section.number("concurrency") {
            route = route.concurrency(usize::try_from(concurrency).unwrap_or(usize::MAX));
        }
        for target in &section.to {
            let to = RouteTarget::new(target.destination.as_str(), target.address.as_str());
            let to = to.format(section.format());
            route = route.to_with(match &target.types {
                Some(types) => {
                    let types = types.clone();
                    to.filter(move |message| types.iter().any(|pattern| pattern.takes(message)))
                }
                None => to,
            });
        }
        if section.flag("keep_error_text") {
            route = route.error_text(ErrorText::Full(Arc::new(str::to_owned)));
        }
        builder.route(match section.policy() {
            Some(policy) => route.policy(policy),
            None => route,
        })
    })
}
