//! Runs plain handlers, whose effect is an entry of the journal, and handlers in a transaction, whose effect is a row.

use super::{DRAIN_TIMEOUT, LEASE, ProcessArgs, retry};
use crate::{
    database::Database,
    journal::Journal,
    task::{Defect, Task, Work},
};
use anyhow::Result;
use postrider_core::{OnFailure, QueuePolicy};
use postrider_engine::{Context, Failure, Queue, Stopped, Tx, Worker};
use sqlx::{Postgres, Transaction};
use std::time::Duration;
use tokio::time::sleep;

/// No process lives as long.
const LATE: Duration = Duration::from_secs(3600);

pub(super) async fn run(database: &Database, args: &ProcessArgs) -> Result<Stopped> {
    Ok(worker(database, args)?.run_until_signal(DRAIN_TIMEOUT).await?)
}

/// Declares the queues, before the first message is staged.
pub(crate) async fn declare(database: &Database, args: &ProcessArgs) -> Result<()> {
    Ok(worker(database, args)?.declare().await?)
}

fn worker(database: &Database, args: &ProcessArgs) -> Result<Worker> {
    let journal = Journal::open(&args.journal)?;
    let worker = Worker::builder(database.store.clone())
        .queue(plain(Work::Plain, &journal, args))
        .queue(plain(Work::PlainByKey, &journal, args))
        .queue(in_transaction(Work::InTransaction, database, args))
        .queue(in_transaction(Work::InTransactionByKey, database, args));
    Ok(worker.build()?)
}

fn plain(work: Work, journal: &Journal, args: &ProcessArgs) -> Queue {
    let journal = journal.clone();
    let is_early = args.has(Defect::EarlySuccess);
    let handler = move |task: Task, context: Context| {
        let journal = journal.clone();
        async move {
            task.result(context.attempt())?;
            let id = context.id().as_uuid();
            if is_early && id.as_bytes().last().is_some_and(|last| last % 10 == 0) {
                tokio::spawn(async move {
                    sleep(LATE).await;
                    journal.append(id)
                });
                return Ok(());
            }
            journal.append(id)?;
            Ok::<(), Failure>(())
        }
    };
    with_settings(Queue::new(work.queue()).on(handler).concurrency(32), work, args)
}

fn in_transaction(work: Work, database: &Database, args: &ProcessArgs) -> Queue {
    let app = database.app.clone();
    let is_outside = args.has(Defect::EffectOutsideTransaction);
    let handler = move |task: Task, mut tx: Tx<Transaction<'static, Postgres>>, context: Context| {
        let app = app.clone();
        async move {
            // Before the handler can fail, so that a failure has something to roll back.
            let insert = "insert into effect (id) values ($1)";
            let effect = sqlx::query(insert).bind(context.id().as_uuid()).persistent(false);
            match is_outside {
                true => effect.execute(&app).await?,
                false => effect.execute(&mut **tx).await?,
            };
            task.result(context.attempt())
        }
    };
    let transactions = database.store.transactions(database.app.clone());
    let queue = Queue::new(work.queue()).on_in_transaction(&transactions, handler).concurrency(4);
    with_settings(queue, work, args)
}

/// Messages whose workers are killed again and again are not dead-lettered.
fn with_settings(queue: Queue, work: Work, args: &ProcessArgs) -> Queue {
    let queue = queue.lease_for(LEASE).retry(retry()).without_max_deliveries();
    if work.is_by_key() && !args.has(Defect::NoOrdering) {
        return queue.policy(QueuePolicy::by_key(OnFailure::Skip));
    }
    queue
}
