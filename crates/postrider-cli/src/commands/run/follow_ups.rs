//! The runner of one follow-up queue: it makes each call as a webhook until the call has ended in a known state. A call in flight holds
//! no connection.

use super::{
    component::{Health, PreparedComponent, RunningComponent, StartResult},
    relay::PING_TIMEOUT,
    shared_database::{SharedDatabase, SharedDatabases, Transactions},
};
use crate::{
    config::FollowUpPlan,
    problem::Problem,
    resolver::{CONCURRENT_CALLS, Webhook},
};
use async_trait::async_trait;
use postrider::{Invalid, Running, SagaRunner, TxBackend, saga::SagaRunnerBuilder};
use std::{fmt, path::Path, sync::Arc, time::Duration};

/// Opens the database and builds the runner. `file` is the configuration file, for error messages.
pub(super) async fn prepare(
    file: &Path,
    plan: &FollowUpPlan,
    databases: &SharedDatabases,
    migrate: bool,
) -> Result<Box<dyn PreparedComponent>, Problem> {
    let resolvers = plan.resolvers.iter().map(|section| Webhook::new(file, &plan.source, section));
    let resolvers = resolvers.collect::<Result<Vec<_>, _>>()?;
    let database = databases.open(&plan.database, migrate).await?;
    let prepared = match database.transactions() {
        Transactions::Sqlite(transactions, _) => {
            PreparedFollowUps::boxed(plan, transactions.clone(), resolvers, &database)
        }
        // The transaction that completes a follow-up has to see those that others have completed meanwhile.
        Transactions::Postgres(transactions, _) => {
            PreparedFollowUps::boxed(plan, transactions.clone().read_committed(), resolvers, &database)
        }
    };
    match prepared {
        Ok(prepared) => Ok(prepared),
        Err(invalid) => {
            database.release().await;
            let line = plan.resolvers.first().map_or(1, |section| section.line.0);
            let what = format!("{}:{line}: {invalid}", file.display());
            Err(Problem::new(what, "fix the [[follow_ups]] of this queue"))
        }
    }
}

fn runner<S: TxBackend>(
    transactions: S,
    resolvers: Vec<Webhook>,
    plan: &FollowUpPlan,
) -> Result<SagaRunner<S>, Invalid> {
    let timeouts = plan.resolvers.iter().filter_map(|section| section.duration("request_timeout"));
    let timeout = timeouts.max().unwrap_or_default();
    // The webhook's own timeout expires first, so that it can report whether anything was sent.
    let mut builder = SagaRunner::builder(transactions)
        .queue(plan.queue.as_str())
        .concurrency(CONCURRENT_CALLS)
        .timeout(timeout + Duration::from_secs(5));
    if let Some(queue) = plan.resolvers.iter().find_map(|section| section.string("complete_to")) {
        builder = builder.complete_to(queue);
    }
    resolvers.into_iter().fold(builder, SagaRunnerBuilder::resolver).build()
}

/// A runner whose database is open, and that does not claim yet.
struct PreparedFollowUps<S: TxBackend> {
    queue: String,
    runner: SagaRunner<S>,
    database: Arc<SharedDatabase>,
}

/// A runner that makes calls.
struct RunningFollowUps<S: TxBackend> {
    prepared: Box<PreparedFollowUps<S>>,
    running: Running,
}

impl<S: TxBackend> PreparedFollowUps<S> {
    fn boxed(
        plan: &FollowUpPlan,
        transactions: S,
        resolvers: Vec<Webhook>,
        database: &Arc<SharedDatabase>,
    ) -> Result<Box<dyn PreparedComponent>, Invalid> {
        let runner = runner(transactions, resolvers, plan)?;
        Ok(Box::new(Self { queue: plan.queue.clone(), runner, database: Arc::clone(database) }))
    }

    fn run(self: Box<Self>) -> Box<dyn RunningComponent> {
        Box::new(RunningFollowUps { running: self.runner.start(), prepared: self })
    }
}

#[async_trait]
impl<S: TxBackend> PreparedComponent for PreparedFollowUps<S> {
    async fn start(self: Box<Self>) -> StartResult {
        match self.runner.declare().await {
            Ok(()) => Ok(self.run()),
            Err(error) => {
                let problem = self.database.opened().problem(&error);
                Err((self, problem))
            }
        }
    }

    async fn resume(self: Box<Self>) -> StartResult {
        Ok(self.run())
    }

    async fn close(self: Box<Self>) {
        self.database.release().await;
    }
}

#[async_trait]
impl<S: TxBackend> RunningComponent for RunningFollowUps<S> {
    async fn health(&mut self) -> Health {
        self.running.ping(PING_TIMEOUT).await.into()
    }

    async fn drain(self: Box<Self>, deadline: Duration) -> Box<dyn PreparedComponent> {
        let stopped = self.running.stop(deadline).await;
        let (queue, delivered, clean) = (&self.prepared.queue, stopped.report.delivered, stopped.clean);
        tracing::info!(name: "postrider.drained", queue, delivered, clean, "follow-up runner drained");
        self.prepared
    }
}

impl<S: TxBackend> fmt::Debug for RunningFollowUps<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningFollowUps").field("prepared", &self.prepared).finish_non_exhaustive()
    }
}

impl<S: TxBackend> fmt::Debug for PreparedFollowUps<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedFollowUps").field("queue", &self.queue).finish_non_exhaustive()
    }
}
