//! `bench worker`: the worker beside the store's own claims and settlements, in the same run.

mod committers;
mod drain;
mod latency;
mod memory;

use crate::{
    extent::Extent,
    figure::Figure,
    ground::Ground,
    postgres::{Databases, Ours},
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
    extent: Extent,

    /// How many messages are drained in one turn
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
}

/// A database with the store in it, and a pool of the application's own.
pub(crate) struct Place {
    pub(crate) store: PostgresStore,
    pub(crate) app: PgPool,
    pub(crate) queue: QueueName,
}

impl Place {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let queue = QueueName::new(crate::side::QUEUE)?;
        Ok(Self { store: PostgresStore::connect(url).await?, app: PgPool::connect(url).await?, queue })
    }

    /// Stages so many messages.
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
    let extent = &args.extent;
    let mut databases = Databases::connect().await?;
    let url = databases.database(&Ours).await?;
    let place = Place::open(&url).await?;
    let scenarios: [(&str, Figures<'_>); 4] = [
        ("drain", Box::pin(drain::measure(&place, extent.rounds(), extent.of(args.messages)))),
        ("latency", Box::pin(latency::measure(&place, if extent.quick { 50 } else { 200 }))),
        ("committers", Box::pin(committers::measure(&place, extent.rounds(), extent.quick))),
        ("memory", Box::pin(memory::measure(&place, if extent.quick { 200_000 } else { 2_000_000 }))),
    ];
    let mut done = Ok(());
    for (name, figures) in scenarios {
        if !extent.wants(name) {
            continue;
        }
        match figures.await {
            Ok(figures) => figures.iter().try_for_each(|figure| figure.print(extent.json))?,
            Err(error) => {
                done = Err(error.context(name));
                break;
            }
        }
    }
    place.store.close().await;
    place.app.close().await;
    Box::new(databases).remove().await?;
    done
}

/// The settings that are documented as the best for short handlers.
pub(crate) fn best(builder: WorkerBuilder, queue: Queue) -> WorkerBuilder {
    builder.queue(queue.concurrency(4).prefetch(3_000)).settle_together(1_000, Duration::from_millis(20))
}
