//! `bench worker`: the worker compared with the store's own claims and settlements, in the same run.

mod committers;
mod drain;
mod latency;
mod memory;

use crate::{
    backend::Backend,
    figure::Figure,
    postgres::{Databases, Ours},
    workload::Workload,
};
use anyhow::Result;
use postrider_core::{Outbox as _, QueueName};
use postrider_engine::{Queue, WorkerBuilder};
use postrider_stores::postgres::PostgresStore;
use sqlx::PgPool;
use std::{future::Future, pin::Pin, time::Duration};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    workload: Workload,

    /// Drain this many messages in one turn
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
}

/// A database with the store's schema, and the application's own pool.
pub(crate) struct BenchDatabase {
    pub(crate) store: PostgresStore,
    pub(crate) app: PgPool,
    pub(crate) queue: QueueName,
}

impl BenchDatabase {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let queue = QueueName::new(crate::side::QUEUE)?;
        Ok(Self { store: PostgresStore::connect(url).await?, app: PgPool::connect(url).await?, queue })
    }

    /// Stages this many messages.
    pub(crate) async fn fill(&self, mut messages: usize) -> Result<()> {
        while messages > 0 {
            let count = messages.min(1_000);
            let mut tx = self.app.begin().await?;
            self.store.outbox().stage_all(&mut tx, &crate::side::batch(count)?).await?;
            tx.commit().await?;
            messages -= count;
        }
        Ok(())
    }
}

type Figures<'f> = Pin<Box<dyn Future<Output = Result<Vec<Figure>>> + 'f>>;

pub(crate) async fn run(args: &Args) -> Result<()> {
    let workload = &args.workload;
    let mut databases = Databases::connect().await?;
    let url = databases.database(&Ours).await?;
    let bench_db = BenchDatabase::open(&url).await?;
    let scenarios: [(&str, Figures<'_>); 4] = [
        ("drain", Box::pin(drain::measure(&bench_db, workload.rounds(), workload.of(args.messages)))),
        ("latency", Box::pin(latency::measure(&bench_db, if workload.quick { 50 } else { 200 }))),
        ("committers", Box::pin(committers::measure(&bench_db, workload.rounds(), workload.quick))),
        ("memory", Box::pin(memory::measure(&bench_db, if workload.quick { 200_000 } else { 2_000_000 }))),
    ];
    let mut done = Ok(());
    for (name, figures) in scenarios {
        if !workload.wants(name) {
            continue;
        }
        match figures.await {
            Ok(figures) => figures.iter().try_for_each(|figure| figure.print(workload.json))?,
            Err(error) => {
                done = Err(error.context(name));
                break;
            }
        }
    }
    bench_db.store.close().await;
    bench_db.app.close().await;
    Box::new(databases).remove().await?;
    done
}

/// The documented settings for short handlers.
pub(crate) fn best(builder: WorkerBuilder, queue: Queue) -> WorkerBuilder {
    builder.queue(queue.concurrency(4).prefetch(3_000)).settle_batch(1_000, Duration::from_millis(20))
}
