//! `bench worker`: the worker beside the store's own claims and settlements, in the same run.

mod committers;
mod drain;
mod latency;
mod memory;

use crate::{
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
    /// Print one JSON object per scenario
    #[arg(long)]
    json: bool,

    /// How often each scenario has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How many messages are drained in one turn
    #[arg(long, default_value_t = 100_000)]
    messages: usize,

    /// A look at how things stand: three rounds of a fifth of the messages
    #[arg(long)]
    quick: bool,

    /// Only scenarios whose name begins so: `drain`, `latency`, `memory`, `committers`
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Args {
    fn rounds(&self) -> u32 {
        if self.quick { self.rounds.min(3) } else { self.rounds }
    }

    fn messages(&self) -> usize {
        if self.quick { self.messages / 5 } else { self.messages }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }
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
    let mut databases = Databases::connect().await?;
    let url = databases.database(&Ours).await?;
    let place = Place::open(&url).await?;
    let scenarios: [(&str, Figures<'_>); 4] = [
        ("drain", Box::pin(drain::measure(&place, args.rounds(), args.messages()))),
        ("latency", Box::pin(latency::measure(&place, if args.quick { 50 } else { 200 }))),
        ("committers", Box::pin(committers::measure(&place, args.rounds(), args.quick))),
        ("memory", Box::pin(memory::measure(&place, if args.quick { 200_000 } else { 2_000_000 }))),
    ];
    let mut done = Ok(());
    for (name, figures) in scenarios {
        if !args.wants(name) {
            continue;
        }
        match figures.await {
            Ok(figures) => figures.iter().try_for_each(|figure| figure.print(args.json))?,
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
