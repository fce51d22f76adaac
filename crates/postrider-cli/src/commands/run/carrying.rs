//! The relay of one database: prepared, then carrying.

use crate::{config::Plan, database::Database, opened::Opened, problem::Problem, transport};
use postrider::{
    Destination, Error, Relay, RetryStrategy, Route, Transport,
    relay::{RelayBuilder, To},
    worker::Running,
};
use std::{path::Path, sync::Arc, time::Duration};

/// Nobody takes so many from the store without having an answer for one.
const DELIVERIES: u32 = 25;

/// Everything is there that the plan needs, and nothing is claimed yet.
#[derive(Debug)]
pub(super) struct Prepared {
    plan: Plan,
    opened: Opened,
    transports: Vec<Arc<dyn Transport>>,
    relay: Relay,
}

/// A relay at work.
#[derive(Debug)]
pub(super) struct Carrying {
    prepared: Prepared,
    pub(super) running: Running,
}

impl Prepared {
    /// Opens the database and makes the relay. `file` is where the plan stands.
    pub(super) async fn new(file: &Path, plan: Plan, migrate: bool) -> Result<Self, Problem> {
        let mut transports = Vec::new();
        for (name, section) in &plan.destinations {
            transports.push((name.clone(), transport::build(file, name, section)?));
        }
        let opened = open(&plan, migrate).await?;
        let mut builder = Relay::builder_on(opened.store(), Some(opened.wake()), plan.source.as_str());
        for (name, transport) in &transports {
            builder = builder.destination(Destination::shared(name.as_str(), Arc::clone(transport)));
        }
        match routed(builder, &plan).build() {
            Ok(relay) => {
                let transports = transports.into_iter().map(|(_, transport)| transport).collect();
                Ok(Self { plan, opened, transports, relay })
            }
            Err(error) => {
                opened.close().await;
                let line = plan.routes.first().map_or(1, |route| route.line);
                let what = format!("{}:{line}: {error}", file.display());
                Err(Problem::new(what, "change the routes of this database"))
            }
        }
    }

    /// Declares its queues and begins. Call it when nobody else carries them in this process: their order may change.
    pub(super) async fn start(self) -> Result<Carrying, (Box<Self>, Problem)> {
        match self.relay.declare(&*self.opened.schema()).await {
            Ok(()) => Ok(self.resume()),
            Err(error) => {
                let problem = match &error {
                    Error::Invalid(refused) => Problem::new(
                        format!("{}: {refused}", self.opened.database()),
                        "let the route say of its queue what holds already, or see to what is asked for",
                    ),
                    error => self.opened.problem(error),
                };
                Err((Box::new(self), problem))
            }
        }
    }

    /// Begins with what was declared already.
    pub(super) fn resume(self) -> Carrying {
        Carrying { running: self.relay.start(), prepared: self }
    }

    pub(super) async fn close(self) {
        for transport in &self.transports {
            transport.close().await;
        }
        self.opened.close().await;
    }
}

impl Carrying {
    pub(super) fn plan(&self) -> &Plan {
        &self.prepared.plan
    }

    /// Lets what is on its way arrive, but no longer than this.
    pub(super) async fn drain(self, deadline: Duration) -> Prepared {
        let stopped = self.running.shutdown(deadline).await;
        let database = self.prepared.opened.database();
        let (delivered, is_clean) = (stopped.tally.delivered, stopped.is_clean);
        tracing::info!(name: "postrider.drained", %database, delivered, is_clean, "drained");
        self.prepared
    }
}

async fn open(plan: &Plan, migrate: bool) -> Result<Opened, Problem> {
    let database = plan.database.database();
    let opened = match (database, migrate) {
        (Database::Postgres { .. }, _) => Opened::existing(database).await?,
        (Database::File(_), true) => Opened::open(database).await.map_err(|problem| {
            problem.helped_by("give a url whose folder is there, and that this user may write to")
        })?,
        (Database::File(_), false) => Opened::existing(database).await.map_err(|problem| {
            problem.helped_by(
                "give the url of a database that is there, or let it be made: postrider run --migrate",
            )
        })?,
    };
    let schema = opened.schema();
    let ready = async {
        if migrate {
            schema.migrate().await?;
        }
        schema.validate().await
    };
    let problem = match ready.await {
        Ok(drifts) => match &drifts[..] {
            [] => return Ok(opened),
            [first, rest @ ..] => {
                let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
                let what = format!("{database}: its tables are not those of this version: {first}{more}");
                Problem::new(what, "make and update them: postrider run --migrate")
            }
        },
        Err(error) => opened.problem(&error),
    };
    opened.close().await;
    Err(problem)
}

fn routed(builder: RelayBuilder, plan: &Plan) -> RelayBuilder {
    plan.routes.iter().fold(builder, |builder, section| {
        let retry = match section.max_attempts.value {
            Some(attempts) => RetryStrategy::default().with_max_attempts(attempts),
            None => RetryStrategy::default(),
        };
        let in_hand = usize::try_from(section.concurrency.value).unwrap_or(usize::MAX);
        let mut route = Route::new(section.queue.as_str())
            .in_hand(in_hand)
            .retry(retry)
            .max_deliveries(section.max_attempts.unwrap_or_default().max(DELIVERIES));
        for to in &section.to {
            let to = To::new(to.destination.as_str(), to.address.as_str()).format(section.format.value);
            route = route.to_with(to);
        }
        builder.route(match section.policy() {
            Some(policy) => route.policy(policy),
            None => route,
        })
    })
}
