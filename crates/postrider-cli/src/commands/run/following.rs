//! The runner of one queue of follow-ups: each is called for as a webhook, until it has ended in a known state.

use super::{
    carrying::PATIENCE,
    opening::open,
    pool::Pool,
    unit::{Pulse, Rested, Working},
};
use crate::{
    config::FollowUpPlan,
    opened::{Kind, Opened},
    problem::Problem,
    resolver::{AT_ONCE, Webhook},
};
use async_trait::async_trait;
use postrider::{Follow, Invalid, SagaRunner, saga::SagaRunnerBuilder, worker::Running};
use std::{fmt, path::Path, time::Duration};

/// Enough for what is written down at once; calls hold no connection.
const CONNECTIONS: u32 = 5;

/// Opens the database and makes the runner. `file` is where the plan stands.
pub(super) async fn prepared(
    file: &Path,
    plan: &FollowUpPlan,
    migrate: bool,
) -> Result<Box<dyn Rested>, Problem> {
    let resolvers = plan.resolvers.iter().map(|section| Webhook::new(file, &plan.source, section));
    let resolvers = resolvers.collect::<Result<Vec<_>, _>>()?;
    let opened = open(&plan.database, migrate).await?;
    let pool = Pool::new(plan.database.database(), CONNECTIONS);
    let built: Result<Box<dyn Rested>, Invalid> = match (opened.kind(), &pool) {
        (Kind::Sqlite(store), Pool::Sqlite(connections)) => {
            let transactions = store.transactions(connections.clone());
            runner(transactions, resolvers, plan)
                .map(|runner| Prepared::boxed(plan, runner, opened.clone(), pool.clone()))
        }
        (Kind::Postgres(store), Pool::Postgres(connections)) => {
            // Who lands a follow-up has to see what others have landed meanwhile.
            let transactions = store.transactions(connections.clone()).read_committed();
            runner(transactions, resolvers, plan)
                .map(|runner| Prepared::boxed(plan, runner, opened.clone(), pool.clone()))
        }
        _ => Err(Invalid::rule("database", "is of another kind than its pool")),
    };
    match built {
        Ok(prepared) => Ok(prepared),
        Err(invalid) => {
            pool.close().await;
            opened.close().await;
            let line = plan.resolvers.first().map_or(1, |section| section.line.0);
            let what = format!("{}:{line}: {invalid}", file.display());
            Err(Problem::new(what, "change the [[follow_ups]] of this queue"))
        }
    }
}

fn runner<S: Follow>(
    transactions: S,
    resolvers: Vec<Webhook>,
    plan: &FollowUpPlan,
) -> Result<SagaRunner<S>, Invalid> {
    let timeouts = plan.resolvers.iter().filter_map(|section| section.webhook.duration("timeout"));
    let timeout = timeouts.max().unwrap_or_default();
    // Its own timeout comes first, so that it can tell whether anything was sent.
    let mut builder = SagaRunner::builder(transactions)
        .queue(plan.queue.as_str())
        .batch_size(AT_ONCE)
        .timeout(timeout + Duration::from_secs(5));
    if let Some(queue) = plan.resolvers.iter().find_map(|section| section.complete_to.as_ref()) {
        builder = builder.complete_to(queue.as_str());
    }
    resolvers.into_iter().fold(builder, SagaRunnerBuilder::resolver).build()
}

/// Everything is there that the plan needs, and nothing is claimed yet.
struct Prepared<S: Follow> {
    queue: String,
    runner: SagaRunner<S>,
    opened: Opened,
    pool: Pool,
}

/// A runner at work.
struct Following<S: Follow> {
    prepared: Box<Prepared<S>>,
    running: Running,
}

impl<S: Follow> Prepared<S> {
    fn boxed(plan: &FollowUpPlan, runner: SagaRunner<S>, opened: Opened, pool: Pool) -> Box<dyn Rested> {
        Box::new(Self { queue: plan.queue.clone(), runner, opened, pool })
    }

    fn begin(self: Box<Self>) -> Box<dyn Working> {
        Box::new(Following { running: self.runner.start(), prepared: self })
    }
}

#[async_trait]
impl<S: Follow> Rested for Prepared<S> {
    async fn start(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        match self.runner.declare(&*self.opened.schema()).await {
            Ok(()) => Ok(self.begin()),
            Err(error) => {
                let problem = self.opened.problem(&error);
                Err((self, problem))
            }
        }
    }

    async fn resume(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        Ok(self.begin())
    }

    async fn close(self: Box<Self>) {
        self.pool.close().await;
        self.opened.close().await;
    }
}

#[async_trait]
impl<S: Follow> Working for Following<S> {
    async fn ping(&mut self) -> Pulse {
        self.running.ping(PATIENCE).await.into()
    }

    async fn drain(self: Box<Self>, deadline: Duration) -> Box<dyn Rested> {
        let stopped = self.running.shutdown(deadline).await;
        let (queue, delivered, is_clean) = (&self.prepared.queue, stopped.tally.delivered, stopped.is_clean);
        tracing::info!(name: "postrider.drained", queue, delivered, is_clean, "drained");
        self.prepared
    }
}

impl<S: Follow> fmt::Debug for Following<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("prepared", &self.prepared).finish_non_exhaustive()
    }
}

impl<S: Follow> fmt::Debug for Prepared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("queue", &self.queue).finish_non_exhaustive()
    }
}
