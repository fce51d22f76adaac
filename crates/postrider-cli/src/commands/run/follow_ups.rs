//! The runner of one follow-up queue: it makes each call as a webhook until the call has ended in a known state.

use super::{
    component::{Health, PreparedComponent, RunningComponent, StartResult},
    open::open,
    pool::Pool,
    relay::PING_TIMEOUT,
};
use crate::{
    config::FollowUpPlan,
    open_database::{Kind, OpenDatabase},
    problem::Problem,
    resolver::{CONCURRENT_CALLS, Webhook},
};
use async_trait::async_trait;
use postrider::{Invalid, Running, SagaRunner, TxBackend, saga::SagaRunnerBuilder};
use std::{fmt, path::Path, time::Duration};

/// Connections for recording outcomes; a call in flight holds none.
const CONNECTIONS: u32 = 5;

/// Opens the database and builds the runner. `file` is the configuration file, for error messages.
pub(super) async fn prepare(
    file: &Path,
    plan: &FollowUpPlan,
    migrate: bool,
) -> Result<Box<dyn PreparedComponent>, Problem> {
    let resolvers = plan.resolvers.iter().map(|section| Webhook::new(file, &plan.source, section));
    let resolvers = resolvers.collect::<Result<Vec<_>, _>>()?;
    let open_database = open(&plan.database, migrate).await?;
    let pool = Pool::new(plan.database.database(), CONNECTIONS);
    let prepared: Result<Box<dyn PreparedComponent>, Invalid> = match (open_database.kind(), &pool) {
        (Kind::Sqlite(store), Pool::Sqlite(connections)) => {
            let transactions = store.transactions(connections.clone());
            runner(transactions, resolvers, plan)
                .map(|runner| PreparedFollowUps::boxed(plan, runner, open_database.clone(), pool.clone()))
        }
        (Kind::Postgres(store), Pool::Postgres(connections)) => {
            // The transaction that completes a follow-up has to see those that others have completed meanwhile.
            let transactions = store.transactions(connections.clone()).read_committed();
            runner(transactions, resolvers, plan)
                .map(|runner| PreparedFollowUps::boxed(plan, runner, open_database.clone(), pool.clone()))
        }
        _ => Err(Invalid::rule("database", "and its pool are of different kinds")),
    };
    match prepared {
        Ok(prepared) => Ok(prepared),
        Err(invalid) => {
            pool.close().await;
            open_database.close().await;
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
    let timeouts = plan.resolvers.iter().filter_map(|section| section.webhook.duration("timeout"));
    let timeout = timeouts.max().unwrap_or_default();
    // The webhook's own timeout expires first, so that it can report whether anything was sent.
    let mut builder = SagaRunner::builder(transactions)
        .queue(plan.queue.as_str())
        .concurrency(CONCURRENT_CALLS)
        .timeout(timeout + Duration::from_secs(5));
    if let Some(queue) = plan.resolvers.iter().find_map(|section| section.complete_to.as_ref()) {
        builder = builder.complete_to(queue.as_str());
    }
    resolvers.into_iter().fold(builder, SagaRunnerBuilder::resolver).build()
}

/// A runner whose database is open, and that does not claim yet.
struct PreparedFollowUps<S: TxBackend> {
    queue: String,
    runner: SagaRunner<S>,
    open_database: OpenDatabase,
    pool: Pool,
}

/// A runner that makes calls.
struct RunningFollowUps<S: TxBackend> {
    prepared: Box<PreparedFollowUps<S>>,
    running: Running,
}

impl<S: TxBackend> PreparedFollowUps<S> {
    fn boxed(
        plan: &FollowUpPlan,
        runner: SagaRunner<S>,
        open_database: OpenDatabase,
        pool: Pool,
    ) -> Box<dyn PreparedComponent> {
        Box::new(Self { queue: plan.queue.clone(), runner, open_database, pool })
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
                let problem = self.open_database.problem(&error);
                Err((self, problem))
            }
        }
    }

    async fn resume(self: Box<Self>) -> StartResult {
        Ok(self.run())
    }

    async fn close(self: Box<Self>) {
        self.pool.close().await;
        self.open_database.close().await;
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
